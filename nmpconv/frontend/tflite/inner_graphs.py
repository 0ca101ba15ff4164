"""Operators that run subgraphs. Those of IF and WHILE become graphs inside of a node, If and Loop.

1. IF: its subgraphs are the branches. The importer takes one, or computes both, as of any other If.
2. WHILE: the body is its second subgraph, with the first one behind it, which says whether there is another step. The
   importer unrolls it, where the number of steps is known.
3. STABLEHLO_COMPOSITE, a function with a name: what it is composed of.
4. STABLEHLO_REDUCE_WINDOW: the subgraph says what joins two elements.

Tensors of a subgraph have names that no other one has. Its inputs are tensors around it, by their names there. Its
constants are those of the whole graph, also of a subgraph that runs at several places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
from onnx import TensorProto, helper

from nmpconv.errors import InputError, Unsupported
from nmpconv.frontend.local_functions import NODES_MAX
from nmpconv.frontend.tflite.model import TENSORS_MAX, TfliteFile
from nmpconv.frontend.tflite.onnx_writer import OperatorCall, Writer
from nmpconv.frontend.tflite.reduced_windows import reduce_window

NESTED_MAX = 8  # of subgraphs in subgraphs
KINDS = ("IF", "WHILE", "STABLEHLO_COMPOSITE", "STABLEHLO_REDUCE_WINDOW")


class InnerGraphs:
    """Subgraphs of a file. write_all: writes the operators of a writer's model, at a depth."""

    def __init__(self, file: TfliteFile, where: str, write_all: Callable[[Writer, int], None]) -> None:
        self._file, self._where, self._write_all = file, where, write_all
        self._operators = self._operands = 0  # of all subgraphs that were written

    def write(self, call: OperatorCall, depth: int) -> list[str]:
        """Results of an operator of `KINDS`, which is so deep in subgraphs. Raises Unsupported."""
        if depth == NESTED_MAX:
            raise Unsupported(f"subgraphs in subgraphs, {NESTED_MAX} deep", hint="fewer")
        if call.operator.kind == "STABLEHLO_REDUCE_WINDOW":
            body = self._file.subgraph(call.options.get("body_subgraph_index", 0))
            return [reduce_window(call, " ".join(operator.kind for operator in body.operators))]
        writers = {"IF": self._if, "WHILE": self._while, "STABLEHLO_COMPOSITE": self._composite}
        return writers[call.operator.kind](call, depth)

    def _composite(self, call: OperatorCall, depth: int) -> list[str]:
        inner = self._written(call, "decomposition_subgraph_index", call.inputs(), depth)
        call.include(inner)
        return inner.results()

    def _if(self, call: OperatorCall, depth: int) -> list[str]:
        condition, *operands = call.inputs()
        branches = {}
        for side in ("then", "else"):
            inner = self._written(call, f"{side}_subgraph_index", operands, depth)
            branches[f"{side}_branch"] = _graph(inner, side, (), _results(inner, call))
        return call.several("If", [condition], len(call.operator.outputs), **branches)

    def _while(self, call: OperatorCall, depth: int) -> list[str]:
        carried = call.inputs()
        before = self._written(call, "cond_subgraph_index", carried, depth)
        [goes] = before.results()
        call.include(before)
        names = [call.fresh(f"{name}.carried") for name in carried]
        body = self._written(call, "body_subgraph_index", names, depth)
        results = _results(body, call)
        after = self._written(call, "cond_subgraph_index", results, depth, body)
        body.include(after)
        ports = [
            helper.make_tensor_value_info(call.fresh("step"), TensorProto.INT64, []),
            helper.make_tensor_value_info(call.fresh("goes"), TensorProto.BOOL, None),
            *(body.port(number, name) for number, name in zip(body.model.inputs, names, strict=True)),
        ]
        graph = _graph(body, "body", ports, [*_copies(body, after.results()), *results])
        return call.several("Loop", ["", goes, *carried], len(carried), body=graph)

    def _written(
        self, call: OperatorCall, option: str, operands: Sequence[str], depth: int, around: Writer | None = None
    ) -> Writer:
        """The subgraph that an option names, written with these tensors for its inputs. around: what they lie in."""
        model = self._file.subgraph(call.options.get(option, 0))
        if len(model.inputs) != len(operands) or not model.outputs:
            raise ValueError(f"{len(operands)} operands, a subgraph of {len(model.inputs)} inputs")
        self._operators += 1 + len(model.operators)
        self._operands += len(model.operands())
        for count, most, kind in (
            (self._operators, NODES_MAX, "operators"),
            (self._operands, TENSORS_MAX, "operands"),
        ):
            if count > most:
                raise InputError(f"its subgraphs have more than {most} {kind}", where=self._where)
        inner = call.inner(model, operands, around)
        self._write_all(inner, depth + 1)
        return inner


def _results(inner: Writer, call: OperatorCall) -> list[str]:
    if len(inner.model.outputs) != len(call.operator.outputs):
        raise ValueError(f"{len(call.operator.outputs)} outputs, a subgraph of {len(inner.model.outputs)}")
    return _copies(inner, inner.results())


def _copies(inner: Writer, names: Sequence[str]) -> list[str]:
    """Outputs of a graph are made by its nodes, each by its own."""
    copies = [inner.fresh(f"{name}.result") for name in names]
    inner.nodes += [helper.make_node("Identity", [x], [y], y) for x, y in zip(names, copies, strict=True)]
    return copies


def _graph(inner: Writer, name: str, ports: Sequence[onnx.ValueInfoProto], results: Sequence[str]) -> onnx.GraphProto:
    outputs = [onnx.ValueInfoProto(name=result) for result in results]
    return helper.make_graph(inner.nodes, name, ports, outputs)
