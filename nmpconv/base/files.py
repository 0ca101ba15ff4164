"""Reading a regular file of a bounded size; writing a file, or a new folder, whole or not at all; where our own are."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.errors import InputError, NmpError, OutputError

if TYPE_CHECKING:
    import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PACKAGE = Path(__file__).resolve().parent.parent
TEXT_MAX = 2**26  # bytes of a file that a person could have written
LINES_MAX = 1_000_000  # of a list
TOML_MAX, DOTS_MAX = 2**22, 1000  # bytes; of a line: what a dotted key takes grows with the square of its parts
NAMES_READ = 1000  # names of a folder that are compared with one that is not there
BYTES_MAX = 2**31 - 1  # of any other one: protobuf and .nmp have offsets of 32 bits


def interpreter() -> Path:
    """The folder of the interpreter's sources: in the package when installed, beside it in a checkout."""
    for folder in (PACKAGE / "interpreter", PACKAGE.parent / "interpreter"):
        if (folder / "src" / "nmp.c").is_file():
            return folder
    raise NmpError("the interpreter's sources are not there", where=str(PACKAGE), hint="install nmpconv again")


def licence() -> str:
    """The text of our licence: beside the package's metadata when installed, at the root of a checkout."""
    from importlib.metadata import PackageNotFoundError, files

    with suppress(PackageNotFoundError):
        for path in files("nmpconv") or ():
            if path.name == "LICENSE" and (file := Path(str(path.locate()))).is_file():
                return file.read_text(encoding="utf-8")
    try:
        return (PACKAGE.parent / "LICENSE").read_text(encoding="utf-8")
    except OSError:
        raise NmpError("the licence is not there", where=str(PACKAGE), hint="install nmpconv again") from None


def read_file(path: Path | str, most: int = BYTES_MAX) -> bytes:
    """The bytes of a regular file of at most ``most`` bytes; InputError for what is none."""
    with open_file(path, most) as (file, size):
        return file.read(size)


@contextmanager
def open_file(path: Path | str, most: int = BYTES_MAX) -> Iterator[tuple[BufferedReader, int]]:
    """A regular file of at most ``most`` bytes, open for reading, and its size; InputError for what is none.

    The size is known before anything is read: a device or a sparse file has no end that memory would reach.
    """
    if "\0" in str(path):
        raise InputError("no file can have this name", where=str(path))
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError("is not a regular file", where=str(path), hint="write what it gives to a file first")
            if status.st_size > most:
                raise InputError(f"has {status.st_size} bytes; at most {most} can be read", where=str(path))
            yield file, status.st_size
    except OSError as error:
        absent = place(path) if isinstance(error, FileNotFoundError) else ""
        hint = "name a file in it" if isinstance(error, IsADirectoryError) else absent
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path), hint=hint) from error


def place(path: Path | str) -> str:
    """A hint where a file is not found: the nearest name beside it, and the folder that a relative path begins at."""
    from nmpconv.base.near_names import suggestion  # with difflib, which only an error needs

    path, near = Path(path), ""
    if str(path).startswith("~") and (expanded := os.path.expanduser(path)) != str(path):
        return f"a shell expands ~ only where a word begins with it; give {expanded}"
    with suppress(OSError, ValueError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in islice(entries, NAMES_READ)]
        near = suggestion(path.name, [name for name in names if _is_pattern(name) or not _is_pattern(path.name)])
    folder = next((parent for parent in path.parents if os.path.isdir(parent) or not _is_pattern(str(parent))), path)
    if _is_pattern(str(path.relative_to(folder))) and not near:
        return f"patterns are not expanded here; give the folder: {folder}"
    begin = "" if path.is_absolute() else f"the current folder is {os.getcwd()}"
    return " ".join(filter(None, [near, begin]))


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def read_text(path: Path | str, kind: str, *, western: bool = False) -> str:
    """A text file, as `decoded` takes its bytes."""
    return decoded(read_file(path, TEXT_MAX), kind, str(path), western=western)


def decoded(data: bytes, kind: str, where: str, *, western: bool = False) -> str:
    """Text in UTF-8, or in UTF-16 with a byte order mark. kind: "profile" and so on, for the message of the InputError.
    western: what is neither is read as Windows of Western Europe writes it, which Excel does to a CSV."""
    is_long = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return data.decode("utf-16" if is_long else "utf-8-sig")
    except UnicodeDecodeError as error:
        if western and not is_long and b"\0" not in data:
            with suppress(UnicodeDecodeError):
                return data.decode("cp1252")
        name = "UTF-16" if is_long else "UTF-8"
        problem = f"not a {kind}: byte {error.start} is not {name} text"
        raise InputError(problem, where=where, hint="save it as UTF-8") from None


def read_lines(path: Path | str, kind: str, *, western: bool = False) -> list[str]:
    """Those of a text file, as `read_text`, without empty ones at its end. InputError for more than LINES_MAX."""
    text = read_text(path, kind, western=western).rstrip()
    ends = sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")) - text.count("\r\n")
    if (count := ends + 1) > LINES_MAX:
        raise InputError(f"not a {kind}: {count} lines; at most {LINES_MAX} can be read", where=str(path))
    return text.splitlines()


