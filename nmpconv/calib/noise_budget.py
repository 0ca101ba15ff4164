"""Sources of the noise at the heads: each tensor's share of it, by forward passes alone.

The float graph runs in one session in which every rounding has a switch (`nmpconv.calib.fake_quantization`). The error
that one adds has no mean in a channel of an image, since corrected biases take that away. One pass with all switches on
is the whole, one with a single switch on a share. Where noise is small, the shares add up to about 1; where a net
amplifies it, to less.

In a graph with very many ops a pass for each tensor would take longer than all else. There neighbours are switched on
together, and the noisiest of such blocks is halved, again and again: the largest shares are found first. So it is in a
net of many multiply-accumulates where the shares of some tensors are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import inf

import numpy as np

from nmpconv.base.thread_pool import each
from nmpconv.calib.activation_cache import Feeds
from nmpconv.calib.fake_quantization import Switched
from nmpconv.ir import Graph
from nmpconv.ops import OPS

IMAGES = 8
MACS_MOST = 3 * 10**10  # of all passes together; what would take more is not measured
OPS_MOST = 150_000  # of all passes together, in graphs with very many ops
PASSES_LEAST = 16
DIGITS = 6  # of a share; those beyond depend on the CPU


@dataclass(frozen=True)
class Noise:
    """shares: by the first tensor of a grid, the largest first: the mean over the heads of what it alone makes of all
    noise there, 0 to about 1; in a large graph only those that were found. skipped: why there are none.
    grids: the tensors that are rounded on a grid, by the first tensor of it, where that is not the only one."""

    shares: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    grids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def on_grid(self, first: str) -> tuple[str, ...]:
        """The tensors that are rounded on the grid of this one: an error there is that of any of them."""
        return self.grids.get(first, (first,))


def budget(
    ranged: Graph,
    groups: Sequence[Sequence[str]],
    heads: Sequence[str],
    images: Feeds,
    macs_most: int = MACS_MOST,
    asked: Collection[str] | None = None,
    least: float = 0.0,
    session: Callable[[], Switched] | None = None,
) -> Noise:
    """ranged: a float graph whose activations have grids. groups: the activations that share one. heads: where noise is
    measured. macs_most: of all passes together. asked: the first tensors of the grids whose shares are wanted, the
    largest of them in a large net; None: of all. least: the smallest share that is looked for there. session: what
    `switched` makes of all grids and these heads, where others use it, too.
    """
    members = rounded(ranged, groups)
    macs = sum(OPS[node.op].macs(node.params, ranged.ins(node), ranged.outs(node)) for node in ranged.nodes)
    affordable = macs_most // max(1, macs)  # passes of one image
    count = min(IMAGES, len(images), affordable // (len(members) + 2))
    if not count and asked is not None and len(images) and affordable >= PASSES_LEAST + 2:
        count = 1
    if not count:
        return Noise({}, "the net is too large to measure where its noise comes from" if len(images) else "no images")
    session = session or partial(switched, ranged, groups, heads)
    passes = session().over([images[i * len(images) // count] for i in range(count)])
    switches = passes.switch_of
    reaching = {first: switches[name] for first, names in members.items() for name in names if name in switches}
    plain, whole = each(passes.run, ((), tuple(reaching.values())))
    total = [_noise(w, p) for w, p in zip(whole, plain, strict=True)]
    noisy = [i for i, power in enumerate(total) if power > 0]

    def share(*names: str) -> float:
        if not noisy:
            return 0.0
        outputs = passes.run([reaching[name] for name in names])
        return float(np.mean([_noise(outputs[i], plain[i]) / total[i] for i in noisy]))

    wanted = [name for name in reaching if asked is None or name in asked]
    most = max(PASSES_LEAST, OPS_MOST // ((len(ranged.nodes) + len(heads)) * passes.runs))
    most = min(most, affordable // count - 2)
    by_name = (
        dict(zip(wanted, each(share, wanted), strict=True))
        if len(wanted) <= most
        else _largest(share, wanted, most, least)
    )
    shares = dict(sorted(((name, round(x, DIGITS)) for name, x in by_name.items()), key=lambda item: -item[1]))
    grids = {first: tuple(members[first]) for first in shares if members[first] != [first]}
    return Noise(shares, grids=grids)


def switched(ranged: Graph, groups: Iterable[Sequence[str]], heads: Sequence[str]) -> Switched:
    """A session with a switch for each of these grids."""
    return Switched(ranged, rounded(ranged, groups), heads, [], centred=True)


def _largest(share: Callable[..., float], names: Sequence[str], passes: int, least: float = 0.0) -> dict[str, float]:
    """Finds the largest noise shares of single tensors, in at most ``passes`` passes; shares below ``least`` may be
    missing."""
    shares: dict[str, float] = {}
    blocks = [(-inf, 0, len(names))]  # a heap: minus the share of names[start:end]
    while blocks and passes > 0 and -blocks[0][0] >= least:
        less, start, end = heappop(blocks)
        if end - start == 1:
            shares[names[start]] = -less
            continue
        middle = (start + end) // 2
        for half in ((start, middle), (middle, end)):
            heappush(blocks, (-share(*names[slice(*half)]), *half))
        passes -= 2
    return shares | {names[start]: -less for less, start, end in blocks if end - start == 1}


def rounded(graph: Graph, groups: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """The members of each group that something is rounded in, by its first member: not raw pixels, nor what only moves
    what has been rounded before. Groups without such members are left out."""
    exact = {out for node in graph.nodes if OPS[node.op].grid == "same" for out in node.outputs} | graph.pixels
    members = {group[0]: [name for name in group if name not in exact] for group in groups}
    return {first: names for first, names in members.items() if names}


def _noise(noisy: np.ndarray, plain: np.ndarray) -> float:
    """Energy of the errors. Where a divisor was rounded to 0, an error is as large as the output is at most."""
    with np.errstate(invalid="ignore"):
        errors = np.where(noisy == plain, 0.0, noisy.astype(np.float64) - plain)
    finite = np.isfinite(errors)
    if not finite.all():
        errors = np.where(finite, errors, np.abs(plain, where=np.isfinite(plain), out=np.zeros(plain.shape)).max())
    return float(np.square(errors).sum())
