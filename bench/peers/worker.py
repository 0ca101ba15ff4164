"""One engine with one model in a process of its own: prepares and loads it, then runs as many inferences as it is told.

Reads a job and then numbers, one a line; writes JSON, one object a line. What libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO

from peers.job import Job, Session, Unavailable, engine


def batch(session: Session, calls: int) -> tuple[float, float]:
    """Seconds of so many inferences, and CPU seconds of all threads of this process meanwhile."""
    call = session.call
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call()
    return time.perf_counter() - start, time.process_time() - busy


def load(job: Job) -> tuple[Session, dict[str, Any]]:
    """The session, and what the parent is told of it."""
    chosen = engine(job.engine)
    os.makedirs(job.folder, exist_ok=True)
    chosen.prepare(job)
    session = chosen.open(job)
    outputs = [session.result(sample).ravel().tolist() for sample in job.inputs]
    return session, {"version": chosen.version(), "kernels": session.kernels(), "outputs": outputs}


def main(out: TextIO) -> int:
    job = Job.from_text(sys.stdin.readline())
    try:
        session, about = load(job)
    except Exception as error:  # whatever a peer raises, the parent tells it and goes on
        if not isinstance(error, Unavailable):
            import traceback

            traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        print(json.dumps({"error": f"{type(error).__name__}: {text[0][:200]}"}), file=out, flush=True)
        return 1
    print(json.dumps(about), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(batch(session, int(line))), file=out, flush=True)
    return 0


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.exit(main(answers))
