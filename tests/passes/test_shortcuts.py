"""Convolutions in place of padded shortcuts, by what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Net

from nmpconv.passes.float import shortcuts


@pytest.mark.parametrize(("channels", "kernel", "kept"), [(64, 7, False), (64, 3, True), (8, 1, False)])
def test_they_are_a_share_of_the_weights(channels: int, kernel: int, kept: bool) -> None:
    """A convolution and a Pad of channels to four times as many; kept: the Pad. 7x7 weights are 49 times as many."""
    net = Net(5)
    x = net.input("x", 1, 2, 2, channels)
    net.conv(x, "a", 4 * channels, kernel)
    net.const("zero", np.zeros(1))
    net.op("pad", "x zero", "p", pads=(0,) * 7 + (3 * channels,))
    net.op("add", "a p", "y")
    nodes = shortcuts.run(net.graph("y")).nodes
    assert ("pad" in {node.op for node in nodes}) == kept
