"""Writing a file, or a new folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nmpconv.errors import OutputError


def write_file(path: Path, data: bytes) -> None:
    """Writes to a temporary file next to ``path`` and renames it: no reader ever sees half a file.

    Raises OutputError, leaving nothing behind and an older file as it was.
    """
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror or error}", where=str(path)) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by relative path into a folder that is new or empty, by way of a temporary one beside it.

    Raises OutputError, leaving nothing behind.
    """
    temporary = None
    try:
        if folder.exists() and any(folder.iterdir()):
            raise OutputError("the folder is not empty", where=str(folder), hint="name a new one")
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        for name, data in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, data)
        os.chmod(temporary, 0o777 & ~_umask())
        os.replace(temporary, folder)
        temporary = None
    except OSError as error:
        raise OutputError(f"cannot write: {error.strerror or error}", where=str(folder)) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
