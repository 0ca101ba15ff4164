"""Runs tests from the wheels of dist/, each in a new environment that finds no compiler.

    python packaging/suite.py --python python3.10 --python python3.12     # all quick tests, on this machine
    python packaging/suite.py --arch aarch64                              # those of PARTS, under qemu-user
    python packaging/suite.py --arch aarch64 -- tests/file tests/runtime -k "not zoo"

Words behind -- are pytest's, in place of the tests named here. For AArch64 the Python is that of the Debian whose apt
this is: packages are unpacked into --work, nothing is installed. APT_CONFIG may name another Debian.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from wheels import ARCHES, ROOT, add_python, chosen, run, version

COMPILER = re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+|c[89]9|clang|clang\+\+|tcc|as|ld)(-[\d.]+)?$")
# What an emulated machine has time for: kernels, ops, the file, runs of it, the commands, conversions.
PARTS = ("ops/test_ops.py", "ops/test_overlap.py", "ops/test_references.py", "ops/test_tables.py", "ops/test_limits.py")
PARTS += ("file", "graph", "api/test_keywords.py", "cli/test_run_eval_bench.py", "cli/test_convert.py")
PARTS += ("conversion/test_conversion.py", "frontend/test_zoo_import.py")
RUNS = ("onnxruntime<1.24",)  # from 1.28 on, its import ends in a segmentation fault under QEMU 7.2
CPU = "max,sve=off"  # OpenBLAS 0.3.31's ARMV8SVE kernels, in numpy 2.4, give NaN for some a.T @ a under QEMU 7.2
GLIBC = range(17, 37)  # of the wheels that others publish for AArch64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHES, default=platform.machine(), help="of the wheels; default: this one")
    add_python(parser)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder of the wheels")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "suite", help="a folder for the environments")
    parser.add_argument("tests", nargs="*", help="arguments of pytest")
    asked = parser.parse_args()
    work = asked.work.resolve()
    tools = programs(work / "programs")
    places = (
        [emulated(asked.dist, work / asked.arch)]
        if asked.arch != platform.machine()
        else [native(python, asked.dist, work) for python in chosen(asked.python, asked.those_here)]
    )
    parts = PARTS if asked.arch != platform.machine() else ("",)
    tests = [ROOT / word if (ROOT / word.partition("::")[0]).exists() else word for word in asked.tests]
    tests = tests or [ROOT / "tests" / part for part in parts]
    failed = [place for place in places if not passes(place, tests, tools, work / f"here-{place.name}")]
    if failed:
        raise SystemExit(f"tests fail from {', '.join(place.name for place in failed)}")


def native(python: str, dist: Path, work: Path) -> Path:
    """A new virtual environment of this Python, with its wheel in it."""
    number = version(python)
    place = work / f"python{number}"
    run([python, "-m", "venv", "--clear", place])
    pip(place / "bin" / "python", f"{wheel(dist, number, platform.machine())}[test]")
    return place


def emulated(dist: Path, place: Path) -> Path:
    """The same for AArch64, of Debian's Python: its programs and libraries, and bin/python that starts it by qemu."""
    debian, site = place / "debian", place / "site"
    if not (debian / "done").exists():
        unpack(debian, place / "apt")
    [python] = (debian / "usr" / "bin").glob("python3.[0-9]*[0-9]")
    number = python.name.removeprefix("python")
    shutil.rmtree(site, ignore_errors=True)
    kinds = [f"--platform=manylinux{name}_aarch64" for name in ("2014", *(f"_2_{least}" for least in GLIBC))]
    aim = ("--target", site, "--python-version", number, "--only-binary=:all:", *kinds)
    pip(sys.executable, *aim, f"{wheel(dist, number, 'aarch64')}[test]", *RUNS)
    start = place / "bin" / "python"
    # What starts Python again, starts the emulator.
    (site / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(start)!r}\n")
    start.parent.mkdir(exist_ok=True)
    start.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec qemu-aarch64 -cpu {CPU} -L {debian} {python} "$@"\n')
    start.chmod(0o755)
    return place


def unpack(debian: Path, apt: Path) -> None:
    """Python and what it needs, out of Debian's packages for AArch64. apt keeps its files apart from this machine's."""
    shutil.rmtree(debian, ignore_errors=True)
    for name in ("lib", "bin"):
        (debian / "usr" / name).mkdir(parents=True)
        (debian / name).symlink_to(f"usr/{name}")
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "1",
        "Dir::Cache::archives": apt / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::status": apt / "status",
    }
    get: list[object] = [
        "apt-get",
        "-qq",
        *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")),
    ]
    run([*get, "update"])
    run([*get, "--yes", "--no-install-recommends", "--download-only", "install", "python3", "libstdc++6"])
    for package in sorted((apt / "archives").glob("*.deb")):
        run(["dpkg-deb", "--extract", package, debian])
    (debian / "done").touch()


def wheel(dist: Path, number: str, arch: str) -> Path:
    """The wheel of a Python, such as 3.11: its own, or the one for all from 3.12 on."""
    tag = "cp" + number.replace(".", "")
    for kind in (f"{tag}-{tag}", "cp312-abi3"):
        wheels = sorted(dist.glob(f"nmpconv-*-{kind}-*{arch}.whl"))
        if wheels and (kind.startswith(tag) or int(number.split(".")[1]) >= 12):
            return wheels[-1].resolve()
    raise SystemExit(f"{dist} has no wheel for Python {number} on {arch}: make wheels")


def pip(python: object, *words: object) -> None:
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words])


def programs(folder: Path) -> Path:
    """A folder of links to the programs of this machine, without compilers."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for place in os.environ["PATH"].split(os.pathsep):
        for path in Path(place).glob("*"):
            link = folder / path.name
            if not COMPILER.match(path.name) and not path.name.startswith("python") and not link.is_symlink():
                link.symlink_to(path)
    return folder


def passes(place: Path, tests: list[object], tools: Path, here: Path) -> bool:
    """Returns True if the tests pass from the installed wheel, in a folder without a checkout."""
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NMP_CI", "VIRTUAL"))
    }
    path = os.pathsep.join([str(place / "bin"), str(tools)])
    environment |= {"PATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    print(f"{place.name}: {wheel_of(place, here, environment)}", flush=True)
    command = [place / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    return subprocess.run([str(word) for word in command], cwd=here, env=environment, check=False).returncode == 0


def wheel_of(place: Path, here: Path, env: dict[str, str]) -> str:
    """Installed package and its tests' folder, without a checkout."""
    code = "import nmpconv, platform; from nmpconv import _nmp; from nmpconv.runtime.interpreter import *; "
    code += "print(nmpconv.__version__, platform.machine(), platform.python_version(), nmpconv.__file__)"
    place_text = run([place / "bin" / "python", "-c", code], capture_output=True, cwd=here, env=env).stdout.strip()
    if str(place) not in place_text:
        raise SystemExit(f"not the wheel is imported: {place_text}")
    return place_text


if __name__ == "__main__":
    main()
