"""Instructions per number of the ops of attention on simulated microcontrollers: `make bench-mcu-ops`.

Each op is counted alone, as `make costs` counts. A number is a multiply-accumulate of batch_matmul and an element of
softmax and normalize (LayerNormalization). int8 is `--strict`; int16 is `--bits 16`.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

import cost_cases
import costs
import numpy as np
import onnx

from nmpconv.cli import console
from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import plan
from nmpconv.file import reader

TARGETS = {"cortex-m4": "M4", "cortex-m55": "M55", "rv32": "rv32"}
WIDTHS = {"int8": Options(bits="8", widths="strict"), "int16": Options(bits="16")}
KINDS = ("batch_matmul", "softmax", "normalize")
PRODUCTS = ((49, 32, 49), (49, 49, 32), (64, 64, 64))  # rows, products of a sum, columns
LINES = ((49, 49), (64, 64), (16, 196))


def cases() -> tuple[cost_cases.Ops, list[tuple[str, str, int]]]:
    """The model, and of each of its ops kind, shape and numbers."""
    ops, about = cost_cases.Ops(0), []
    for m, k, n in PRODUCTS:
        ops.add("MatMul", ((1, m, k), (1, k, n)))
        about.append(("batch_matmul", f"{m} x {k} x {n}", m * k * n))
    for shape in LINES:
        ops.add("Softmax", ((1, *shape),), axis=-1)
        about.append(("softmax", " x ".join(map(str, shape)), math.prod(shape)))
    for shape in LINES:
        ones = np.ones(shape[-1], np.float32)
        ops.add("LayerNormalization", ((1, *shape),), ones, ones / 8)
        about.append(("normalize", " x ".join(map(str, shape)), math.prod(shape)))
    return ops, about


def counted() -> dict[tuple[str, str], list[float]]:
    """Instructions per number by op and shape: a column for each width and target."""
    ops, about = cases()
    columns: dict[tuple[str, str], list[float]] = {(kind, shape): [] for kind, shape, _ in about}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ops.onnx"
        onnx.save(ops.model(), path)
        models = {width: plan(path, options).data for width, options in WIDTHS.items()}
    for target in TARGETS:
        costs.firmware(target)
    for width, data in models.items():
        kinds = [op.kind for op in reader.read(data).ops]
        for target in TARGETS:
            instructions = costs.counts(target, f"attention-{width}", data, reuse=False)
            counts = [(kind, n) for kind, n in zip(kinds, instructions, strict=True) if kind in KINDS]
            for (kind, shape, numbers), (other, count) in zip(about, counts, strict=True):
                if kind != other:
                    raise RuntimeError(f"a {kind} became {other}")
                columns[kind, shape].append(count / numbers)
    return columns


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    costs.OUT.mkdir(parents=True, exist_ok=True)
    columns = [f">{name}, {width}" for width in WIDTHS for name in TARGETS.values()]
    rows = [[*key, *(f"{value:.3g}" for value in values)] for key, values in counted().items()]
    console.table(("op", "shape", *columns), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
