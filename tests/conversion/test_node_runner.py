"""The interpreter takes the place of the reference while a model is converted."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import BY_OP

from nmpconv.conversion import node_runner
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
