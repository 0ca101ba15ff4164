"""nmp.wasm: the interpreter as WebAssembly, as a wheel brings it, or compiled once on this machine."""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from nmpconv.base.compilers import home, run_make, zig
from nmpconv.base.files import PACKAGE, interpreter, read_file, write_file
from nmpconv.errors import DeviceError, OutputError

NAME = "nmp.wasm"


def wasm() -> bytes:
    """The module. What is compiled is kept, by a hash of the sources and of the compiler, where that can be written.

    Raises DeviceError where it is to be compiled and a tool is missing or fails.
    """
    if (PACKAGE / NAME).is_file():
        return read_file(PACKAGE / NAME)
    program = zig()
    if program is None:
        raise DeviceError("the compiler of WebAssembly is missing", where=NAME, hint="pip install ziglang")
    cache_file = home() / f"nmp-{_key()}.wasm"
    is_ours = cache_file.is_absolute()  # else the package is read-only, and the current folder may be anyone's
    if is_ours and cache_file.is_file():
        return read_file(cache_file)
    data = _compiled(program)
    if is_ours:
        with suppress(OSError, OutputError):
            cache_file.parent.mkdir(exist_ok=True)
            write_file(cache_file, data)
    return data


def runtime() -> str:
    """The JavaScript beside it."""
    return (interpreter() / "wasm" / "nmp_runtime.mjs").read_text(encoding="utf-8")


def _key() -> str:
    """Hash of all that the module is made of."""
    folder, digest = interpreter(), hashlib.sha256(version("ziglang").encode())
    paths = (path for part in ("include", "src", "wasm") for path in (folder / part).rglob("*") if path.is_file())
    for path in sorted(paths):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]


def _compiled(program: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="nmpconv-") as folder:
        ran = run_make("wasm", folder, f"ZIG={shlex.quote(program)}", where=NAME)
        if ran.returncode:
            raise DeviceError(f"it does not compile:\n{ran.stderr.strip()}", where=NAME)
        return Path(folder, NAME).read_bytes()
