"""nmpconv.inspect, bench, bundle and export: what can be done with a .nmp file besides running and judging it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from nmpconv.api.file_argument import NmpFile, contents_of, data_of, net_of, sources
from nmpconv.api.keyword_checks import check, forgiving
from nmpconv.base.files import write_folder
from nmpconv.base.progress import Progress, reporter, silent
from nmpconv.base.quantities import scaled, size
from nmpconv.base.summary import Chart, Summarized, Summary
from nmpconv.conversion.option_types import Target
from nmpconv.data.samples import Data
from nmpconv.device import REOPEN_SECONDS
from nmpconv.errors import UsageError
from nmpconv.exporters.layouts import USUAL, Layout
from nmpconv.file import reader
from nmpconv.file.memory_map import Memory, memory
from nmpconv.runtime import benchmark, targets
from nmpconv.runtime.benchmark import Timing
from nmpconv.runtime.feed import given
from nmpconv.runtime.interpreter import Net, load

if TYPE_CHECKING:
    from nmpconv.runtime.on_device import Measured

RUNS_ON_DEVICE = 3  # simulated boards count the same every time


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


@dataclass(frozen=True, repr=False)
class Inspected(Summarized):
    """Contents of a file.

    model: tensors, ops, ports, metadata. ram: bytes that a run takes, by kind of machine. memory: the memory plan, with
    each op's scratch on the machine that was asked for or on the hungriest one; None where there is no op.
    instructions: of each op, estimated (`nmpconv.runtime.costs`), by microcontroller.
    """

    model: reader.Model
    ram: tuple[targets.Needs, ...]
    memory: Memory | None
    instructions: Mapping[str, tuple[int, ...]]

    def summary(self) -> Summary:
        model = self.model
        inputs, outputs = (
            " and ".join(f"{port.name} [{_dims(model.tensors[port.tensor].shape)}]" for port in ports)
            for ports in (model.inputs, model.outputs)
        )
        tiles = [
            ("file", size(model.file_bytes)),
            ("activations", size(model.arena_bytes)),
            ("work", f"{len(model.ops)} ops, {scaled(sum(op.macs for op in model.ops))}MAC"),
            *((f"instructions, {name}", scaled(sum(counts)).strip()) for name, counts in self.instructions.items()),
        ]
        rows = [(r["op"], r["name"], r["shape"], r["type"], scaled(r["macs"]).strip()) for r in self.records()]
        columns = ("op", "name", "output", "type", ">MACs")
        return Summary(f"Inspected {model.name}".rstrip(), f"{inputs} to {outputs}", tiles, "ops", columns, rows)

    def records(self) -> list[dict[str, Any]]:
        outputs = [self.model.tensors[op.outputs[0]] for op in self.model.ops]
        return [
            {"op": op.kind, "name": op.name, "shape": _dims(y.shape), "type": y.dtype, "macs": op.macs}
            | {f"instructions_{name}": each[i] for name, each in self.instructions.items()}
            for i, (op, y) in enumerate(zip(self.model.ops, outputs, strict=True))
        ]

    def chart(self) -> Chart:
        return Chart("MACs", [op.name for op in self.model.ops], [float(op.macs) for op in self.model.ops])


@forgiving()
def inspect(model: NmpFile, *, target: Target | None = None) -> Inspected:
    """Lists the contents of a .nmp file, and the needs of a run: on ``target``, or on every kind of machine.

    Raises ModelError for a refused file, InputError for one that cannot be read.

    For example:

        for need in nmpconv.inspect("model.nmp").ram:
            print(need.target, need.arena)
    """
    check(inspect, {"target": target})
    from nmpconv.runtime import costs  # it knows the ops, and with them onnx

    data, contents = contents_of(model)
    wanted = targets.TARGETS if target is None else (target,)
    ram = tuple(targets.needs(data, name) for name in wanted)
    instructions = {n: tuple(costs.estimated(data, n)) for n in wanted if n in targets.MICROCONTROLLERS}
    return Inspected(contents, ram, memory(contents, targets.scratch(data, target)), instructions)


@overload
def bench(
    model: NmpFile | Net,
    *,
    runs: int | None = None,
    warmup: int = 3,
    cpu: str | None = None,
    threads: int | None = None,
    device: None = None,
    wait: float = REOPEN_SECONDS,
    no_reset: bool = False,
    baud: int | None = None,
    data: Data | Mapping[str, Data] | None = None,
    progress: Progress | bool = silent,
) -> Timing: ...
@overload
def bench(
    model: NmpFile | Net,
    *,
    runs: int | None = None,
    warmup: int = 3,
    cpu: str | None = None,
    threads: int | None = None,
    device: str,
    wait: float = REOPEN_SECONDS,
    no_reset: bool = False,
    baud: int | None = None,
    data: Data | Mapping[str, Data] | None = None,
    progress: Progress | bool = silent,
) -> Measured: ...
@forgiving(input="data")
def bench(
    model: NmpFile | Net,
    *,
    runs: int | None = None,
    warmup: int = 3,
    cpu: str | None = None,
    threads: int | None = None,
    device: str | None = None,
    wait: float = REOPEN_SECONDS,
    no_reset: bool = False,
    baud: int | None = None,
    data: Data | Mapping[str, Data] | None = None,
    progress: Progress | bool = silent,
) -> Timing | Measured:
    """Measures the time of a run: on this machine (seconds, op by op), or on a device (its own ticks, op by op).

    runs: measured ones; None: two seconds' worth here, 3 on a device. warmup: runs before, that do not count. device:
    PORT[:baud], tcp:HOST:PORT or sim:BOARD; its outputs are verified against this machine's. wait: seconds in
    which a port that is lost is opened again. no_reset: DTR and RTS of a serial port are not set; default: by its USB
    vendor. baud: most bits a second that a board at a serial port is asked for; None: the most that both have. data:
    what it runs on, as for `nmpconv.evaluate`; without it random inputs, on a device the test vectors of the file.
    Raises ModelError, UsageError, InputError; with a device DeviceError, and MismatchError where its outputs are
    others.

    For example:

        timing = nmpconv.bench("model.nmp", runs=100)
        print(timing.quantile(0.5), "seconds")
    """
    check(bench, {"runs": runs, "warmup": warmup, "cpu": cpu, "threads": threads, "device": device, "wait": wait})
    check(bench, {"no_reset": no_reset, "baud": baud, "progress": progress})
    progress = reporter(progress)
    if device is None:
        net = net_of(model, cpu, threads)
        calls = None if data is None else given(net, sources(data))
        return benchmark.measure(net, runs=runs, warmup=warmup, sequences=calls, progress=progress)
    from nmpconv.device.connect import opened  # not loaded for this machine
    from nmpconv.runtime import on_device

    content = data_of(model)
    net = load(content, cpu=cpu)
    calls = on_device.sequences(net) if data is None else given(net, sources(data))
    with opened(device, progress, wait, no_reset=no_reset, baud=baud, model=content) as board:
        return on_device.measure(board, net, content, calls, runs=runs or RUNS_ON_DEVICE, progress=progress)


@forgiving()
def bundle(
    model: NmpFile | Sequence[NmpFile] | Mapping[str, NmpFile] | None = None,
    *,
    output: str | PathLike[str] | None = None,
    as_: Layout | None = None,
    name: str | None = None,
    tensors: bool = False,
) -> dict[str, bytes]:
    """The C sources of a firmware project with models in them: content by relative path.

    model: a file; several, or several by their names in C, share one interpreter; none: the interpreter alone, with all
    ops. output: a new or empty folder that they are written to. as_: the build system; default: a folder that CMake,
    Arduino and PlatformIO take. name: of the library in C and, of one model, of its symbols and macros; default: that
    of the file, or in the model. tensors: headers have scale, offset and range of all activations, by the number that
    `nmp_tensor_at` takes, not only of inputs and outputs.

    Raises ModelError for a file that no interpreter runs, UsageError for a name that C does not have, OutputError.

    For example:

        nmpconv.bundle("model.nmp", output="model-c")
    """
    check(bundle, {"as_": as_, "name": name, "tensors": tensors})
    from nmpconv.exporters import c_sources  # it knows the ops, and with them onnx

    layouts = USUAL if as_ is None else (as_,)
    files = c_sources.bundle(_named(model, name), name=name or "", layouts=layouts, tensors=tensors)
    if output is not None:
        write_folder(Path(output), files)
    return files


def _named(model: NmpFile | Sequence[NmpFile] | Mapping[str, NmpFile] | None, name: str | None) -> dict[str, bytes]:
    """Files by their names in C. name: of a single one. Raises UsageError for two of one name."""
    from nmpconv.exporters.c_sources import c_name

    if isinstance(model, Mapping):
        return {key: _runnable(file) for key, file in model.items()}
    many = list(model) if isinstance(model, Sequence) and not isinstance(model, str | bytes) else [model]
    models = [file for file in many if file is not None]
    contents: dict[str, bytes] = {}
    for file in models:
        data = _runnable(file)
        title = Path(file).stem if isinstance(file, str | Path) else reader.read(data).name
        key = name if name and len(models) == 1 else c_name(title)
        if key in contents:
            hint = "rename a file, or from Python give a mapping of names to files"
            raise UsageError(f"two models are called {key}", where="model", hint=hint)
        contents[key] = data
    return contents


@forgiving()
def export(model: NmpFile, *, to: Literal["onnx"] = "onnx") -> bytes:
    """The model as another kind of file. onnx: in float, with every tensor rounded by QuantizeLinear and
    DequantizeLinear; inputs and outputs are those of the model that was converted.

    Raises UnsupportedModel for an op whose float meaning a file does not hold, ModelError for a refused file.

    For example:

        Path("model.qdq.onnx").write_bytes(nmpconv.export("model.nmp"))
    """
    from nmpconv.exporters.qdq import to_onnx  # with it onnx

    check(export, {"to": to})
    return bytes(to_onnx(reader.read(_runnable(model))).SerializeToString(deterministic=True))


def _runnable(model: NmpFile) -> bytes:
    load(model if isinstance(model, str | Path) else data_of(model), cpu="portable")
    return data_of(model)
