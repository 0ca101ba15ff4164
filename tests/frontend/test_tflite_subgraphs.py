"""IF and WHILE of TFLite, and the subgraphs that they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from flatbuffers import flexbuffers
from tflite_files import LiteRT, Op, Part, Tensor, constant, tflite
from tflite_nets import CHOOSE, ELSE, IF, TENSORS, THEN, choice, loop

from nmpconv.errors import InputError, UnsupportedModel
from nmpconv.frontend import unroll
from nmpconv.frontend.onnx import load
from nmpconv.frontend.tflite import to_onnx as translated
from nmpconv.frontend.tflite.model import TfliteFile
from nmpconv.frontend.tflite.onnx_writer import Writer
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.ir import Graph

AXIS = "ConcatenationOptions", {"axis": 0}
LIST = {
    **{name: Tensor((1, 1)) for name in ("old", "new")},
    **{name: Tensor((1, 8), signature=(1, -1)) for name in ("before", "behind")},
    **{name: Tensor((1,), "int32") for name in ("at", "next")},
    **{name: Tensor((2,), "int32") for name in ("size", "row", "rest")},
    **{"all": constant(np.int32([-1])), "none": constant(np.int32([0])), "one_axis": constant(np.int32([1]))},
    **{"origin": constant(np.int32([0, 0])), "single": constant(np.int32([1, 1]))},
    **{"to_end": constant(np.int32([-1, -1]))},
}


def compared(data: bytes, folder: Path) -> Graph:
    """The graph of a file that computes what LiteRT does, also as an ONNX model."""
    (folder / "m.tflite").write_bytes(data)
    graph = load(folder / "m.tflite")
    reference = LiteRT(data)
    models = [translated(data, "m"), to_onnx(graph, graph.outputs)]
    sessions = [onnxruntime.InferenceSession(model.SerializeToString()) for model in models]
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32)
        [wanted] = reference.run(x)
        for session in sessions:
            [got] = session.run(None, {"x": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    return graph


def test_an_if_on_data_is_both_branches_and_a_choice(tmp_path: Path, need_package) -> None:
    need_package("ai_edge_litert")
    graph = compared(choice(), tmp_path)
    assert {"fully_connected", "lookup"} <= {node.op for node in graph.nodes}


def test_an_if_on_a_constant_is_its_branch(tmp_path: Path, need_package) -> None:
    need_package("ai_edge_litert")
    graph = compared(tflite(TENSORS, [Op("IF", ("yes", "x"), ("y",), *IF)], ["x"], ["y"], parts=[THEN, ELSE]), tmp_path)
    assert [node.op for node in graph.nodes if node.op != "reshape"] == ["fully_connected"]


def test_an_if_in_a_branch_and_an_operand_as_the_result(tmp_path: Path, need_package) -> None:
    need_package("ai_edge_litert")
    inner = Op("IF", ("p", "a"), ("b",), "IfOptions", {"then_subgraph_index": 3, "else_subgraph_index": 4})
    outer = Part([Op("GREATER", ("mean", "zero"), ("p",)), inner], ["a", "mean"], ["b"])
    whole = Part([], ["a", "mean"], ["a"])
    main = [*CHOOSE[:2], Op("IF", ("p", "x", "mean"), ("y",), *IF)]
    compared(tflite(TENSORS, main, ["x"], ["y"], parts=[outer, whole, THEN, ELSE]), tmp_path)


def test_a_while_of_known_steps_is_unrolled(tmp_path: Path, need_package) -> None:
    need_package("ai_edge_litert")
    body = Part([*THEN.ops, Op("TANH", ("b",), ("c",))], ["a"], ["c"])
    graph = compared(loop(body), tmp_path)
    assert sum(node.op == "fully_connected" for node in graph.nodes) == 5


def test_a_loop_that_writes_rows_of_a_list(tmp_path: Path, need_package) -> None:
    """As Keras' recurrent layers with return_sequences come: slices before and behind a row, one of them empty in the
    first and the last step."""
    need_package("ai_edge_litert")
    places = [
        Op("RESHAPE", ("i", "one_axis"), ("at",)),
        Op("RESHAPE", ("j", "one_axis"), ("next",)),
        *(
            Op("CONCATENATION", pair, (name,), *AXIS)
            for pair, name in ((("all", "at"), "size"), (("none", "at"), "row"))
        ),
        Op("CONCATENATION", ("none", "next"), ("rest",), *AXIS),
    ]
    parts = [
        Op("SLICE", ("a", "origin", "size"), ("before",)),
        Op("SLICE", ("a", "row", "single"), ("old",)),
        Op("SLICE", ("a", "rest", "to_end"), ("behind",)),
        Op("TANH", ("old",), ("new",)),
        Op("CONCATENATION", ("before", "new", "behind"), ("b",), "ConcatenationOptions", {"axis": 1}),
    ]
    data = loop(Part([*places, *parts], ["a"], ["b"]), steps=8, tensors=LIST)
    graph = compared(data, tmp_path)
    assert sum(node.op == "lookup" for node in graph.nodes) == 8


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(loop(ELSE, start=None), "computed from the input", id="steps"),
        pytest.param(
            tflite(TENSORS, CHOOSE, ["x"], ["y"], parts=[Part([Op("Mine", "a", "b")], ["a"], ["b"]), ELSE]),
            "tflite.Mine",
            id="inside",
        ),
    ],
)
def test_what_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(UnsupportedModel, match=re.escape(message)):
        load(tmp_path / "m.tflite")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([THEN, Part([], ["a", "b"], ["a"])], "1 operands, a subgraph of 2 inputs"),
        ([THEN, Part([], ["a"], ["a", "a"])], "1 outputs, a subgraph of 2"),
        ([THEN], "it has no subgraph 2"),
    ],
)
def test_subgraphs_that_do_not_fit(parts: list[Part], message: str) -> None:
    with pytest.raises(InputError, match=message):
        translated(tflite(TENSORS, CHOOSE, ["x"], ["y"], parts=parts), "m")


def test_a_while_of_very_many_steps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unroll, "NODES_MAX", 50)
    (tmp_path / "m.tflite").write_bytes(loop(ELSE, steps=10**9))
    with pytest.raises(UnsupportedModel, match="its steps have more than 50 nodes"):
        load(tmp_path / "m.tflite")


def test_a_subgraph_that_runs_itself_is_refused(tmp_path: Path) -> None:
    itself = Op("IF", ("p", "p", "a"), ("b",), "IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 2})
    main = [*CHOOSE[:2], Op("IF", ("p", "p", "x"), ("y",), *IF)]
    parts = [Part([itself], ["p", "a"], ["b"]), Part([], ["p", "a"], ["a"])]
    (tmp_path / "m.tflite").write_bytes(tflite(TENSORS, main, ["x"], ["y"], parts=parts))
    with pytest.raises(UnsupportedModel, match="8 deep"):
        load(tmp_path / "m.tflite")


def test_subgraphs_that_grow_without_end_are_refused() -> None:
    itself = Op("IF", ("p", "p", "a"), ("b",), "IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 1})
    main = [*CHOOSE[:2], Op("IF", ("p", "p", "x"), ("y",), *IF)]
    again = Part([itself] * 20, ["p", "a"], ["b"])
    with pytest.raises(InputError, match="its subgraphs have more than"):
        translated(tflite(TENSORS, main, ["x"], ["y"], parts=[again, again]), "m")


def several_ifs(count: int, branch: Part) -> bytes:
    """y is a sum of IFs of x, which all run the same subgraphs."""
    names = [f"y{i}" for i in range(count)]
    ops = [*CHOOSE[:2], *(Op("IF", ("p", "x"), (name,), *IF) for name in names), Op("ADD_N", names, ("y",))]
    return tflite(TENSORS | dict.fromkeys(names, Tensor((1, 8))), ops, ["x"], ["y"], parts=[branch, branch])


def test_constants_of_a_subgraph_are_written_once(tmp_path: Path, need_package) -> None:
    """As the model has them, and as its operators want them, wherever it runs."""
    need_package("ai_edge_litert")
    body = Part([*THEN.ops, Op("TANH", ("b",), ("c",))], ["a"], ["c"])
    for data in (several_ifs(5, THEN), loop(body, steps=3)):
        compared(data, tmp_path)
        model = translated(data, "m")
        assert sum(list(tensor.dims) == [8, 8] for tensor in model.graph.initializer) <= 2
        inner = [a.g for node in model.graph.node for a in node.attribute if a.HasField("g")]
        assert inner and not any(graph.initializer for graph in inner)


def test_tensors_that_a_subgraph_does_not_use_have_no_names() -> None:
    file = TfliteFile(several_ifs(3, ELSE), "m")
    outer = Writer(file.subgraph(), "m")
    before = len(outer._taken)
    Writer(file.subgraph(1), "m", outer, ["x"])
    assert len(outer._taken) == before + 2


def test_a_fresh_name_is_not_searched_for() -> None:
    class Names(dict[str, int]):
        looks = 0

        def __contains__(self, name: object) -> bool:
            Names.looks += 1
            return super().__contains__(name)

    writer = Writer(TfliteFile(several_ifs(1, ELSE), "m").subgraph(), "m")
    writer._taken = Names(writer._taken)
    assert len({writer.fresh(wish) for wish in ("x", "x_3", "new") * 1000}) == 3000
    assert Names.looks < 3 * 3000


def test_operands_of_subgraphs_have_a_limit() -> None:
    """A subgraph of few operators, with very many operands."""
    many = Part([Op("CONCATENATION", ["a"] * 30_000, ("b",), "ConcatenationOptions", {})], ["a"], ["b"])
    with pytest.raises(InputError, match="its subgraphs have more than 100000 operands"):
        translated(several_ifs(2, many), "m")


def window(kind: str, shape: tuple[int, ...], out: tuple[int, ...], first: float, **options: Any) -> bytes:
    """STABLEHLO_REDUCE_WINDOW of [1,8], as ``shape``. kind: of the operator that joins two elements."""
    tensors = {"x": Tensor((1, 8)), "t": Tensor(shape), "r": Tensor(out), "y": Tensor(out)}
    tensors |= {"n": constant(np.int32(shape)), "f": constant(np.float32(first))}
    tensors |= {name: Tensor(()) for name in "abc"}
    body = Part([Op(kind, "ab", "c", *((f"{kind.title()}Options", {}) if kind in ("ADD", "MUL") else ()))], "ab", "c")
    numbers = {name: np.array(value, np.int64) for name, value in options.items()}
    table = {**numbers, "body_subgraph_index": 1}
    ops = [Op("RESHAPE", "xn", "t"), Op("STABLEHLO_REDUCE_WINDOW", "tf", "r", "StablehloReduceWindowOptions", table)]
    return tflite(tensors, [*ops, Op("TANH", "r", "y")], ["x"], ["y"], parts=[body])


MOVES: list[tuple[str, bytes]] = [
    ("sums", window("ADD", (1, 4, 2, 1), (1, 3, 3, 1), 0.0, window_dimensions=[1, 3, 2, 1],
                    window_strides=[1, 2, 1, 1], padding=[0, 0, 1, 2, 1, 1, 0, 0])),
    ("maxima", window("MAXIMUM", (1, 2, 4, 1), (1, 2, 3, 1), -np.inf, window_dimensions=[1, 1, 2, 1],
                      window_dilations=[1, 1, 2, 1], padding=[0, 0, 0, 0, 1, 0, 0, 0])),
    ("a middle axis", window("ADD", (1, 1, 4, 2), (1, 1, 2, 2), 0.0, window_dimensions=[1, 1, 3, 1])),
]  # fmt: skip


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in MOVES])
def test_windows_along_any_axes(data: bytes, tmp_path: Path, need_package) -> None:
    need_package("ai_edge_litert")
    compared(data, tmp_path)


@pytest.mark.parametrize(("kind", "first", "message"), [
    ("MUL", 1.0, "windows joined by MUL from 1 on"), ("MAXIMUM", 0.0, "windows joined by MAXIMUM from 0 on")
])  # fmt: skip
def test_windows_that_are_no_pools(kind: str, first: float, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(window(kind, (1, 4, 2), (1, 3, 2), first, window_dimensions=[1, 2, 1]))
    with pytest.raises(UnsupportedModel, match=message):
        load(tmp_path / "m.tflite")


def test_windows_that_move_along_no_axis(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(window("ADD", (1, 4, 2), (1, 4, 2), 0.0, window_dimensions=[1, 2]))
    with pytest.raises(InputError, match=r"window_dimensions \[1, 2\], 3 numbers from 1 on are allowed"):
        load(tmp_path / "m.tflite")


def test_a_composite_is_what_it_is_composed_of(tmp_path: Path, need_package) -> None:
    need_package("ai_edge_litert")
    attributes = np.frombuffer(flexbuffers.Dumps({}), np.uint8)
    options = {"name": "mine", "decomposition_subgraph_index": 1, "composite_attributes": attributes}
    ops = [Op("STABLEHLO_COMPOSITE", ("x",), ("y",), "StableHLOCompositeOptions", options)]
    compared(tflite(TENSORS, ops, ["x"], ["y"], parts=[THEN]), tmp_path)
