"""Training with the arithmetic of the file: the module's integers are the file's, before training and after."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_text import build

from nmpconv.api.models import on_disk
from nmpconv.errors import InputError, UnsupportedModel, UsageError

MEAN, STD = (120.0, 110.0, 100.0), (60.0, 55.0, 50.0)


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch", reason="hundreds of MB that no lock has")
    found.manual_seed(0)
    return found


def small(torch: Any) -> Any:
    """Convolutions with normalizations, a depthwise one, a sum, pools and a matrix."""
    nn = torch.nn

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(6, 6, 3, 1, 1, groups=6, bias=False), nn.BatchNorm2d(6), nn.ReLU6())
            self.point = nn.Conv2d(6, 6, 1)

        def forward(self, x: Any) -> Any:
            return x + self.point(self.conv(x))

    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1, bias=False),
        nn.BatchNorm2d(6),
        nn.Hardswish(),
        Residual(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n,16,16,3] and classes: stripes of one of two colours, along rows or columns."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    x = rng.integers(0, 150, (count, 16, 16, 3))
    for image, label in zip(x, labels, strict=True):
        lines = image if label < 2 else image.transpose(1, 0, 2)
        lines[rng.integers(4) :: 4, :, label % 2] += rng.integers(60, 106)
    return x.astype(np.uint8), labels


def numbers(torch: Any, pixels: np.ndarray) -> Any:
    x = (pixels.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()


def steps(torch: Any, module: Any, x: Any, y: Any, count: int) -> list[float]:
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    losses = []
    for i in range(count):
        batch = slice(32 * i % len(x), 32 * i % len(x) + 32)
        loss = torch.nn.functional.cross_entropy(module(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def integers(torch: Any, prepared: Any, *inputs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """All outputs, by the module in eval mode and by its file."""
    import nmpconv.torch

    prepared.eval()
    net = nmpconv.torch.convert(prepared).load()
    with torch.no_grad():
        made = prepared(*inputs)
    made = made if isinstance(made, tuple) else (made,)
    outputs = net.run(*(x.numpy() for x in inputs))
    exponents = [port.exponent for port in net.outputs]
    return [np.ldexp(y.numpy().reshape(q.shape), -e) for y, q, e in zip(made, outputs, exponents, strict=True)], outputs


@pytest.mark.slow
def test_a_trained_net_is_its_file(torch: Any) -> None:
    import nmpconv.torch

    pixels, labels = pictures(128, seed=1)
    x, y = numbers(torch, pixels), torch.from_numpy(labels)
    module = small(torch)
    steps(torch, module, x, y, 40)
    module.eval()
    prepared = nmpconv.torch.prepare(module, x[:1], pixels[:64], mean=MEAN, std=STD, strict=True)
    for made, wanted in zip(*integers(torch, prepared, x), strict=True):
        np.testing.assert_array_equal(made, wanted)
    before = torch.nn.functional.cross_entropy(prepared(x), y).item()
    prepared.train()
    steps(torch, prepared, x, y, 24)
    for made, wanted in zip(*integers(torch, prepared, x), strict=True):
        np.testing.assert_array_equal(made, wanted)
    assert torch.nn.functional.cross_entropy(prepared(x), y).item() < 0.8 * before


def test_an_input_has_steps_that_are_no_powers_of_two(torch: Any) -> None:
    """The file's integers, and the gradient of what they stand for."""
    import nmpconv.torch

    module = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).eval()
    x = torch.from_numpy((np.random.default_rng(5).integers(0, 256, (100, 20)) / 255).astype(np.float32))
    prepared = nmpconv.torch.prepare(module, x[:1], x[:64].numpy(), strict=True)
    for made, wanted in zip(*integers(torch, prepared, x), strict=True):
        np.testing.assert_array_equal(made, wanted)
    shifts = nmpconv.torch.convert(prepared).load().inputs[0].shifts
    assert shifts is not None
    assert shifts.mantissas
    leaf = x.clone().requires_grad_()
    slope, wanted = (torch.autograd.grad(net(leaf).sum(), leaf)[0] for net in (prepared, module))
    assert (slope - wanted).abs().mean() < 0.02 * wanted.abs().mean()


