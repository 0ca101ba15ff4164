"""Builds what is published: wheels for Linux with an old glibc, those of the runtime, and the source distribution.

    python packaging/wheels.py --python python3.10 --python python3.12 --arch x86_64 --arch aarch64 --output dist

A Python from 3.12 on gives the one wheel for all of them (abi3), an older one its own. The compiler is that of PyPI's
ziglang. It compiles for both machines and for glibc 2.17, on any machine. auditwheel refuses a wheel that needs more.
Inside is the firmware of the boards whose compilers are here, and the interpreter as WebAssembly, for pages. The same
sources and compilers give the same bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from runtime import runtime

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.17"  # manylinux2014: what was current in 2014, and all that came later
EPOCH = "1735689600"  # 2025-01-01, the time of every file, unless SOURCE_DATE_EPOCH says another
ARCHES = ("x86_64", "aarch64")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_python(parser)
    parser.add_argument("--arch", action="append", choices=ARCHES, help="a machine; default: both; repeatable")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder to write to")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheels", help="a folder for what comes between")
    parser.add_argument("--board", action="append", help="a board with its firmware inside; default: all; repeatable")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", EPOCH)
    pythons = chosen(asked.python, asked.those_here)
    boards = firmware(asked.work, asked.board)
    for number, python in enumerate(pythons):
        tools = environment(python, asked.work)
        bill = asked.work.resolve() / f"{tools.parent.parent.name}.cdx.json"
        run([tools, ROOT / "packaging" / "sbom.py", bill, boards])
        if number == 0:
            run([tools, "-m", "build", "--sdist", "--no-isolation", "--outdir", asked.output, ROOT])
        parts = {"FIRMWARE": boards, "SBOM": bill, "WASM": wasm(tools, asked.work)}
        for arch in asked.arch or ARCHES:
            wheel = repaired(tools, built(tools, arch, asked.work, parts), arch, asked.output)
            for path in (wheel, runtime(wheel, asked.output)):
                print(f"{path.name}, {path.stat().st_size / 1e6:.2f} MB")


def add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", action="append", help="a Python; default: this one; repeatable")
    parser.add_argument("--those-here", action="store_true", help="a Python that is not here is told and left out")


def chosen(asked: list[str] | None, those_here: bool) -> list[str]:
    """The Pythons that were asked for. Ends where one does not start, unless ``those_here`` and not in CI."""
    here = []
    for python in asked or [sys.executable]:
        if why := missing(python):
            text = f"{python} is not here: {why}"
            if not those_here or os.environ.get("NMP_CI"):
                raise SystemExit(text)
            print(f"Left out: {text}", file=sys.stderr)
        else:
            here.append(python)
    return here or sys.exit("no Python is left to build for")


def missing(python: str) -> str:
    """Says why a program does not start, in a line; "" where it does. pyenv's stand-ins for others do not."""
    try:
        started = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        return error.strerror or str(error)
    lines = started.stderr.strip().splitlines() or [f"it ends with status {started.returncode}"]
    return lines[0] if started.returncode else ""


def version(python: str) -> str:
    """Version of a Python, such as 3.12."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return run([python, "-c", code], capture_output=True).stdout.strip()


def environment(python: str, work: Path) -> Path:
    """The Python of an environment with the tools, made when it is not there."""
    folder = work / f"python{version(python)}"
    tools = folder / "bin" / "python"
    if not (folder / "done").exists():
        run([python, "-m", "venv", "--clear", folder])
        install = [tools, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        run([*install, "-r", ROOT / "packaging" / "locks" / "wheels.lock"])
        (folder / "done").touch()
    return tools


def firmware(work: Path, boards: list[str] | None) -> Path:
    """A folder with the firmware of these boards, or of all whose compiler is here, and the terms of their C libraries.

    The firmware is the same on every machine with these compilers: debug information, which names folders, is left out.
    """
    folder, source = (work / "firmware").resolve(), ROOT / "interpreter" / "firmware"
    folder.mkdir(parents=True, exist_ok=True)
    for makefile in sorted(source.glob("boards/*/board.mk")):
        board, text = makefile.parent.name, makefile.read_text()
        cross = re.search(r"^CROSS := \S", text, re.MULTILINE)  # without: a program of this machine
        if board not in (boards or [board] * bool(cross)):
            continue
        out = os.path.relpath(folder, source)  # make takes no folder with a space in its name
        command = ["make", "-s", "-C", source, f"BOARD={board}", "OPTIONAL=yes", "STRIP=yes", f"OUT={out}"]
        output = run(command, stdout=subprocess.PIPE).stdout
        print("".join(line + "\n" for line in output.splitlines() if line.startswith("Left out")), end="")
        for package in re.findall(r"lib\S+|picolibc\S+", text.partition("PACKAGES :=")[2].splitlines()[0]):
            terms = Path("/usr/share/doc", package, "copyright")
            if terms.exists():
                (folder / f"{package}.txt").write_bytes(terms.read_bytes())
    return folder


def wasm(tools: Path, work: Path) -> Path:
    """The interpreter as WebAssembly: the same from every Python and for every machine."""
    zig = f"ZIG={shlex.quote(str(tools.absolute()))} -m ziglang"
    source = ROOT / "interpreter" / "wasm"
    run(["make", "-s", "-C", source, zig, f"OUT={os.path.relpath(work.resolve(), source)}"])
    return work.resolve() / "nmp.wasm"


def built(tools: Path, arch: str, work: Path, parts: dict[str, Path]) -> Path:
    """The wheel of one Python and machine, as the compiler leaves it. parts: what CMakeLists.txt puts beside."""
    code = "import sys, sysconfig, ziglang; print(ziglang.__path__[0], sysconfig.get_config_var('SOABI'), sep='\\n')"
    package, abi = run([tools, "-c", code], capture_output=True).stdout.splitlines()
    raw = work / f"raw-{tools.parent.parent.name}-{arch}"
    shutil.rmtree(raw, ignore_errors=True)
    settings = {
        "NMP_ZIG": f"{package}/zig",
        "NMP_ZIG_TARGET": f"{arch}-linux-gnu.{GLIBC}",
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "packaging" / "zig.cmake"),
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
        "SETUPTOOLS_EXT_SUFFIX": f".{'-'.join(abi.split('-')[:2])}-{arch}-linux-gnu.so",
        "PATH": f"{tools.parent}:{os.environ['PATH']}",
    }
    command = [tools, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", raw]
    command += [f"--config-settings=cmake.define.NMP_{name}={path}" for name, path in parts.items()]
    run([*command, f"--config-settings=build-dir={raw / 'build'}", ROOT], env={**os.environ, **settings})
    [wheel] = raw.glob("*.whl")
    return wheel


def repaired(tools: Path, wheel: Path, arch: str, output: Path) -> Path:
    """The same with the tag that its symbols allow. Ends where it needs what an old Linux lacks."""
    before = set(output.glob("*.whl"))
    path = {**os.environ, "PATH": f"{tools.parent}:{os.environ['PATH']}"}
    for old in output.glob(f"{wheel.name.rpartition('-')[0]}-*{arch}.whl"):
        old.unlink()
        before.discard(old)
    # auditwheel knows the names of this machine's tags only; "auto" finds that of the other, too.
    run([tools, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", output, wheel], env=path)
    [repaired_wheel] = set(output.glob("*.whl")) - before
    if f"manylinux_{GLIBC.replace('.', '_')}_{arch}" not in repaired_wheel.name:
        raise SystemExit(f"{repaired_wheel.name} needs another system than one with glibc {GLIBC}")
    return repaired_wheel


def run(command: list[object], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


if __name__ == "__main__":
    main()
