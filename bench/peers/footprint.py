"""Measures loading a model with one engine in a fresh process: reads a job, writes JSON with seconds and peak bytes.

The engine's package is imported before the clock starts; its memory counts, and so does numpy's, which all of them use.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from peers.job import Job, engine


def peak() -> int:
    """Bytes that this process has had resident at most (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("there is no VmHWM in /proc/self/status")


def measure(job: Job) -> dict[str, float]:
    """Loads what is prepared and runs it once. Raises whatever the engine raises."""
    chosen = engine(job.engine)
    start = time.perf_counter()
    session = chosen.open(job)
    seconds = time.perf_counter() - start
    session.result(np.array(np.load(job.samples, mmap_mode="r")[0]))
    return {"seconds": seconds, "peak": peak()}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(measure(Job.from_text(sys.stdin.readline()))), file=answers, flush=True)