@pytest.mark.slow
def test_exponents_are_learned(torch: Any) -> None:
    """From grids that are too coarse or saturate, with weights and biases left alone; the file follows."""
    import nmpconv.torch

    pixels, labels = pictures(64, seed=3)
    x, y = numbers(torch, pixels), torch.from_numpy(labels)
    module = small(torch)
    steps(torch, module, x, y, 40)
    module.eval()
    frozen = nmpconv.torch.prepare(module, x[:1], pixels, mean=MEAN, std=STD, strict=True)
    prepared = nmpconv.torch.prepare(module, x[:1], pixels, mean=MEAN, std=STD, strict=True, learn_exponents=True)
    assert not [name for name, _ in frozen.named_parameters() if "log2" in name]
    torch.testing.assert_close(prepared(x), frozen(x), rtol=0, atol=0)
    log2_steps = prepared.get_parameter("_exponents.log2_steps")
    assert len(log2_steps) >= 7
    moves = torch.tensor([4, -3, 3, -4, 4, -2, 3, -3, 4][: len(log2_steps)])
    with torch.no_grad():
        log2_steps += moves
    optimizer = torch.optim.Adam([log2_steps], lr=0.1)
    prepared.train()
    losses = []
    for _ in range(50):
        loss = torch.nn.functional.mse_loss(prepared(x), module(x).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    for made, wanted in zip(*integers(torch, prepared, x), strict=True):
        np.testing.assert_array_equal(made, wanted)
    with torch.no_grad():
        log2_steps -= 40  # what no shift reaches is raised
    for made, wanted in zip(*integers(torch, prepared, x), strict=True):
        np.testing.assert_array_equal(made, wanted)


def test_exponents_behind_an_origin_are_not_lowered(torch: Any) -> None:
    """A Relu's zeros lie at the end of its range, as far from the origin as the step reaches."""
    import nmpconv.torch

    nn = torch.nn
    module, x = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)).eval(), torch.randn(256, 4)
    prepared = nmpconv.torch.prepare(module, x[:1], x.numpy(), strict=True, learn_exponents=True)
    name = next(node.outputs[0] for node in prepared._graph.nodes)
    assert prepared._origin.fitted.decision.prepared.ranged[name].origin > 0
    before, place = prepared(x), prepared._exponents._place[name]
    log2_steps = prepared.get_parameter("_exponents.log2_steps")
    start = log2_steps[place].item()
    with torch.no_grad():
        log2_steps[place] -= 1
    torch.testing.assert_close(prepared(x), before, rtol=0, atol=0.05)
    assert log2_steps[place] == start
    with torch.no_grad():
        log2_steps[place] += 1
    for made, wanted in zip(*integers(torch, prepared, x), strict=True):
        np.testing.assert_array_equal(made, wanted)
    assert log2_steps[place] == start + 1


def test_exponents_of_a_recipe_stay(torch: Any, tmp_path: Path) -> None:
    import nmpconv.torch

    nn = torch.nn
    module, x = (
        nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)),
        torch.randn(64, 4),
    )

    def prepared(**keywords: Any) -> Any:
        return nmpconv.torch.prepare(module, x, strict=True, learn_exponents=True, **keywords)

    exponents = prepared()._exponents
    (name, *_), *others = exponents._groups
    (tmp_path / "r.toml").write_text(f'[tensors]\n"{name}" = {{ exponent = -3 }}\n')
    net = prepared(recipe=tmp_path / "r.toml")
    assert net._exponents._groups == tuple(others)
    with torch.no_grad():
        net._exponents.log2_steps += 2
    net(x)
    tensors = {tensor.name: tensor for tensor in nmpconv.torch.convert(net).load().model.tensors}
    assert tensors[name].exponents == (-3,)


