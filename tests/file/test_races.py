"""Whole runs with several threads under ThreadSanitizer: ops that share their work, and ops that are run together."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nets
import pytest
from c_core import C99, Once, compiled, includes, sources
from test_threads import mixed_net, plain_net, wide_net
from test_together import TOGETHER, late, residual, strided

from nmpconv.file.writer import to_bytes
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

pytestmark = pytest.mark.slow

LEVEL = "avx2"
ABOVE = ("avxvnni", "avx512", "amx")  # levels that are not run
TSAN = ("-fsanitize=thread", "-pthread")
SECONDS = 0.002  # of each measurement of bench_run


@pytest.fixture(scope="module")
def programs(root: Path, once: Once, tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[..., str]) -> Path:
    """Programs with all that the level runs under the sanitizer; kernels of levels above are not run."""
    compiler, folder = need_tool("gcc"), tmp_path_factory.mktemp("races")
    plain = once("plain", lambda out: compiled(root, out, need_tool("gcc", "clang"), *C99))
    above = [path for path in sources(root, "arch/x86") if any(level in path.stem for level in ABOVE)]
    watched = [path for path in sources(root) if path not in above]

    def compile_one(source: Path) -> Path:
        to = folder / f"{source.parent.name}-{source.stem}.o"
        subprocess.run([compiler, *C99, *TSAN, *includes(root), "-c", source, "-o", to], check=True)
        return to

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, watched))
    objects += [plain / f"{path.parent.name}-{path.stem}.o" for path in above]
    flags = ["-std=c++17", "-O1", "-g", *TSAN, f"-DSECONDS={SECONDS}", *includes(root)]
    for name in ("bench_run", "test_copies"):
        source = root / "interpreter" / "tests" / f"{name}.cpp"
        subprocess.run([need_tool("g++"), *flags, source, *objects, "-o", folder / name], check=True)
    return folder


@pytest.mark.skipif(LEVEL not in interpreter.cpus(), reason=f"this machine has no {LEVEL}")
@pytest.mark.parametrize("bits", [8, 16])
def test_no_races(programs: Path, tmp_path: Path, bits: int) -> None:
    assert LEVEL in TOGETHER
    graphs = [net(bits) for net in (wide_net, plain_net, mixed_net)]
    graphs += [plan(net(bits)[0]) for net in (residual, strided, late) for plan in (nets.placed, plan_memory.run)]
    for i, graph in enumerate(graphs):
        path = tmp_path / f"{i}.nmp"
        path.write_bytes(to_bytes(graph, {}))
        command = [programs / "bench_run", path, LEVEL, "3", "ops", "all"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert LEVEL in done.stdout


@pytest.mark.skipif(LEVEL not in interpreter.cpus(), reason=f"this machine has no {LEVEL}")
def test_a_net_of_many_threads_and_its_copies(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.nmp"
    path.write_bytes(to_bytes(wide_net(8), {}))
    environment = {**os.environ, "TSAN_OPTIONS": "die_after_fork=0"}
    command = [programs / "test_copies", path, LEVEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 failures\n", "")
