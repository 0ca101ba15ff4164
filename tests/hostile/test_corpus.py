"""Every file of the corpus ends in a refusal with its place, soon, in little memory, and never in a traceback."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hostile import corpus_data, corpus_onnx
from hostile.cases import Case

from nmpconv.errors import ExitCode

CASES = [*corpus_onnx.CASES, *corpus_data.CASES]
SECONDS = 20  # alone a refusal takes below two; tests run beside others
MEMORY = 512 * 2**20  # of the process, besides what Python and the libraries take
REFUSED = {ExitCode.USAGE, ExitCode.INPUT, ExitCode.UNSUPPORTED, ExitCode.MODEL}


def _run(command: list[str], folder: str, to: Connection) -> None:
    """In a process of its own: with a limit of memory, and the output in files."""
    from nmpconv import cli

    os.chdir(folder)
    os.environ["PATH"] = folder  # where a program that must not be started would be looked for
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2 * MEMORY, resource.RLIM_INFINITY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    code = cli.main(command)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    to.send((int(code), time.process_time() - start, used * 1024))


@pytest.fixture(scope="module")
def server() -> multiprocessing.context.ForkServerContext:
    """Forks processes that have the libraries loaded and no threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["nmpconv.cli", "nmpconv.conversion.pipeline", "nmpconv.runtime.interpreter", "hostile.test_corpus"]
    )
    return context


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_refused(case: Case, tmp_path: Path, server: multiprocessing.context.ForkServerContext) -> None:
    command = case(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    answer, to = server.Pipe(duplex=False)
    process = server.Process(target=_run, args=(command, str(tmp_path), to))
    process.start()
    to.close()
    process.join(SECONDS)
    ended = process.exitcode is not None
    if not ended:
        process.kill()
    assert ended, "it does not end"
    assert answer.poll(), f"it died: {process.exitcode}"
    code, seconds, memory = answer.recv()
    told = (tmp_path / "stderr").read_text()
    assert code in REFUSED, told
    assert f"\n{told}".count("\nerror: ") == 1
    assert "bug of nmpconv" not in told and "Warning" not in told and "Traceback" not in told
    assert all(c.isprintable() or c == "\n" for c in told)
    assert len(told) < 20_000
    assert seconds < 5 and memory < MEMORY, (seconds, memory)
    left = {path.name for path in tmp_path.iterdir()} - before - {"stdout", "stderr"}
    assert not left, left
