"""The interpreter takes the place of the reference while a model is converted."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Net, grid
from op_cases import BY_OP

from nmpconv.conversion import node_runner
from nmpconv.file import reader
from nmpconv.graph import reference


@pytest.mark.parametrize("op", BY_OP)
def test_results_of_several_samples(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_runner, "LEAST", 0)
    cases = BY_OP[op]
    for case in cases[:: 1 + len(cases) // 4]:
        samples = [case.feeds, [np.flip(x) for x in case.feeds], case.feeds]
        feeds = {
            name: np.concatenate([np.atleast_1d(sample[i]) for sample in samples])
            for i, name in enumerate(case.graph.inputs)
        }
        wanted = reference.run(case.graph, feeds)
        found = reference.run(case.graph, feeds, (), node_runner.step)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), case.id
            np.testing.assert_array_equal(found[name], array, err_msg=case.id)


def test_little_work_is_left_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    case = BY_OP["add"][0]
    monkeypatch.setattr(node_runner, "to_bytes", None)  # a net would need it
    feeds = dict(zip(case.graph.inputs, case.feeds, strict=True))
    name = case.graph.outputs[0]
    found = reference.run(case.graph, feeds, (), node_runner.step)
    np.testing.assert_array_equal(found[name], reference.run(case.graph, feeds)[name])
    monkeypatch.setattr(node_runner, "LEAST", 0)
    with pytest.raises(TypeError):
        reference.run(case.graph, feeds, (), node_runner.step)


def test_tensors_in_the_middle_need_no_file_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input, a tensor that others take the place of, and an output; two parts of the samples."""
    net = Net(grid=grid(8, -3))
    net.input("x", 1, 3, 3, 4)
    for x, out in ("xa", "ab", "bc", "cy"):
        net.conv(x, out, 4, 1)
    graph, names = net.graph("y"), ["b", "y", "x"]
    samples = [{"x": np.random.default_rng(i).integers(-99, 99, (1, 3, 3, 4)).astype(np.int8)} for i in range(5)]
    monkeypatch.setattr(node_runner, "MUCH", 0)
    monkeypatch.setattr(reader, "read", None)
    found = node_runner.tensors(graph, samples, names)
    for sample, reals in zip(samples, found, strict=True):
        wanted = reference.run(graph, sample, names)
        for name, real in zip(names, reals, strict=True):
            np.testing.assert_array_equal(real, wanted[name] / 8.0)
