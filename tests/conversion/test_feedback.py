"""Outputs that are inputs of the next call: `convert --state`. The float model feeds them back while it calibrates."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx_text import build

import nmpconv
from nmpconv.calib.activation_cache import integers
from nmpconv.data.samples import scattered
from nmpconv.data.sequences import open_frames
from nmpconv.errors import InputError, UsageError
from nmpconv.graph.reference import steps
from nmpconv.ir import Preprocess

FEATURES, HIDDEN = 6, 8
GRU = f"""(float[1,1,{FEATURES}] x, float[1,1,{HIDDEN}] h) => (float[1,4] y, float[1,1,{HIDDEN}] hn) {{
  s, hn = GRU<hidden_size={HIDDEN}>(x, w, r, b, , h)
  shape = Constant<value_ints=[1,{HIDDEN}]>()  f = Reshape(hn, shape)  y = Gemm<transB=1>(f, o)
}}"""
FILTER = "(float[1,4] x, float[1,4] last) => (y) <float a = {0.9}> { m = Mul(last, a) y = Add(m, x) }"


@pytest.fixture(scope="module")
def gru(tmp_path_factory):
    rng = np.random.default_rng(1)
    sizes = {"w": (1, 3 * HIDDEN, FEATURES), "r": (1, 3 * HIDDEN, HIDDEN), "b": (1, 6 * HIDDEN), "o": (4, HIDDEN)}
    arrays = {name: rng.normal(size=size) * 0.5 for name, size in sizes.items()}
    path = tmp_path_factory.mktemp("gru") / "gru.onnx"
    build(GRU, 14, path, arrays=arrays)
    return path


def walks(count, frames, seed):
    """Sequences [count, frames, 1, FEATURES] that wander."""
    steps = np.random.default_rng(seed).normal(size=(count, frames, 1, FEATURES))
    return np.cumsum(steps * 0.5, axis=1).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "least"), [("8", 28), ("16", 55)])
def test_sequences_are_as_the_float_model_computes_them(gru, bits, least):
    """On other sequences, longer than those calibrated with, each begun anew; the same integers in C and numpy."""
    found = nmpconv.convert(gru, walks(8, 30, 0), bits=bits, state=["hn=h"])
    assert found.report.window_macs == 0  # a call is the model, no step of a window
    net, session = found.load(), ort.InferenceSession(gru)
    assert ([port.name for port in net.inputs], [port.name for port in net.outputs]) == (["x"], ["y"])
    signal = noise = 0.0
    for sequence in walks(3, 100, 7):
        net.reset()
        h = np.zeros((1, 1, HIDDEN), np.float32)
        told = steps(found.graph, [{"x": integers(x[None], found.graph["x"])} for x in sequence])
        for x, want in zip(sequence, told, strict=True):
            y, h = session.run(None, {"x": x[None], "h": h})
            [got] = net.run(x[None])
            assert got.tobytes() == want["y"].tobytes()
            signal += float(np.sum(np.square(y)))
            noise += float(np.sum(np.square(y - np.ldexp(got, net.outputs[0].exponent))))
    assert 10 * np.log10(signal / noise) > least


def test_states_are_calibrated_with_what_the_model_feeds_back(tmp_path):
    """A filter that adds up ten inputs of 1: the state's range is ten times the input's."""
    build(FILTER, 14, tmp_path / "m.onnx")
    found = nmpconv.convert(tmp_path / "m.onnx", np.ones((2, 60, 4), np.float32), bits="16", state="y=last")
    assert 9.5 < found.stats["last"].max < 10
    assert [port.name for port in found.load().outputs] == ["y"]  # the only result is told, too
    net = found.load()
    results = [net.run_float(np.ones((1, 4)))[0][0, 0] for _ in range(30)]
    np.testing.assert_allclose(results, [(1 - 0.9**n) / 0.1 for n in range(1, 31)], rtol=2e-3)


def test_a_state_on_another_grid_is_requantized(gru, tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text("[tensors.h]\nbits = 8\n")
    found = nmpconv.convert(gru, walks(8, 30, 0), state=["hn=h"], recipe=recipe)
    graph = found.graph
    assert graph["h"].quant.bits == 8 and graph["hn"].quant.bits == 16
    assert graph.nodes[-1].op == "requantize" and graph.outputs == ("y", "hn.kept")
    net = found.load()
    assert [port.name for port in net.outputs] == ["y"]
    for x in walks(1, 5, 3)[0]:
        net.run(x[None])
    assert net.states()["h"].dtype == np.int8 and net.states()["h"].any()


def test_calls_of_all_places_in_their_sequences_are_fitted(tmp_path):
    """Every eighth call begins a sequence, where the state is 0: these alone would say nothing of it."""
    assert {i % 8 for i in scattered(800, 100)} == set(range(8))
    build(FILTER, 14, tmp_path / "m.onnx")
    data = np.random.default_rng(3).normal(size=(100, 8, 4)).astype(np.float32)
    found = nmpconv.convert(tmp_path / "m.onnx", data, bits="16", state="y=last")
    assert [text for text in found.report.warnings if "last" in text] == []


def test_calls_are_fitted_once():
    """Each in a part of its own: those that are held out of a choice are not among those that it was fitted to."""
    for count in range(1, 60):
        assert scattered(count, count) == scattered(count, count + 7) == list(range(count))
        for limit in range(1, count):
            ends = [i * count // limit for i in range(limit + 1)]
            rows = zip(ends, scattered(count, limit), ends[1:], strict=False)
            assert len(scattered(count, limit)) == limit
            assert all(first <= call < end for first, call, end in rows)
    assert scattered(0, 5) == []


@pytest.mark.parametrize(
    ("state", "data", "why"),
    [
        (["hn=z"], None, "the model has no input 'z' that anything reads; it has x, h"),
        (["z=h"], None, "the model has no output 'z'; it has y, hn"),
        (["h"], None, "'h' names no two tensors"),
        (["y=h"], None, r"'y' is \[1, 4\], 'h' is \[1, 1, 8\]"),
        (["hn=h", "hn=h"], None, "one of them has another state"),
        (["hn=h"], {"x": walks(1, 4, 0), "h": walks(1, 4, 0)}, "input 'h' is a state, which the model feeds"),
        (["hn=h"], {"z": walks(1, 4, 0)}, "the model has no input 'z' that an output depends on; it has x"),
    ],
)
def test_refused(gru, state, data, why):
    with pytest.raises(UsageError, match=why):
        nmpconv.convert(gru, walks(1, 4, 0) if data is None else data, state=state)


def test_without_a_state_every_input_needs_a_source(gru):
    with pytest.raises(UsageError, match=r"several inputs: x, h; a source names none .*\{'x': \.\.\.\}"):
        nmpconv.convert(gru, walks(1, 4, 0))


PAIR = (
    "(float[1,4] x, float[1,4] h, float[1,4] c) => (hn, cn) { a = Add(x, h) hn = Tanh(a) b = Sub(x, c) cn = Tanh(b) }"
)


@pytest.mark.parametrize(("narrow", "outputs"), [((), 2), (("h",), 4), (("h", "c"), 4)])
def test_results_do_not_depend_on_grids(narrow, outputs, tmp_path):
    """A model without other results tells what its states take over."""
    build(PAIR, 14, tmp_path / "m.onnx")
    recipe = tmp_path / "r.toml"
    recipe.write_text("".join(f"[tensors.{name}]\nbits = 8\n" for name in narrow))
    data = np.random.default_rng(0).normal(size=(4, 10, 1, 4)).astype(np.float32)
    found = nmpconv.convert(tmp_path / "m.onnx", data, state=["hn=h", "cn=c"], recipe=recipe)
    assert len(found.graph.outputs) == outputs
    assert [port.name for port in found.load().outputs] == ["hn", "cn"]


def test_states_are_no_images(tmp_path):
    text = "(float[1,3,8,8] x, float[1,3,8,8] h) => (y, hn) { s = Add(x, h) hn = Tanh(s) y = GlobalAveragePool(hn) }"
    build(text, 14, tmp_path / "m.onnx")
    how = {"state": ["hn=h"], "std": [255.0]}
    assert set(nmpconv.convert(tmp_path / "m.onnx", dry_run=True, **how).graph.states) == {"h"}
    clips = np.random.default_rng(0).integers(0, 256, (2, 6, 8, 8, 3)).astype(np.uint8)
    nmpconv.convert(tmp_path / "m.onnx", clips, save_profile=tmp_path / "p.json", **how)
    assert nmpconv.convert(tmp_path / "m.onnx", load_profile=tmp_path / "p.json", **how).graph.states


def test_a_stream_has_no_other_states(gru):
    with pytest.raises(UsageError, match="state: cannot be combined with stream"):
        nmpconv.convert(gru, walks(1, 4, 0), state=["hn=h"], stream="axis=0,hop=1,input=x")


def test_sizes_are_planned_without_data(gru):
    found = nmpconv.convert(gru, state=["hn=h"], dry_run=True)
    assert found.sketch and set(found.graph.states) == {"h"}


FRAMES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)  # two sequences of three frames of [1,4]


def in_folder(folder):
    for i, sequence in enumerate(FRAMES):
        np.save(folder / f"{i}.npy", sequence)
    return folder


def in_stack(folder):
    np.save(folder / "all.npy", FRAMES)
    return folder / "all.npy"


@pytest.mark.parametrize(
    ("data", "starts"),
    [
        (in_folder, (0, 3)),
        (in_stack, (0, 3)),
        (lambda folder: FRAMES, (0, 3)),
        (lambda folder: iter(FRAMES), (0, 3)),
        (lambda folder: ((sequence, 1) for sequence in FRAMES), (0, 3)),
        (lambda folder: FRAMES[:, :, np.newaxis], (0, 3)),
        (lambda folder: list(FRAMES[:, :, np.newaxis]), (0, 3)),
        (lambda folder: FRAMES.reshape(6, 4), (0,)),
        (lambda folder: list(FRAMES.reshape(6, 1, 4)), (0,)),
    ],
)
def test_sequences_of_every_source(data, starts, tmp_path):
    samples, begin = open_frames(data(tmp_path), (1, 4), None)
    assert begin == starts
    np.testing.assert_array_equal([samples[i].ravel() for i in range(len(samples))], FRAMES.reshape(6, 4))


def test_clips_of_pictures_are_sequences():
    clips = np.random.default_rng(0).integers(0, 256, (2, 5, 8, 8, 3)).astype(np.uint8)
    look = Preprocess(layout="auto")
    for data in (clips, list(clips), (clip for clip in clips)):
        samples, starts = open_frames(data, (1, 3, 8, 8), look)
        assert (len(samples), starts) == (10, (0, 5))
        np.testing.assert_array_equal(samples[7], clips[1, 2])
    assert open_frames(clips[0], (1, 3, 8, 8), look)[1] == (0,)


def test_a_sequence_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"an array of shape \[3, 4\]; the model's input is \[1, 5\]"):
        open_frames(FRAMES, (1, 5), None)


def test_sequences_of_two_inputs_go_together(tmp_path):
    text = "(float[1,4] x, float[1,4] z, float[1,4] h) => (hn) { s = Add(x, z) t = Add(s, h) hn = Tanh(t) }"
    build(text, 14, tmp_path / "m.onnx")
    data = {"x": [FRAMES[0], FRAMES[1]], "z": [FRAMES[0][:2], np.concatenate([FRAMES[0], FRAMES[1]])[:4]]}
    with pytest.raises(InputError, match="the sequences of 'x' and 'z' differ in length"):
        nmpconv.convert(tmp_path / "m.onnx", data, state=["hn=h"])