def test_a_file_is_trained(torch: Any) -> None:
    """An ONNX model in place of a module, with a Sigmoid, whose grid is its own, and a Concat with an input."""
    import nmpconv.torch

    class Gate(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(4, 6), torch.nn.Linear(10, 3)

        def forward(self, x: Any) -> Any:
            y = self.one(x)
            return self.two(torch.cat([x, y * torch.sigmoid(2 * y)], 1))

    x, module = torch.randn(64, 4), Gate()
    with on_disk(module, x[:1]) as path:
        model = onnx.load(path)
    prepared = nmpconv.torch.prepare(model, data=x.numpy(), learn_exponents=True, strict=True)
    assert {p.shape for p in prepared.parameters() if p.ndim > 1} == {(6, 4), (3, 10)}
    losses = steps(torch, prepared.train(), x, torch.arange(64) % 3, 6)
    assert losses[-1] < losses[0]
    with torch.no_grad():
        prepared.get_parameter("_exponents.log2_steps").add_(1)
    for made, wanted in zip(*integers(torch, prepared, x), strict=True):
        np.testing.assert_array_equal(made, wanted)
    with pytest.raises(UsageError, match="example_inputs"):
        nmpconv.torch.prepare(model)
    with pytest.raises(UsageError, match="input_names are for torch modules and programs"):
        nmpconv.torch.prepare(model, data=x.numpy(), input_names=["z"])


def test_names_of_layers_may_lie_in_one_another(torch: Any) -> None:
    """As tf2onnx calls a separable convolution of Keras: the outer one comes second."""
    import nmpconv.torch

    layers = "[net_sep_inner_depthwise] t = Conv(x, a)  [net_sep_bias] y = Conv(t, b)"
    text = f"(float[1,3,6,6] x) => (float[1,5,2,2] y) <float[4,3,3,3] a, float[5,4,3,3] b> {{ {layers} }}"
    model = build(text, 17)
    for node in model.graph.node:
        node.name = node.name.replace("_", "/")
    prepared = nmpconv.torch.prepare(model, data=np.random.default_rng(0).normal(size=(8, 3, 6, 6)), strict=True)
    weights = {name: list(p.shape) for name, p in prepared.named_parameters() if p.ndim > 1}
    assert weights == {"net.sep.inner.weight": [4, 3, 3, 3], "net.sep_.weight": [5, 4, 3, 3]}
    assert nmpconv.torch.convert(prepared).load().model.ops


def test_parameters_are_those_of_the_module(torch: Any) -> None:
    """Behind folded normalizations, too; so a state_dict goes from one prepared module to another."""
    import nmpconv.torch

    pixels, _ = pictures(32, seed=2)
    module = small(torch).eval()
    x = numbers(torch, pixels)
    prepared = nmpconv.torch.prepare(module, x[:1], pixels, mean=MEAN, std=STD)
    own, found = module.state_dict(), prepared.state_dict()
    names = ["0.weight", "3.conv.0.weight", "3.point.weight", "7.weight"]
    assert sorted(name for name in found if name.endswith("weight")) == names
    for name in names:
        assert found[name].shape == own[name].shape
        assert (found[name] - own[name]).abs().max() < 0.02 * own[name].abs().max()
    other = copy.deepcopy(prepared)
    with torch.no_grad():
        prepared.get_parameter("7.weight").mul_(-1)
    other.load_state_dict(prepared.state_dict())
    assert bytes(nmpconv.torch.convert(other)) == bytes(nmpconv.torch.convert(prepared))


def test_small_updates_leave_the_rounding(torch: Any) -> None:
    """A weight that the conversion rounded away from its float is not at the edge of its step."""
    import nmpconv.torch

    x = torch.randn(32, 6)
    prepared = nmpconv.torch.prepare(torch.nn.Sequential(torch.nn.Linear(6, 40)).eval(), x[:1], x.numpy(), strict=True)
    layer = prepared.get_submodule("0")
    before = layer.integers()[0]
    with torch.no_grad():
        layer.weight.add_(0.2 / layer.weight_factor)
    assert torch.equal(layer.integers()[0].clamp(-127, 126), before.clamp(-127, 126))


def test_recurrent_nets_go_step_by_step(torch: Any) -> None:
    """int16 throughout, two inputs, gradients through the state, a state in the file."""
    import nmpconv.torch

    class Step(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.out = torch.nn.GRU(5, 6), torch.nn.Linear(6, 3)

        def forward(self, x: Any, h: Any) -> Any:
            y, h = self.gru(x, h)
            return self.out(y)[0], h

    x, zero = torch.randn(16, 7, 1, 5), torch.zeros(1, 1, 6)
    names = {"input_names": ["x", "h"], "output_names": ["y", "h_next"]}
    prepared = nmpconv.torch.prepare(Step(), (x[0, :1], zero), x.numpy(), bits="16", state=["h_next=h"], **names)

    def said(training: bool) -> Any:
        prepared.train(training)
        h = zero.expand(len(x), 1, 6)
        for i in range(x.shape[1]):
            y, h = prepared(x[:, i], h)
        return y

    y = torch.arange(len(x)) % 3
    optimizer = torch.optim.Adam(prepared.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        loss = torch.nn.functional.cross_entropy(said(True), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in prepared.parameters())
    assert losses[-1] < losses[0]
    net = nmpconv.torch.convert(prepared).load()
    with torch.no_grad():
        made = said(False)
    for clip, wanted in zip(x, made, strict=True):
        net.reset()
        for frame in clip:
            (found,) = net(frame[None].numpy())
        np.testing.assert_array_equal(found.reshape(-1), wanted.numpy())


def test_what_cannot_be_trained_is_named(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import nmpconv.torch
    from nmpconv.torch.gradients import MEANINGS

    monkeypatch.delitem(MEANINGS, "cum_sum")

    class Sums(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return torch.cumsum(self.layer(x), 1)

    x = torch.randn(16, 4)
    with pytest.raises(UnsupportedModel, match=r"(?s)cum_sum.*an op without a gradient"):
        nmpconv.torch.prepare(Sums(), x)

    class Asks(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.foo()

    with pytest.raises(InputError, match="torch cannot export the module"):
        nmpconv.torch.prepare(Asks(), x)
    with pytest.raises(InputError, match=r"shape \[1, 5\] was tried: give example_inputs"):
        nmpconv.convert(torch.nn.Linear(4, 2), torch.randn(16, 5))
    with pytest.raises(UsageError, match="example_inputs"):
        nmpconv.torch.prepare(Sums(), np.zeros((1, 4)))


@pytest.mark.slow
def test_a_prepared_module_is_saved_by_its_parameters(torch: Any) -> None:
    import nmpconv.torch

    module, x = small(torch).eval(), torch.randn(8, 3, 12, 12)
    prepared, again = (nmpconv.torch.prepare(module, x) for _ in range(2))
    with torch.no_grad():
        prepared.get_parameter("0.weight").mul_(1.5)
    again.load_state_dict(prepared.state_dict())
    assert nmpconv.torch.convert(again).data == nmpconv.torch.convert(prepared).data
    with pytest.raises(UsageError, match=r"cannot be pickled.*state_dict"):
        pickle.dumps(prepared)
    with pytest.raises(UsageError, match=r"a Sequential; prepare\(\) .*nmpconv.convert\(module, data\)"):
        nmpconv.torch.convert(module)


def test_torch_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("nmpconv.torch")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'nmpconv\[torch\]'"):
        import nmpconv.torch  # noqa: F401


def test_slopes_end_where_results_saturate(torch: Any) -> None:
    from nmpconv.torch.layers import StraightRounding

    x = torch.tensor([-3.0, -2.6, -2.4, 0.0, 2.4, 2.6, 3.0], requires_grad=True)
    y = StraightRounding.apply(x, -2, 2)
    y.sum().backward()
    assert y.tolist() == [-2, -2, -2, 0, 2, 2, 2]
    assert x.grad.tolist() == [0, 0, 1, 1, 1, 0, 0]
