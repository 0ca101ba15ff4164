"""nmpconv compare: a device against this machine, op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nmpconv.cli import options, show
from nmpconv.errors import MismatchError

if TYPE_CHECKING:
    from nmpconv.run.ondevice import Difference
    from nmpconv.run.runtime import Net

NAME = "compare"


def command(
    model: options.ModelFile,
    device: Annotated[
        str, typer.Option("--device", metavar=options.DEVICE_NAME, help="The device.", show_default=False)
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]SOURCE", help="Inputs; default: the file's test vectors, or random ones."),
    ] = None,
    wait: options.Wait = 10.0,
    json: options.Json = False,
) -> None:
    """Compare every op's result on a device with this machine's, bit by bit; exit code 4 at the first that differs.

    \b
    Example:
      nmpconv compare model.nmp --device sim:mps2-an386
    """
    from nmpconv.device.connect import opened
    from nmpconv.run import ondevice
    from nmpconv.run.feed import given
    from nmpconv.run.runtime import load

    source = options.given(model)
    net = load(source)
    chosen = options.sources(data or (), "--data")
    cases = [case for calls in given(net, chosen) for case in calls] if data else ondevice.cases(net)
    with show.progress() as progress, opened(device, progress, wait) as found:
        ondevice.load(found, net, options.content(source))
        for i, case in enumerate(cases):
            first = ondevice.first_difference(found, net, case)
            if first is not None:
                raise _mismatch(net, i, *first, where=device)
            progress("compare", i + 1, len(cases))
    ops = len(net.model.ops)
    if json:
        show.as_json({"device": device, "inputs": len(cases), "ops": ops, "equal": True})
    else:
        show.line(f"{ops} ops on {len(cases)} input(s): the same bytes on {device} as here")


def _mismatch(net: Net, case: int, op: int, difference: Difference, *, where: str) -> MismatchError:
    """case: which input it was."""
    name = net.model.ops[op].name
    error = MismatchError(f"input {case}, op {op} {name!r}: {difference}", where=where)
    error.difference = {
        "input": case,
        "op": op,
        "name": name,
        "tensor": net.model.tensors[difference.tensor].name,
        "differ": difference.count,
        "values": difference.size,
        "first": [{"index": k, "device": got, "host": wanted} for k, got, wanted in difference.first],
    }
    return error
