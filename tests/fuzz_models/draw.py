"""One case by its seed: a chain of steps with branches."""

from __future__ import annotations

import numpy as np

from fuzz_models import arrange, images, patterns, pointwise, seldom
from fuzz_models.case import Case
from fuzz_models.net import Net

STEPS = 10
TRIES = 4  # times as many steps are tried
OUTPUTS = 3

ANY = (*pointwise.STEPS, *arrange.STEPS, *patterns.ANY, *seldom.STEPS)
LINES = (*images.LINES, *patterns.PLANES) * 2
IMAGES = (*images.IMAGES, *patterns.IMAGES, *arrange.IMAGES, *seldom.IMAGES) * 2
SHAPES: dict[int, list[tuple[int, ...]]] = {
    1: [(1,), (5,)],
    2: [(1, 4), (1, 12)],
    3: [(1, 3, 8), (1, 5, 4)],
    4: [(1, 3, 6, 6), (1, 4, 5, 7), (1, 1, 8, 8), (1, 8, 4, 4), (1, 6, 3, 2)],
    5: [(1, 2, 3, 4, 2)],
}


def draw(seed: int) -> Case:
    """A case of 1 to 3 inputs and outputs; every tensor of it is finite on its samples."""
    net = Net(seed)
    rank = net.among(4, 4, 4, 4, 4, 4, 3, 3, 2, 2, 5, 1)
    for _ in range(net.among(1, 1, 1, 2, 3)):
        _input(
            net,
            net.dice.choice(SHAPES[rank])
            if net.chance(0.7)
            else net.shape(next(iter(net.feeds), ""))
            if net.feeds
            else SHAPES[rank][0],
        )
    x = next(iter(net.feeds))
    wanted, tries = net.dice.randint(1, STEPS), 0
    while wanted and tries < TRIES * STEPS:
        tries += 1
        rank = len(net.shape(x))
        y = net.attempt(net.dice.choice(ANY + (IMAGES if rank == 4 else LINES if rank == 3 else ())), x)
        if y is not None:
            wanted -= 1
            x = y if net.chance(0.8) else net.dice.choice(net.computed())
    if not net.nodes or x in net.feeds:
        x = net.add("Relu", x)
    return net.case(_outputs(net, x))


def _input(net: Net, shape: tuple[int, ...]) -> None:
    """Noise around 0 or above it, of a size between 1e-3 and 1e3."""
    size = (net.samples, *shape)
    kind = net.among("normal", "normal", "normal", "pixels", "unit", "wide")
    if kind == "pixels":
        values = np.floor(net.noise.uniform(0, 256, size))
    elif kind == "unit":
        values = net.noise.uniform(0, 1, size)
    else:
        values = net.noise.normal(0, 1, size) * (net.among(10.0, 50.0, 1e-2) if kind == "wide" else 1.0)
    net.input(shape, values)


def _outputs(net: Net, x: str) -> list[str]:
    """x, and some of what nobody reads or what is read as well."""
    read = {name for node in net.nodes for name in node.inputs}
    names = [name for node in net.nodes for name in node.outputs if name in net.values]
    ends = [name for name in names if name not in read and name != x and net.dtype(name).kind == "f"]
    indices = [name for name in names if name not in read and net.dtype(name).kind == "i"]
    more = [name for name in [*ends, *indices] if net.chance(0.6)]
    if net.chance(0.15):
        more.append(net.dice.choice([name for name in names if net.is_float(name)]))
    return list(dict.fromkeys([x, *more[: OUTPUTS - 1]]))
