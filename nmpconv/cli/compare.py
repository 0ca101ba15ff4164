"""nmpconv compare: a device against this machine, op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.errors import MismatchError

if TYPE_CHECKING:
    from nmpconv.runtime.interpreter import Net
    from nmpconv.runtime.on_device import Difference

NAME = "compare"


def command(
    model: shared_flags.ModelFile,
    device: Annotated[
        str, typer.Option("--device", metavar=shared_flags.DEVICE_NAME, help="The device.", show_default=False)
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]SOURCE", help="Inputs; default: the file's test vectors, or random ones."),
    ] = None,
    wait: shared_flags.Wait = 10.0,
    no_reset: shared_flags.NoReset = False,
    baud: shared_flags.Baud = None,
    json: shared_flags.Json = False,
) -> None:
    """Compare each op on a device with this machine.

    Results are compared bit by bit; exit code 4 at the first that differs.

    \b
    Example:
      nmpconv compare model.nmp --device sim:mps2-an386
    """
    from nmpconv.device.connect import opened
    from nmpconv.runtime import on_device
    from nmpconv.runtime.feed import given
    from nmpconv.runtime.interpreter import load

    source = shared_flags.file_or_stdin(model)
    net = load(source)
    chosen = shared_flags.sources(data or (), "--data")
    cases = [case for calls in given(net, chosen) for case in calls] if data else on_device.cases(net)
    content = shared_flags.content(source)
    with (
        console.progress() as progress,
        opened(device, progress, wait, no_reset=no_reset, baud=baud, model=content) as board,
    ):
        on_device.load(board, net, content)
        for i, case in enumerate(cases):
            first = on_device.first_difference(board, net, case)
            if first is not None:
                raise _mismatch(net, i, *first, where=device)
            progress("compare", i + 1, len(cases))
    ops = len(net.model.ops)
    if json:
        same = {"device": device, "inputs": len(cases), "ops": ops, "equal": True}
        console.as_json({**same, "warnings": board.warnings})
        return
    console.line(f"{ops} ops on {len(cases)} input(s): the same bytes on {device} as here")
    for text in board.warnings:
        console.line(f"warning: {text}")


def _mismatch(net: Net, case: int, op: int, difference: Difference, *, where: str) -> MismatchError:
    """case: which input it was."""
    name, tensor = net.model.ops[op].name, net.model.tensors[difference.tensor].name
    short = console.of_files([net.model])
    shown = name if console.Talk.verbose else short[name]
    error = MismatchError(f"input {case}, op {op} {shown!r}: {difference}", where=where)
    error.difference = {
        "input": case,
        "op": op,
        "name": name,
        "short": short[name],
        "tensor": tensor,
        "differ": difference.count,
        "values": difference.size,
        "first": [{"index": k, "device": got, "host": wanted} for k, got, wanted in difference.first],
    }
    return error
