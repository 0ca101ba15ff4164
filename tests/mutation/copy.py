"""A copy of the checkout, in which one mutant at a time is compiled and tested."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pytest

from mutation.functions import FEW, NEAR, Functions, Touches
from mutation.runner import COLLECTING, QUICK
from mutation.sites import Mutant

# Not traced: these read sources as text, compile them anew or wait for devices.
ASIDE = ("mutation", "documents", "exporters", "wheels", "build", "browser", "bench", "device", "zoo", "fuzz_models")
# Tests that compile or parse sources anew, which no trace sees.
KERNELS = "tests/ops/test_kernels.py"
COMPILING = {
    **dict.fromkeys(("arch", "conv", "kernels"), (KERNELS,)),
    "base": ("tests/proofs/test_proofs.py", KERNELS),
    "image": ("tests/runtime/test_camera_frames.py",),
    "sound": ("tests/runtime/test_sound_frames.py",),
}
EXACT, CLOSE = "tests/ops/test_ops.py::test_c_is_reference", 8  # of C: results of ops, and how many of these are early
UNLINKED = ("image", "sound")  # folders of C that the interpreter of Python does without
# Constants of modules, which no test calls.
CONSTANTS = ("tests/documents/test_limits_page.py", "tests/api/test_keywords.py", "tests/cli/test_conventions.py")
RELEASE = ("-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -DNDEBUG -falign-functions=16",)
COUNTING = f"{RELEASE[0]} -g -fno-inline -fsanitize-coverage=inline-8bit-counters,pc-table"
BUILD, PLAIN = "build/mutant", "build/plain"  # PLAIN: that one without a mutant
CLANG = "clang-19"
BELOW = 'import os; "NMP_BELOW" in os.environ and __import__("mutation_below")'
JOBS = 2  # compilers
MORE = 40  # tests of the first batches: to collect many takes long
COLD = ("documents", "mutation", "wheels", "build", "browser", "bench", "zoo", "fuzz_models")  # not collected before
NAMED = re.compile(r"([0-9a-f]+) [tT] (\w+)$", re.M)
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
COMPILED = ("agent", "check_kernels", "firmware", "kernels", "plain", "sanitized")  # what NMP_ONCE has of C alone
BUSY = 6  # times as long as the processor takes, on a machine that does other things
MOST = 1000  # tests for a mutant


def folders(root: Path, aside: Collection[str] = ASIDE) -> list[str]:
    """Those of tests that are traced."""
    paths = sorted((root / "tests").iterdir())
    return [path.name for path in paths if (path / "__init__.py").is_file() or any(path.glob("test_*.py"))
            if path.name not in aside]  # fmt: skip


def untraced(root: Path, file: str, traced: Collection[str] = ()) -> tuple[str, ...]:
    """Tests of a source beside the traced ones: a file of COMPILING, or the folder of tests that mirrors its own.
    traced: folders of tests that were traced."""
    parts = file.split("/")
    if parts[0] != "nmpconv":
        return COMPILING.get(parts[2], ())
    mirror = root / "tests" / parts[1]
    return (f"tests/{parts[1]}",) if mirror.is_dir() and parts[1] not in traced else ()


def near(file: str) -> tuple[str, ...]:
    """Folders of tests that are about the file more than others are."""
    top, folder, *_ = file.split("/")
    return (f"tests/{folder}/",) if top == "nmpconv" else ("tests/ops/", "tests/hostile/")


@dataclass(frozen=True)
class Verdict:
    """result: killed, survived (all tests that call its function passed), limit (those that ran within the time or
    number passed), untouched (there is no test to choose), same (the compiled interpreter is the same: equivalent, or a
    branch for other machines), or invalid (it does not compile). by: the test that failed.
    """

    result: str
    by: str
    seconds: float


@dataclass
class Copy:
    """folder: of the copy, brought up to date. limit: seconds of tests for a mutant. touches: folder of the traces, of
    which tests are chosen."""

    root: Path
    folder: Path
    limit: float
    touches: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(listed, cwd=self.root, check=True, capture_output=True, text=True).stdout
        names = {name for name in listing.splitlines() if (self.root / name).is_file()}
        before = self.folder.parent / f"{self.folder.name}.txt"
        for name in set(before.read_text(encoding="utf-8").splitlines() if before.exists() else ()) - names:
            (self.folder / name).unlink(missing_ok=True)
        for name in names:  # what is the same keeps its time, so that it is not compiled anew
            to, data = self.folder / name, (self.root / name).read_bytes()
            if not to.is_file() or to.read_bytes() != data:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(data)
        before.write_text("\n".join(sorted(names)), encoding="utf-8")
        venv = self.folder / ".venv"
        base = getattr(sys, "_base_executable", sys.executable)
        subprocess.run([base, "-m", "venv", "--without-pip", venv], check=True)
        self.python = venv / "bin" / "python"
        packages = Path(subprocess.check_output([self.python, "-c", PACKAGES], text=True).strip())
        # The copy comes before what is installed.
        shutil.copy(self.folder / "tests" / "mutation" / "below.py", packages / "mutation_below.py")
        lines = (str(self.folder), sysconfig.get_path("purelib"), BELOW)
        (packages / "copy.pth").write_text("\n".join(lines), encoding="utf-8")
        self.once = self.folder.parent / f"{self.folder.name}-once"
        shutil.rmtree(self.once, ignore_errors=True)
        self.once.mkdir()
        self.runner: subprocess.Popen[str] | None = None
        self.warm: subprocess.Popen[str] | None = None
        self.newer: list[str] = []  # tests that have not been traced
        self.sound: dict[str, bool] = {}  # whether a test passes without a mutant, in a fork of the warm process
        self.native = True  # the interpreter is to be compiled before the next test
        self.plain = b""  # digest of the interpreter without a mutant

    def _env(self) -> dict[str, str]:
        paths = {"PYTHONPATH": str(self.folder / "tests")}
        folder = self.folder.parent / f"{self.folder.name}-tmp"
        folder.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **paths, "PATH": path, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def compile(self, build: str = BUILD, flags: Sequence[str] = RELEASE, target: str = "_nmp") -> bool:
        """Only what has changed since the last time."""
        configure = ["cmake", "-S", ".", "-B", build, "-G", "Ninja", f"-DPython_EXECUTABLE={self.python}"]
        configure += ["-DNMP_INPLACE=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", *flags]
        commands = [["cmake", "--build", build, "--target", target, "--parallel", str(JOBS)]]
        if not (self.folder / build / "build.ninja").exists():
            commands.insert(0, configure)
        run = partial(subprocess.run, cwd=self.folder, capture_output=True, env=self._env(), check=False)
        return all(run(command).returncode == 0 for command in commands)

    def trace(self, folder: str) -> None:
        """Runs a folder of tests; without clang no functions of C are seen."""
        self.touches.mkdir(exist_ok=True)
        path = self.touches.absolute() / f"{folder}.part"
        path.unlink(missing_ok=True)
        self._unlink()
        env = {**self._env(), "NMP_TOUCHED": str(path)}
        if clang := shutil.which(CLANG):
            library = self.folder.parent / f"{self.folder.name}-counters.so"
            source = self.folder / "tests" / "mutation" / "counters.c"
            subprocess.run([clang, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
            if not self.compile("build/counting", (f"-DCMAKE_C_COMPILER={clang}", COUNTING)):
                raise RuntimeError(f"the interpreter cannot be compiled by {clang} in {self.folder}")
            env["LD_PRELOAD"] = str(library)
        quick = [word for word in QUICK if word != "-x"]
        command = [str(self.python), "-m", "pytest", *quick, "-p", "mutation.touched", f"tests/{folder}"]
        start = time.monotonic()
        done = subprocess.run(command, cwd=self.folder, env=env, stdout=subprocess.DEVNULL, check=False)
        if done.returncode not in ENDED:
            raise RuntimeError(f"the tests of tests/{folder} ended early, with status {done.returncode}")
        path.with_suffix(".below").unlink(missing_ok=True)
        path.touch()
        path.rename(path.with_suffix(".jsonl"))
        print(f"traced    {time.monotonic() - start:6.1f} s  tests/{folder}", flush=True)
        self._unlink()
        self.native = True

    def _unlink(self) -> None:
        """Has the interpreter linked anew, from another build."""
        for library in (self.folder / "nmpconv").glob("_nmp.*so"):
            library.unlink()

    @cached_property
    def chosen(self) -> Touches:
        return Touches(self.touches)

    def judge(self, mutant: Mutant, *, cold: bool = False) -> Verdict:
        """Tests it in a fork of a process that has collected all tests; in a new one where that cannot be, or if cold.
        The sources are as before, then."""
        if self.warm is None and not cold:
            self._start()
        start = time.monotonic()
        path = self.folder / mutant.file
        source, times = path.read_text(encoding="utf-8"), path.stat()
        native = not mutant.file.endswith(".py") and mutant.file.split("/")[2] not in UNLINKED
        functions = Functions(self.folder).around(mutant.file, mutant.line, self.chosen.names)
        traced = self.chosen.tests(functions, near(mutant.file))
        if native:
            exact = [test for test in traced if test.startswith(EXACT)][:CLOSE]
            traced = list(dict.fromkeys((*traced[:FEW], *exact, *traced[FEW:])))
        # What modules call as they are imported is seen of the first test alone.
        beside = untraced(self.folder, mutant.file, self.chosen.traced if len(traced) >= FEW else ())
        if mutant.file.endswith(".py") and len(functions) != 1:
            beside += CONSTANTS
        changed = mutant.applied(source)
        try:
            if mutant.file.endswith(".py"):
                compile(changed, mutant.file, "exec")
            path.write_text(changed, encoding="utf-8")
            newer = [test for test in self.newer if test.startswith(near(mutant.file))][:NEAR]
            early = FEW + NEAR if len(traced) > FEW else FEW
            traced = [*traced[:early], *newer, *traced[early:]]
            result, by = "cold", ""
            if not cold:
                early += len(newer)
                tests = (*traced[:early], *beside, *traced[early:MOST])
                result, by = self._warm_verdict(mutant.file, source, tests)
            if result == "cold":
                if native or self.native:
                    self.native = native
                    if not self.compile():
                        raise SyntaxError
                result, by = self._tested(mutant.file, traced, beside)
        except SyntaxError:
            result, by = "invalid", ""
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if native and self.plain:
                self._restore()
            for done in self.once.glob("*.done"):
                if not done.name.startswith(COMPILED):
                    done.unlink()
        return Verdict(result, by, round(time.monotonic() - start, 1))

    def _start(self) -> None:
        """Has all tests collected, with the interpreter as it is."""
        self._unlink()
        if not self.compile():
            raise RuntimeError(f"the interpreter cannot be compiled in {self.folder}")
        self.native = False
        self.archive = next((self.folder / BUILD).rglob("libnmp.a"))
        self.plain = hashlib.sha256(self.archive.read_bytes()).digest()
        shutil.rmtree(self.folder / PLAIN, ignore_errors=True)
        shutil.copytree(self.folder / BUILD, self.folder / PLAIN)
        (loaded,) = (self.folder / "nmpconv").glob("_nmp.*so")
        names = subprocess.check_output(["nm", "-g", "--defined-only", self.archive], text=True)
        ours = {name for _, name in NAMED.findall(names)}
        self.places = {name: place for name, place in _places(loaded).items() if name in ours}
        places = [f"tests/{name}" for name in folders(self.folder, COLD)]
        self.warm = self._process("mutation.warm", *places)
        assert self.warm.stdout
        collected = json.loads(self.warm.stdout.readline())["collected"]
        self.newer = sorted(set(collected) - self.chosen.known)
        print(f"collected {len(collected)} tests, of which {len(self.newer)} have not been traced", flush=True)

    def _restore(self) -> None:
        """Has what was compiled as it was, with its times, instead of compiling it anew."""
        for plain in (self.folder / PLAIN).rglob("*"):
            path = self.folder / BUILD / plain.relative_to(self.folder / PLAIN)
            if plain.is_file() and path.stat().st_mtime_ns != plain.stat().st_mtime_ns:
                shutil.copy2(plain, path)
        if self.native:
            self._unlink()

    def _warm_verdict(self, file: str, source: str, tests: Sequence[str]) -> tuple[str, str]:
        """cold where a new process is needed. Raises SyntaxError for C that does not compile."""
        if not tests:
            return "untouched", ""
        asked: dict = {"tests": tests, "seconds": self.limit}
        if file.endswith(".py"):
            asked |= {"file": file, "text": source}
        else:
            if file.split("/")[2] in UNLINKED:
                return "cold", ""
            if not self.compile(target="nmp"):
                raise SyntaxError
            if hashlib.sha256(self.archive.read_bytes()).digest() == self.plain:
                return "same", ""
            library = self.archive.with_name("changed.so")
            whole = ["-Wl,--whole-archive", self.archive, "-Wl,--no-whole-archive", "-lm"]
            subprocess.run(["cc", "-shared", "-o", library, *whole], check=True, capture_output=True)
            new = _places(library)
            entries = [(place, new[name]) for name, place in self.places.items() if name in new]
            asked |= {"library": str(library), "entries": entries}
        answer = _answered(self.warm, asked)
        failed = answer["failed"]
        if not answer["applied"] or failed == COLLECTING or (failed and not self._is_sound(failed)):
            return "cold", ""
        return ("killed", failed) if failed else ("limit" if answer["over"] or len(tests) >= MOST else "survived", "")

    def _is_sound(self, test: str) -> bool:
        """It fails by the mutant."""
        if test not in self.sound:
            self.sound[test] = not _answered(self.warm, {"tests": [test], "seconds": self.limit})["failed"]
        return self.sound[test]

    def _library(self) -> bytes:
        return b"".join(
            hashlib.sha256(path.read_bytes()).digest() for path in (self.folder / "nmpconv").glob("_nmp.*so")
        )

    def _tested(self, file: str, tests: Sequence[str], beside: Sequence[str]) -> tuple[str, str]:
        """Some tests first. beside: files and folders of tests, after these."""
        end = time.monotonic() + BUSY * self.limit
        tests = [test for test in tests if (self.folder / test.split("::")[0]).is_file()]  # the trace may be older
        if not tests and not beside:
            return "untouched", ""
        for batch in filter(None, (tests[:FEW], tests[FEW:MORE], beside, tests[MORE:MOST])):
            answer = self._answer(file, batch, end)
            if failed := answer.get("failed"):
                return "killed", failed
            if answer.get("over"):
                return "limit", ""
        return ("limit", "") if len(tests) > MOST else ("survived", "")

    def _answer(self, file: str, tests: Sequence[str], end: float) -> dict:
        self.runner = self.runner or self._process("mutation.runner")
        asked = {"tests": tests, "seconds": max(1.0, end - time.monotonic()), "once": file.endswith(".py")}
        return _answered(self.runner, asked)

    def _process(self, module: str, *words: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        env = {**self._env(), "NMP_ONCE": str(self.once)}
        return subprocess.Popen([str(self.python), "-m", module, *words], cwd=self.folder, env=env, **pipes)


def _answered(process: subprocess.Popen[str] | None, asked: dict) -> dict:
    assert process and process.stdin and process.stdout
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def _places(library: Path) -> dict[str, int]:
    """Addresses of its functions by name; of those of one name, one."""
    text = subprocess.check_output(["nm", "--defined-only", library], text=True)
    return {name: int(place, 16) for place, name in NAMED.findall(text)}


PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
