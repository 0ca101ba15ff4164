"""One quantizer with one model in a process of its own: reads a job, writes the outputs and a line of JSON.

The job is JSON, in one line: quantizer and setting (of `quantizers`), model, calib and test (.npy of stacked inputs),
folder, and outputs, the .npz that is written: o0, o1 and so on, stacked.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import TextIO

import numpy as np

from accuracy.quantizers import QUANTIZERS


def main(out: TextIO) -> int:
    job = json.loads(sys.stdin.readline())
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run, about = QUANTIZERS[job["quantizer"]](Path(job["model"]), np.load(job["calib"]), folder, job["setting"])
        rows = [run(sample) for sample in np.load(job["test"], mmap_mode="r")]
    except Exception as error:  # whatever a peer raises, the parent tells it and goes on
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        print(json.dumps({"error": f"{type(error).__name__}: {text[0][:200]}"}), file=out, flush=True)
        return 1
    np.savez(job["outputs"], **{f"o{i}": np.stack(column) for i, column in enumerate(zip(*rows, strict=True))})
    print(json.dumps({"version": about}), file=out, flush=True)
    return 0


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.exit(main(answers))
