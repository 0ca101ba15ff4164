"""Members of .zip and .tar files, read where they lie: nothing is unpacked, so no path or link in them leads anywhere.

An archive is untrusted. A member is read when it is asked for, and never further than its own size, which is bounded;
of a compressed .tar, which can only be read from its start, all members are held in memory, so their sum is bounded.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any

from nmpconv.base.files import LINES_MAX, open_file
from nmpconv.errors import InputError

if TYPE_CHECKING:
    import tarfile

ZIP = (".zip",)
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MEMBER_MAX, HELD_MAX = 2**28, 2**30  # bytes of a member; of those that are held in memory


@dataclass(frozen=True)
class Member:
    """A file in an archive. name: its path there. place: it, for messages."""

    name: PurePosixPath
    place: str
    read: Callable[[], bytes]

    @property
    def suffix(self) -> str:
        return self.name.suffix.lower()


def is_archive(path: Path) -> bool:
    """Checks that the name is that of an archive."""
    return path.name.lower().endswith((*ZIP, *TAR))


def members(path: Path) -> tuple[list[Member], tuple[str, ...]]:
    """The files of an archive in the order of their names, and remarks on what is left out. Raises InputError."""
    try:
        with open_file(path):  # a regular file of a bounded size
            pass
        files, links = _of_zip(path) if path.name.lower().endswith(ZIP) else _of_tar(path)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # whatever a decompressor trips over
        raise InputError(f"not a readable archive: {error}", where=str(path)) from None
    shown = [
        member
        for member in files
        if not any(part.startswith((".", "__MACOSX")) for part in member.name.parts if part != "..")
    ]
    remarks = (f"{path}: {links} links in it are left out",) if links else ()
    return sorted(shown, key=lambda member: member.name.parts), remarks


def _of_zip(path: Path) -> tuple[list[Member], int]:
    archive, lock = zipfile.ZipFile(path), Lock()
    infos = [info for info in archive.infolist() if not info.is_dir()]
    _few(len(infos), path)
    plain = [info for info in infos if (info.external_attr >> 28) != 0o12]  # a link, as Unix writes it
    return [
        Member(PurePosixPath(info.filename), f"{path}:{info.filename}", partial(_unzipped, archive, lock, info, path))
        for info in plain
    ], len(infos) - len(plain)


def _unzipped(archive: zipfile.ZipFile, lock: Lock, info: zipfile.ZipInfo, path: Path) -> bytes:
    place = f"{path}:{info.filename}"
    _small(info.file_size, place)
    if info.flag_bits & 1:
        raise InputError("is encrypted", where=place, hint="unpack the archive, and give the folder")
    try:
        with lock, archive.open(info) as member:
            return member.read(info.file_size)
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(f"cannot be read: {error}", where=place) from None


def _of_tar(path: Path) -> tuple[list[Member], int]:
    import tarfile  # not loaded for what is no .tar

    files: list[Member] = []
    links = held = 0
    lock = Lock()
    packed = not path.name.lower().endswith(".tar")
    mode: Any = "r|*" if packed else "r:"  # a stream is read once, from its start
    archive = tarfile.open(path, mode)  # noqa: SIM115  members of a plain one are read later
    for number, info in enumerate(archive):
        _few(number, path)
        place = f"{path}:{info.name}"
        if not info.isreg():
            links += not info.isdir()
            continue
        _small(info.size, place)
        if not packed:
            files.append(Member(PurePosixPath(info.name), place, partial(_untarred, archive, lock, info, place)))
            continue
        held += info.size
        if held > HELD_MAX:
            hint = "unpack it, and give the folder, or a .zip or .tar"
            raise InputError(f"its files have more than {HELD_MAX} bytes", where=str(path), hint=hint)
        content = _untarred(archive, lock, info, place)
        files.append(Member(PurePosixPath(info.name), place, partial(bytes, content)))
    return files, links


def _untarred(archive: tarfile.TarFile, lock: Lock, info: tarfile.TarInfo, place: str) -> bytes:
    with lock:
        member = archive.extractfile(info)
        content = b"" if member is None else member.read(info.size)
    if len(content) != info.size:
        raise InputError(f"is cut: {len(content)} of {info.size} bytes", where=place)
    return content


def _small(size: int, place: str) -> None:
    if size > MEMBER_MAX:
        raise InputError(f"has {size} bytes; at most {MEMBER_MAX} can be read", where=place)


def _few(count: int, path: Path) -> None:
    if count > LINES_MAX:
        raise InputError(f"more than {LINES_MAX} files", where=str(path))
