"""CPUs that are awake while nobody works: a virtual one that sleeps comes back milliseconds late."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

SPIN = """
import os, sys
cpu, parent = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, {cpu})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == parent:
    pass
"""


@contextmanager
def awake() -> Iterator[None]:
    """A process that spins on each CPU; Linux runs it where nothing else wants to run (SCHED_IDLE). It ends with us."""
    with ExitStack() as stack:
        for cpu in os.sched_getaffinity(0):
            process = subprocess.Popen([sys.executable, "-c", SPIN, str(cpu), str(os.getpid())])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
