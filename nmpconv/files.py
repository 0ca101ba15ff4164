"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
