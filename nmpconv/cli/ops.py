"""nmpconv ops: what can be converted."""

from __future__ import annotations

from typing import Annotated

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.errors import UsageError

NAME = "ops"


def command(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    json: shared_flags.Json = False,
) -> None:
    """List the ops and the ONNX types they cover.

    Each with the widths that it computes in, and its restrictions.

    The last row has the operators of TFLite that are read.

    \b
    Examples:
      nmpconv ops
      nmpconv ops --markdown > OPS.md
    """
    if markdown and json:
        raise UsageError("--markdown and --json exclude each other")

    from nmpconv.frontend.expand import ALWAYS  # numpy is not loaded for --help
    from nmpconv.frontend.integer_operators import KINDS
    from nmpconv.frontend.onnx import WITH_GRAPHS
    from nmpconv.frontend.tflite import inner_graphs, variables
    from nmpconv.frontend.tflite.operators import WRITERS
    from nmpconv.ops import OPS

    tflite = sorted({*WRITERS, *variables.KINDS, *inner_graphs.KINDS})
    composed = sorted((*ALWAYS, *KINDS, *WITH_GRAPHS), key=lambda kind: (kind.rpartition(".")[0], kind))

    if json:
        rows = [
            {
                "op": op.name,
                "onnx": list(op.onnx),
                "int8": True,
                "int16": not op.narrow,
                "restrictions": op.restrictions,
            }
            for op in OPS.values()
        ]
        console.as_json({"ops": rows, "composed": composed, "tflite": tflite})
        return
    # The tests of each op's cases hold it to its widths.
    table = [
        [
            op.name,
            ", ".join(op.onnx) or f"({op.source})",
            "yes",
            "no" if op.narrow else "yes",
            op.restrictions,
        ]
        for op in OPS.values()
    ]
    table.append(["(several of these)", ", ".join(composed), "yes", "yes", ""])
    table.append(["(of .tflite files)", ", ".join(tflite), "yes", "yes", ""])
    columns = ("op", "ONNX types", "int8", "int16", "restrictions")
    if markdown:
        for row in (columns, ["---"] * len(columns), *table):
            console.line(f"| {' | '.join(row)} |".replace("|  |", "| |"))
    else:  # the longest cells last: they widen no column of a pipe
        order = (0, 2, 3, 4, 1)
        console.table([columns[i] for i in order], [[row[i] for i in order] for row in table])