def toml_of(text: str, kind: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text. kind, where: for the message of the InputError."""
    if sys.version_info >= (3, 11):  # not at the top: nmpconv-runtime brings no tomli
        import tomllib
    else:
        import tomli as tomllib
    if len(text) > TOML_MAX:
        raise InputError(f"not a {kind}: {len(text)} characters; at most {TOML_MAX} can be read", where=where)
    if wrong := [i for i, line in enumerate(text.splitlines(), 1) if line.count(".") > DOTS_MAX]:
        raise InputError(f"not a {kind}: line {wrong[0]} has more than {DOTS_MAX} dots", where=where)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise InputError(f"not a {kind}: {reason}", where=where, hint="the file is TOML") from None


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe would wait for somebody who writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_output(path: Path) -> None:
    """Refuses, before any work, a path that `write_file`, which follows links, cannot write to. Raises OutputError."""
    try:
        real = Path(os.path.realpath(path))
        if path.is_dir():
            raise OutputError("is a folder", where=str(path), hint="give a file")
        if path.exists() and not path.is_file():
            raise OutputError("is not a regular file, and only such can appear whole or not at all", where=str(path))
        if not real.parent.is_dir():
            raise OutputError(f"the folder {real.parent} does not exist", where=str(path))
        _check_writable(real.parent, path)
        os.lstat(real)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # too long, or a NUL
        raise OutputError(f"no file can have this name: {error_text(error)}", where=str(path)) from error


def check_folder(folder: Path) -> None:
    """Refuses, before any work, a folder that `write_folder`, which follows links, cannot write. Raises OutputError."""
    try:
        real = Path(os.path.realpath(folder))
        if folder.exists() and any(folder.iterdir()):
            raise OutputError("the folder is not empty", where=str(folder), hint="name a new one")
        _check_writable(next(parent for parent in real.parents if parent.is_dir()), folder)
    except (OSError, ValueError) as error:  # a file; ValueError: a NUL in the name
        raise OutputError(f"cannot write: {error_text(error)}", where=str(folder)) from error


def _check_writable(folder: Path, path: Path) -> None:
    """Refuses a path of which the folder that it would be made in takes no files."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"the folder {folder} cannot be written to", where=str(path))


def error_text(error: Exception) -> str:
    """Returns the operating system's message, without its number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def write_file(path: Path, data: bytes) -> None:
    """Writes to a temporary file in the folder of ``path`` and renames it: no reader ever sees half a file.

    A link is followed: the file that it leads to is replaced. What an earlier call for this path left behind when it
    was killed is removed. Raises OutputError, leaving nothing behind and an older file as it was.
    """
    temporary = None
    try:
        real = Path(os.path.realpath(path))
        _remove_stale(real)
        temporary = _temporary(real)
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(handle, "wb") as file:
            _lock(file.fileno())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            if fcntl is not None:  # while it is locked; Windows renames only what is closed
                os.replace(temporary, real)
        if fcntl is None:
            os.replace(temporary, real)
        temporary = None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        is_lost = isinstance(error, FileNotFoundError) and not path.parent.exists()
        reason = f"the folder {path.parent} does not exist" if is_lost else f"cannot write: {error_text(error)}"
        raise OutputError(reason, where=str(path)) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by relative path into a folder that is new or empty, by way of a temporary one beside it.

    What an earlier call for this folder left behind when it was killed is removed. Raises OutputError, leaving nothing
    behind.
    """
    temporary = handle = None
    check_folder(folder)
    try:
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        temporary = _temporary(folder)
        temporary.mkdir(0o700)
        if fcntl is not None:
            handle = os.open(temporary, os.O_RDONLY)
            _lock(handle)
        for name, data in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                write_file(path, data)
            except OutputError as error:
                raise OutputError(error.message, where=str(folder / name)) from error
        os.chmod(temporary, 0o777 & ~_umask())
        if fcntl is None and folder.is_dir():
            folder.rmdir()  # Windows puts no folder in the place of another
        os.replace(temporary, folder)
        temporary = None
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot write: {error_text(error)}", where=str(folder)) from error
    finally:
        if handle is not None:
            os.close(handle)
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays by name as the bytes of an .npz file; the same arrays give the same bytes."""
    import zipfile

    from numpy.lib import format

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            # Not numpy.savez: an array may have any name, its own arguments' too.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                format.write_array(file, array)
    return buffer.getvalue()


def _temporary(path: Path) -> Path:
    """A name beside ``path`` that nothing has. Whoever creates it knows it before, so that Ctrl-C leaves nothing."""
    return path.parent / f"{_prefix(path)}{os.urandom(8).hex()}"


def _prefix(path: Path) -> str:
    """Prefix of the temporary files and folders for a path; short, whatever its name is."""
    import hashlib

    return f".nmpconv-{hashlib.sha256(path.name.encode(errors='surrogateescape')).hexdigest()[:16]}-"


def _lock(handle: int) -> bool:
    """Locks the open file until it is closed; False where somebody else has a lock."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_stale(path: Path) -> None:
    """Temporary files and folders for this path that no process holds."""
    for leftover in path.parent.glob(f"{_prefix(path)}*"):
        with suppress(OSError):
            handle = os.open(leftover, os.O_RDONLY)
            try:
                if not _lock(handle):
                    continue
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()
            finally:
                os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
