"""Fixtures that the tests share: optional tools, the model zoo, the samples."""

from __future__ import annotations

import fcntl
import gc
import io
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import installed_ops  # noqa: F401
import json_schemas
import onnxruntime
import pytest
from board_programs import board_compiler
from c_core import C99, PORTABLE, SANITIZE, WARNINGS, Library, Once, compiled, library

from nmpconv.cli import console, main
from nmpconv.device import simulator

gc.disable()  # until the tests are collected: what is imported and collected stays
ROOT = Path(__file__).resolve().parent.parent
OLD = "1.23."  # of onnxruntime: the newest for Python 3.10
# What it has not or gets wrong, so that it cannot be compared with.
LACKS = {
    "test_expand.py": ("Swish", "AveragePool/ceil", "Attention/hidden row"),
    "test_expand_products.py": ("Einsum/one",),
    "test_fuzz_models.py": ("rows of equals",),
    "test_lowering.py": ("average pool/counted/11",),
    "test_qdq.py": ("average_pool",),
    "test_random_graphs.py": ("0",),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what the code makes now into the golden files")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what has no slow test where these are asked for: collecting all takes every worker 18 CPU seconds."""
    if not config.getoption("-m").startswith("slow") or not collection_path.match("test_*.py"):
        return None
    return "mark.slow" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Wheels first: they share minutes of one compilation, for which the other workers would wait at the end."""
    items.sort(key=lambda item: item.path.parent.name != "wheels")


def pytest_collection_finish() -> None:
    """Collections of garbage from here on leave out the tests themselves, which are most of all objects."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests counted: their property "summary"."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "summary" and report.when == "call":
                    terminalreporter.write_line(value)


@pytest.fixture(autouse=True)
def comparable(request: pytest.FixtureRequest) -> None:
    cases = LACKS.get(request.path.name, ())
    if onnxruntime.__version__.startswith(OLD) and request.node.name.endswith(tuple(f"[{case}]" for case in cases)):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has it not, or wrong")


@pytest.fixture(autouse=True)
def conforming(monkeypatch: pytest.MonkeyPatch, bless: bool) -> Iterator[None]:
    """Whatever a test prints with --json in this process is as the schemas in docs/reference/json say."""
    found: list[str] = []
    print_json = console.as_json

    def checked(value: Mapping[str, Any]) -> None:
        name, text = json_schemas.name_of(sys._getframe(1)), io.StringIO()
        with redirect_stdout(text):
            print_json(value)
        wrong = [] if bless else json_schemas.problems(json.loads(text.getvalue()), json_schemas.schema(name))
        found.extend(f"{name}: {one}" for one in wrong)
        print(text.getvalue(), end="")

    monkeypatch.setattr(console, "as_json", checked)
    yield
    assert not found, "\n".join(found)


@pytest.fixture(scope="session")
def bless(request: pytest.FixtureRequest) -> bool:
    """True where golden files are to be rewritten instead of compared with."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def samples(root: Path) -> Path:
    """The folder of sample models."""
    return root / "samples"


@pytest.fixture(scope="session")
def need_tool() -> Callable[..., str]:
    """need_tool(name, ...): the path of the first of these programs that is there.

    Without any the test is skipped; where NMP_CI is set it fails, for in CI nothing is optional.
    """

    def find(*names: str) -> str:
        for name in names:
            if path := shutil.which(name):
                return path
        missing(" or ".join(names))

    return find


@pytest.fixture(scope="session")
def need_file() -> Callable[[str], None]:
    """need_file(path): skips or fails as `need_tool` where there is no such file."""

    def find(path: str) -> None:
        if not Path(path).exists():
            missing(path)

    return find


@pytest.fixture(scope="session")
def need_package() -> Callable[..., None]:
    """need_package(name, ...): skips or fails as `need_tool` where one of these Python packages is not installed."""

    def find(*names: str) -> None:
        for name in names:
            if find_spec(name) is None:
                missing(name)

    return find


def missing(need: str) -> NoReturn:
    message = f"needs {need}"
    if os.environ.get("NMP_CI"):
        pytest.fail(f"{message}, and in CI nothing is optional")
    pytest.skip(message)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """once(name, fill): a folder that `fill` was called with, in one of all processes of the run; of all runs with the
    same folder NMP_ONCE, between which no source changes."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    base = Path(os.environ.get("NMP_ONCE") or base)

    def filled(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = base / name, base / f"{name}.done"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
                done.touch()
        return folder

    return filled


@pytest.fixture(scope="session")
def op_files(once: Once) -> dict[str, Path]:
    """Files of all op cases, by their ids, with what the reference makes of their inputs; written once."""
    import op_cases

    folder = once("op-files", op_cases.write_files)
    return {case.id: op_cases.file_of(folder, case) for case in op_cases.CASES}


@pytest.fixture(scope="session")
def sanitized(root: Path, once: Once, need_tool: Callable[..., str]) -> Callable[..., Library]:
    """sanitized(): the interpreter under AddressSanitizer and UndefinedBehaviorSanitizer, with all levels of this
    machine; sanitized(portable=True): with the portable one, as on boards, not optimized, which takes a tenth of the
    time to build."""

    def found(*, portable: bool = False) -> Library:
        compiler = need_tool("gcc", "clang", "clang-16")
        flags = [*C99, *WARNINGS, *SANITIZE, *(*PORTABLE, "-O0") * portable]
        folder = once(f"sanitized{'-portable' * portable}", lambda folder: compiled(root, folder, compiler, *flags))
        return library(root, folder, compiler, flags)

    return found


@pytest.fixture(scope="session")
def firmware(root: Path, once: Once, need_tool: Callable[..., str]) -> Callable[..., Path]:
    """firmware(board): what runs on a board, with all ops; firmware(board, ops): with these."""

    def build(board: str, ops: str = "") -> Path:
        need_tool(board_compiler(board))
        if board in simulator.MACHINES:
            need_tool(simulator.MACHINES[board].program)
        name = f"{board}-{zlib.crc32(ops.encode()):08x}" if ops else board

        def make(out: Path) -> None:
            command = ["make", "-s", "-C", root / "interpreter" / "firmware", f"BOARD={board}", f"OUT={out}"]
            subprocess.run([*command, f"NAME={name}", f"OPS={ops}"], check=True, capture_output=True)

        return once(f"firmware-{name}", make) / f"{name}.elf"

    return build


@pytest.fixture(scope="session")
def agent(once: Once, need_tool: Callable[..., str]) -> Path:
    """The firmware as a program on this machine, with portable kernels as a board has one level; built.json beside it
    is what the command prints. NMP_AGENT_MEMORY names the file that is its model's memory."""
    need_tool("gcc")
    need_tool("make")

    def build(out: Path) -> None:
        with redirect_stdout(io.StringIO()) as output:
            assert main(["device", "build", "host", "-o", f"{out}/host.elf", "--json"]) == 0
        (out / "built.json").write_text(output.getvalue())

    return once("agent", build) / "host.elf"


@pytest.fixture(scope="session")
def zoo(root: Path) -> Path:
    """Third-party models and images; tests that use them are marked `zoo`, and skipped where there are none."""
    path = Path(os.environ.get("NMP_ZOO") or root.parent / "shared" / "zoo")
    if not (path / "zoo.json").is_file():
        pytest.skip(f"no model zoo at {path} (set NMP_ZOO)")
    return path
