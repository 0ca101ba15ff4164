"""nmpconv inspect: what a .nmp file holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.cli.memory_tables import show_memory
from nmpconv.cli.report_tables import preparation, show_ram
from nmpconv.errors import ModelError, NotBuilt, UsageError

if TYPE_CHECKING:
    from nmpconv.file.reader import FileOp, FilePort, FileTensor, Model

NAME = "inspect"
LISTED = 5  # labels that the table names
DIGEST, DIGITS = re.compile("[0-9a-f]{64}"), 16  # of SHA-256, and how many of its digits tell files apart
WIDE = 80  # columns from which on a digest stands beside its name


def command(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL.nmp...", help="A converted model; - is stdin; several: with --memory.", show_default=False
        ),
    ],
    tensors: Annotated[bool, typer.Option("--tensors", help="Also list the constants, not only activations.")] = False,
    memory_plan: Annotated[
        bool,
        typer.Option(
            "--memory", help="Draw the memory plan: tensor by step; of several models: what they need together."
        ),
    ] = False,
    target: Annotated[
        shared_flags.TargetChoice | None,
        typer.Option(help="Show RAM and instructions of a run there, and with --memory its scratch."),
    ] = None,
    json: shared_flags.Json = False,
) -> None:
    """Show inputs, ops, tensors and memory of a .nmp file.

    The file's origin and options are shown, too.

    \b
    Examples:
      nmpconv inspect model.nmp
      nmpconv inspect model.nmp --memory --target cortex-m4
      nmpconv inspect kws.nmp vww.nmp --memory
      nmpconv inspect model.nmp --json | jq '.tensors[] | select(.exponent != null) | .name'
    """
    machine = target and target.value
    if len(models) > 1:
        if not memory_plan or tensors:
            raise UsageError(
                f"{len(models)} files; --memory alone is about several", where="MODEL.nmp...", hint="name one of them"
            )
        from nmpconv.cli import memory_of_several

        files = [(path, shared_flags.file_or_stdin(path)) for path in models]
        memory_of_several.show(
            [(path, shared_flags.content(source), _read(source)) for path, source in files], machine, json
        )
        return
    source = shared_flags.file_or_stdin(models[0])
    model, data = _read(source), shared_flags.content(source)
    if not (json or memory_plan or machine):
        _show(model, tensors, (), None)
        return

    from nmpconv.runtime import costs, targets  # they know all ops, which take a tenth of a second

    if json:
        wanted = targets.TARGETS if machine is None else (machine,)
        ram = [asdict(targets.needs(data, name)) for name in wanted]
        counted = {name: costs.estimated(data, name) for name in wanted if name in targets.MICROCONTROLLERS}
        estimates = [{"target": name, "total": sum(ops), "ops": ops} for name, ops in counted.items()]
        console.as_json(
            {**_json(model, targets.scratch(data, machine)), "ram": ram, "estimated_instructions": estimates}
        )
        return
    if memory_plan:
        known = machine in targets.MICROCONTROLLERS
        show_memory(model, targets.scratch(data, machine), machine if known and machine else "the hungriest target")
    else:
        _show(model, tensors, costs.estimated(data, machine) if machine in targets.MICROCONTROLLERS else (), machine)
    if machine:
        show_ram([targets.needs(data, machine)])


def _read(source: Path | bytes) -> Model:
    """The model of a file that the interpreter takes; what it does not take is verified by the rules of Python, which
    know ops of a later version, and say more."""
    from nmpconv.file.reader import read
    from nmpconv.runtime.interpreter import needs

    data = shared_flags.content(source)
    try:
        needs(data)
    except (ModelError, NotBuilt):
        return read(source)
    return read(data, verified=True)


def _json(model: Model, scratch: Sequence[int]) -> dict[str, Any]:
    from nmpconv.file.memory_map import memory, to_json

    short = console.of_files([model])
    return {
        "format_version": f"{model.version[0]}.{model.version[1]}",
        "name": model.name,
        "file_bytes": model.file_bytes,
        "arena_bytes": model.arena_bytes,
        "weights_bytes": model.weights_bytes,
        "inputs": [_port_json(port, model) for port in model.inputs],
        "outputs": [_port_json(port, model) for port in model.outputs],
        "tensors": [{**_tensor_json(tensor), "short": short[tensor.name]} for tensor in model.tensors],
        "ops": [{**_op_json(op, model), "short": short[op.name]} for op in model.ops],
        "labels": list(model.labels),
        "metadata": model.metadata,
        "test_vectors": len(model.test_vectors),
        "memory": None if (plan := memory(model, scratch)) is None else to_json(model, plan),
    }


def _port_json(port: FilePort, model: Model) -> dict[str, Any]:
    tensor = model.tensors[port.tensor]
    return {
        "name": port.name,
        "tensor": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "exponent": _exponent(tensor.float_exponents or tensor.exponents),
        "exponent_axis": tensor.float_axis,
        "offsets": list(tensor.float_offsets),
        "mantissas": list(tensor.float_mantissas),
        "source_shape": list(port.source_shape),
        "pixels": port.pixels,
        "state": None if port.state is None else model.outputs[port.state].name,
        "start": port.start,
        "preprocess": None if port.preprocess is None else vars(port.preprocess),
    }


def _tensor_json(tensor: FileTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "exponent": _exponent(tensor.exponents),
        "float_exponent": _exponent(tensor.float_exponents or tensor.exponents),
        "origin": tensor.origin,
        "axis": tensor.axis,
        "clip_min": tensor.clip_min,
        "clip_max": tensor.clip_max,
        "observed_min": tensor.observed_min,
        "observed_max": tensor.observed_max,
        "calibration": tensor.method,
        "constant": tensor.data is not None,
        "offset": tensor.offset,
        "bytes": tensor.nbytes,
    }


def _op_json(op: FileOp, model: Model) -> dict[str, Any]:
    return {
        "kind": op.kind,
        "name": op.name,
        "inputs": [model.tensors[i].name for i in op.inputs],
        "outputs": [model.tensors[i].name for i in op.outputs],
        "params": op.params,
        "macs": op.macs,
    }


def _exponent(exponents: Sequence[int]) -> int | list[int]:
    """One number, or one per channel."""
    return exponents[0] if len(exponents) == 1 else list(exponents)


def _show(model: Model, constants: bool, instructions: Sequence[int], target: str | None) -> None:
    """instructions: of each op on the target; none where they are not known."""
    macs = sum(op.macs for op in model.ops)
    more = ", ..." if len(model.labels) > LISTED else ""
    console.facts(
        [
            ("name", model.name),
            ("format", f"{model.version[0]}.{model.version[1]}"),
            ("file", console.size(model.file_bytes)),
            ("constants", console.size(model.weights_bytes)),
            ("activations", console.size(model.arena_bytes)),
            ("work", f"{len(model.ops)} ops, {console.scaled(macs)}MAC"),
            (
                "instructions",
                f"about {console.scaled(sum(instructions))} on {target}, estimated" if instructions else "",
            ),
            ("labels", f"{len(model.labels)}: {', '.join(model.labels[:LISTED])}{more}" if model.labels else ""),
            ("test vectors", str(len(model.test_vectors) or "")),
            *(("pictures", preparation(port.preprocess)) for port in model.inputs if port.preprocess is not None),
        ]
    )
    short = console.of_files([model])
    columns = ("port", "name", "type", "shape", ">exponent", "in the ONNX model", "fed with")
    ports = [("input", port) for port in model.inputs] + [("output", port) for port in model.outputs]
    console.table(columns, [[kind, *_port_row(port, model)] for kind, port in ports], title="Inputs and outputs")
    about = [[f"{count}"] for count in instructions] or [[]] * len(model.ops)
    console.table(
        ("#", "op", "name", "output", "shape", ">MACs", *([">instructions, estimated"] if instructions else [])),
        [[*_op_row(i, op, model), *more] for (i, op), more in zip(enumerate(model.ops), about, strict=True)],
        title="Ops",
        short=short,
    )
    listed = [tensor for tensor in model.tensors if constants or tensor.data is None]
    in_float = any(tensor.float_exponents for tensor in listed)
    console.table(
        (
            *("tensor", "type", "shape", ">exponent", *([">in the float model"] if in_float else [])),
            *(">clip", ">origin", ">observed", "method"),
        ),
        [_tensor_row(tensor, in_float) for tensor in listed],
        title="Tensors" if constants else "Activations",
        short=short,
    )
    places = (">offset", ">bytes", "ops", "tensor", "place")
    console.table(places, _memory_rows(model), title="Memory map", short=short)
    if model.metadata:
        console.line("Origin")
        console.facts((name, _within_edge(_plainly(text))) for name, text in sorted(model.metadata.items()))


def _plainly(text: str) -> str:
    """Entries of a JSON object that say something, without its marks; with --verbose, and of any other text, all."""
    try:
        entries = None if console.Talk.verbose else loads(text)
        if not isinstance(entries, dict):
            return text
        pairs = ((key, value) for key, value in entries.items() if value)
        return ", ".join(key if value is True else f"{key} {_listed_plainly(value)}" for key, value in pairs)
    except (ValueError, RecursionError):
        return text


def _listed_plainly(value: object) -> str:
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False)


def _within_edge(text: str) -> str:
    """The text, or the beginning of a digest that is wider than the terminal: --json has all of it."""
    edge = console.columns()
    return f"{text[:DIGITS]}..." if DIGEST.fullmatch(text) and edge is not None and edge < WIDE else text


def _port_row(port: FilePort, model: Model) -> list[str]:
    tensor = model.tensors[port.tensor]
    fed = "pixel - 128" if port.pixels else ""
    if port.state is not None:
        fed = f"{model.outputs[port.state].name} of the last call, {port.start} at first"
    if (front := port.sound) is not None:
        numbers = f"{front.width} MFCC of " * bool(front.cepstrum) + f"{front.bands} bands"
        fed = f"sound at {front.rate} Hz: {numbers} of {len(front.window)} samples, every {front.hop}"
    elif tensor.float_offsets:
        fed = f"number - {_listed(tensor.float_offsets)}"
    if tensor.float_mantissas and port.sound is None:
        fed = f"({fed or 'number'}) / {_listed(tensor.float_steps)}"
    return [
        port.name,
        tensor.dtype,
        console.shape(tensor.shape),
        console.exponents(tensor.float_exponents or tensor.exponents),
        console.shape(port.source_shape) if port.source_shape else "",
        fed,
    ]


def _listed(numbers: Sequence[float]) -> str:
    return "/".join(f"{number:g}" for number in numbers[:LISTED]) + "/..." * (len(numbers) > LISTED)


def _op_row(index: int, op: FileOp, model: Model) -> list[str]:
    out = model.tensors[op.outputs[0]] if op.outputs else None
    macs = console.scaled(op.macs) if op.macs else console.NOTHING
    return [
        str(index),
        op.kind,
        op.name,
        out.dtype if out else "",
        console.shape(out.shape) if out else "",
        macs,
    ]


def _tensor_row(tensor: FileTensor, in_float: bool) -> list[str]:
    """in_float: there is a column for the exponents of the float model's numbers."""
    seen = console.NOTHING
    if tensor.observed_min is not None and tensor.observed_max is not None:
        seen = f"{tensor.observed_min:.4g}..{tensor.observed_max:.4g}"
    return [
        tensor.name,
        tensor.dtype,
        console.shape(tensor.shape),
        console.exponents(tensor.exponents),
        *([console.exponents(tensor.float_exponents or tensor.exponents)] if in_float else []),
        console.span(tensor.clip_min, tensor.clip_max),
        f"{tensor.origin:.4g}" if tensor.origin else console.NOTHING,
        seen,
        tensor.method or console.NOTHING,
    ]


def _memory_rows(model: Model) -> list[list[str]]:
    """Activations by offset: the ops between which each is alive, and where it lies in the arena."""
    producers = {i: n for n, op in enumerate(model.ops) for i in op.outputs}
    used = {i: n for n, op in enumerate(model.ops) for i in op.inputs}
    ends = {port.tensor for port in model.outputs}
    rows = []
    for i, tensor in sorted(
        enumerate(model.tensors), key=lambda item: (item[1].offset or 0, producers.get(item[0], -1))
    ):
        if tensor.offset is None:
            continue
        first = producers.get(i)
        last = None if i in ends else used.get(i, first)
        alive = f"{'start' if first is None else first}..{'end' if last is None else last}"
        rows.append([str(tensor.offset), str(tensor.nbytes), alive, tensor.name, _place(tensor, model.arena_bytes)])
    return rows


def _place(tensor: FileTensor, arena: int, width: int = 32) -> str:
    """The tensor's part of the arena as a picture, '.' where others may lie."""
    start = round((tensor.offset or 0) / max(arena, 1) * width)
    length = max(round(tensor.nbytes / max(arena, 1) * width), 1)
    start = min(start, width - 1)
    return "".join("#" if start <= i < start + length else "." for i in range(width))
