"""A copy of the checkout, in which one mutant at a time is compiled and tested."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mutation.order import first, near, rest
from mutation.sites import Mutant

# These read sources as text, so that any change may fail them.
OF_TEXT = ("tests/mutation", "tests/documents", "tests/test_budget.py", "tests/test_layering.py")
QUICK = ("-q", "-x", "-m", "not slow and not zoo", "-p", "no:cacheprovider", "-p", "mutation.watch")
UNNAMED = "the collection of tests"


@dataclass(frozen=True)
class Verdict:
    """result: killed, survived (all tests passed), limit (those that ran within the time passed), or invalid (it does
    not compile). by: the test that failed.
    """

    result: str
    by: str
    seconds: float


@dataclass
class Copy:
    """folder: of the copy, made anew. nearby: run the tests of the same folder alone.

    broken: tests that fail in the copy without a mutant, which do not count; sound: those that do not.
    """

    root: Path
    folder: Path
    limit: float
    nearby: bool = False
    broken: set[str] = field(default_factory=set)
    sound: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        command = ["git", "clone", "--quiet", "--local", str(self.root), str(self.folder)]
        subprocess.run(command, check=True)
        listed = ["git", "ls-files", "--modified", "--others", "--exclude-standard"]
        for name in subprocess.run(
            listed, cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.splitlines():
            if (self.root / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.root / name, self.folder / name)
            else:
                (self.folder / name).unlink(missing_ok=True)
        venv = self.folder / ".venv"
        base = getattr(sys, "_base_executable", sys.executable)
        subprocess.run([base, "-m", "venv", "--without-pip", venv], check=True)
        self.python = venv / "bin" / "python"
        packages = Path(subprocess.check_output([self.python, "-c", PACKAGES], text=True).strip())
        # The copy comes before what is installed.
        (packages / "copy.pth").write_text(f"{self.folder}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        build = [
            "cmake",
            "-S",
            ".",
            "-B",
            "build/mutant",
            "-G",
            "Ninja",
            "-DNMP_INPLACE=ON",
            "-DCMAKE_BUILD_TYPE=Release",
        ]
        build += ["-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG", f"-DPython_EXECUTABLE={self.python}"]
        subprocess.run(build, cwd=self.folder, check=True, capture_output=True, env=self._env())
        if not self.compile():
            raise RuntimeError(f"the interpreter cannot be compiled in {self.folder}")
        check = [self.python, "-m", "pytest", *QUICK, "--collect-only", "tests"]
        subprocess.run(check, cwd=self.folder, check=True, capture_output=True, env=self._env())

    def _env(self) -> dict[str, str]:
        paths = {"PYTHONPATH": str(self.folder / "tests"), "NMP_LAST_TEST": str(self.folder / "build" / "last_test")}
        folder = self.folder.parent / f"{self.folder.name}-tmp"
        folder.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **paths, "PATH": path, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def compile(self) -> bool:
        command = ["cmake", "--build", "build/mutant", "--target", "_nmp"]
        return (
            subprocess.run(command, cwd=self.folder, capture_output=True, env=self._env(), check=False).returncode == 0
        )

    def judge(self, mutant: Mutant) -> Verdict:
        """Compiles and tests it. The copy is as before, then."""
        start = time.monotonic()
        path = self.folder / mutant.file
        source = path.read_text(encoding="utf-8")
        native = not mutant.file.endswith(".py")

        def exchange(text: str) -> bool:
            path.write_text(text, encoding="utf-8")
            return not native or self.compile()

        changed = mutant.applied(source)
        try:
            if not native:
                compile(changed, mutant.file, "exec")
            result, by = self._tested(mutant, lambda: exchange(source), lambda: exchange(changed))
        except SyntaxError:
            result, by = "invalid", ""
        finally:
            exchange(source)
        return Verdict(result, by, round(time.monotonic() - start, 1))

    def _tested(self, mutant: Mutant, before: Callable[[], bool], after: Callable[[], bool]) -> tuple[str, str]:
        if not after():
            return "invalid", ""
        end = time.monotonic() + self.limit
        close = near(self.folder, mutant.file)
        stages = [first(mutant.file), close[:1], close[1:]]  # to collect many tests takes long
        if not self.nearby:
            stages.append(rest(self.folder, mutant.file))
        for tests in stages:
            while (failed := self._failing(tests, end)) not in ("", UNNAMED):
                if failed not in self.sound:
                    before()
                    (self.broken if self._failing([failed], time.monotonic() + self.limit) else self.sound).add(failed)
                    after()
                if failed in self.sound:
                    break
            if failed:
                return "killed", failed
            if time.monotonic() >= end:
                return "limit", ""
        return "survived", ""

    def _failing(self, tests: Sequence[str], end: float) -> str:
        """The first test that fails; '' if none does until then."""
        last = self.folder / "build" / "last_test"
        last.unlink(missing_ok=True)
        tests = [test for test in tests if not test.startswith(OF_TEXT)]
        if not tests:
            return ""
        aside = [word for test in sorted(self.broken) for word in ("--deselect", test)]
        command = [str(self.python), "-m", "pytest", *QUICK, *aside, *tests]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self._env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(1.0, end - time.monotonic()))
        finally:
            stopped = process.poll() is None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what its tests started
            process.wait()
        if stopped or process.returncode in (0, 5):  # 5: no test was selected
            return ""
        return last.read_text(encoding="utf-8") if last.exists() else UNNAMED


PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
