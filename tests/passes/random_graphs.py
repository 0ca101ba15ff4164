"""Random float graphs of every op, in every layout, with several readers and outputs; seeded."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from nets import Net

from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.ops.common.interpolation import coordinates, linear, table


class Maker(Net):
    """A net of many ops; `whole` is its graph."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dice = random.Random(seed)
        self.input("x0", *self.shape())
        self.input("x1", *self.shape())
        for _ in range(self.dice.randint(3, 18)):
            self.step()

    def shape(self) -> tuple[int, ...]:
        dims = [self.dice.choice((1, 2, 3, 4, 6)) for _ in range(3)]
        return (1, *dims)

    def noise(self, *shape: int, near: float = 0.0) -> str:
        return self.const(f"c{len(self.values)}", near + self.rng.standard_normal(shape))

    def emit(self, kind: str, inputs: tuple[str, ...], clamp: tuple[float, float] | None = None, **params: Any) -> None:
        """Unless its result is empty or large."""
        parameters = OPS[kind].Params(**params)
        (shape,) = OPS[kind].infer(parameters, [self.values[name] for name in inputs])
        if all(size >= 1 for size in shape) and math.prod(shape) <= 4000:
            self.op(kind, " ".join(inputs), f"v{len(self.nodes)}", clamp, **params)

    def step(self) -> None:
        names = [node.outputs[0] for node in self.nodes]
        # Mostly the newest, so that chains get long.
        x = self.dice.choice(names[-2:] if names and self.dice.random() < 0.8 else self.inputs + names)
        rank = len(self.values[x].shape)
        kinds = ["transpose"] * 5 + ["reshape", "requantize", "lookup", "add", "mul", "join", "slice", "pad", "softmax"]
        kinds += (
            ["gather"] + ["normalize", "batch_matmul"] * (rank >= 2) + ["resize", "conv_transpose", "lrn"] * (rank == 4)
        )
        kinds += ["affine", "constant"] * 2 + ["dense", "monomial", "max_pool", "average_pool", "spatial_pad"] * (
            rank == 4
        )
        kinds += ["flatten", "fully_connected"]
        getattr(self, self.dice.choice(kinds))(x, self.values[x].shape)

    def transpose(self, x: str, shape: tuple[int, ...]) -> None:
        perm = list(range(1, len(shape)))
        self.dice.shuffle(perm)
        usual = {4: [(0, 2, 3, 1), (0, 3, 1, 2)]}.get(len(shape), [])
        self.emit("transpose", (x,), perm=self.dice.choice([*usual * 2, (0, *perm)]))

    def reshape(self, x: str, shape: tuple[int, ...]) -> None:
        left = math.prod(shape)
        dims = [1]
        while left > 1 and len(dims) < 5:
            dims.append(self.dice.choice([d for d in range(1, left + 1) if left % d == 0]))
            left //= dims[-1]
        self.emit("reshape", (x,), shape=(*dims, left) if left > 1 else tuple(dims))

    def flatten(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit("reshape", (x,), shape=(1, math.prod(shape)))
        self.fully_connected(self.nodes[-1].outputs[0], self.values[self.nodes[-1].outputs[0]].shape)

    def requantize(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit("requantize", (x,), self.dice.choice([None, (0.0, math.inf), (-0.5, 1.5)]))

    def lookup(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit("lookup", (x,), function="tanh")

    def softmax(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit("softmax", (x,), axis=self.dice.randrange(len(shape)))

    def _partner(self, x: str, shape: tuple[int, ...]) -> str:
        same = [name for name, value in self.values.items() if value.shape == shape and not value.is_const]
        return self.dice.choice(same)

    def add(self, x: str, shape: tuple[int, ...]) -> None:
        op = self.dice.choice(["add", "add", "sub", "minimum", "maximum"])
        self.emit(op, (x, self._partner(x, shape)), self.dice.choice([None, (0.0, 6.0)]))

    def mul(self, x: str, shape: tuple[int, ...]) -> None:
        gates = [n for n, v in self.values.items() if len(v.shape) == len(shape) and v.size < math.prod(shape)]
        fits = [g for g in gates if all(a in (1, b) for a, b in zip(self.values[g].shape, shape, strict=True))]
        self.emit("mul", (x, self.dice.choice(fits)) if fits else (x, self._partner(x, shape)))

    def constant(self, x: str, shape: tuple[int, ...]) -> None:
        axis = self.dice.randrange(len(shape))
        channel = tuple(size if i == axis else 1 for i, size in enumerate(shape))
        const = self.noise(*self.dice.choice([channel[axis:], channel, (), (1,), shape]), near=1.0)
        self.emit(self.dice.choice(["add", "mul", "sub"]), self.dice.choice([(x, const), (const, x)]))

    def join(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit(
            "concat", (x, self._partner(x, shape), x), axis=self.dice.randrange(1, max(2, len(shape))) % len(shape)
        )

    def slice(self, x: str, shape: tuple[int, ...]) -> None:
        steps = tuple(self.dice.choice((1, 1, 2)) for _ in shape)
        starts = tuple(self.dice.randrange(size) for size in shape)
        sizes = tuple((size - 1 - start) // step + 1 for size, start, step in zip(shape, starts, steps, strict=True))
        self.emit("slice", (x,), starts=starts, steps=steps, sizes=sizes)

    def batch_matmul(self, x: str, shape: tuple[int, ...]) -> None:
        fits = [
            name
            for name, v in self.values.items()
            if not v.is_const and v.shape[:-2] == shape[:-2] and len(v.shape) > 1
        ]
        fits = [name for name in fits if self.values[name].shape[-1] == shape[-1]]
        self.emit("batch_matmul", (x, self.dice.choice(fits)), self.dice.choice([None, (0.0, 6.0)]))

    def lrn(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit("lrn", (x,), self.dice.choice([None, (0.0, 6.0)]), size=self.dice.choice((1, 3, 4)), alpha=0.1)

    def normalize(self, x: str, shape: tuple[int, ...]) -> None:
        axes = tuple(sorted(self.dice.sample(range(1, len(shape)), self.dice.randint(1, len(shape) - 1))))
        along = tuple(self.dice.choice((1, size)) if axis else 1 for axis, size in enumerate(shape))
        constants = (self.noise(*along, near=1.0), self.noise(*along))
        self.emit("normalize", (x, *constants), self.dice.choice([None, (0.0, 6.0)]), axes=axes, eps=0.1)

    def gather(self, x: str, shape: tuple[int, ...]) -> None:
        axis = self.dice.randrange(min(1, len(shape) - 1), len(shape))
        index = tuple(self.dice.randrange(shape[axis]) for _ in range(self.dice.randint(1, 5)))
        self.emit("gather", (x,), axis=axis, index=index)

    def resize(self, x: str, shape: tuple[int, ...]) -> None:
        (taps_h, *v), (taps_w, *h) = (
            table(linear(coordinates("half_pixel", n, n + 1, (n + 1) / n), n)) for n in shape[1:3]
        )
        sides = {"rows": v[0], "row_weights": v[1], "columns": h[0], "column_weights": h[1]}
        self.emit("resize", (x,), self.dice.choice([None, (0.0, 6.0)]), taps_h=taps_h, taps_w=taps_w, **sides)

    def conv_transpose(self, x: str, shape: tuple[int, ...]) -> None:
        pads = {f"pad_{side}": self.dice.choice((0, 1)) for side in ("top", "left", "bottom", "right")}
        inputs = (x, self.noise(3, 2, 2, shape[3]), self.noise(3))
        self.emit("conv_transpose", inputs, stride_h=self.dice.choice((1, 2)), stride_w=2, **pads)

    def pad(self, x: str, shape: tuple[int, ...]) -> None:
        pads = (0, 0, *(self.dice.choice((0, 0, 1)) for _ in shape[1:] for _ in range(2)))
        self.emit("pad", (x, self.noise(1)), pads=pads)

    def spatial_pad(self, x: str, shape: tuple[int, ...]) -> None:
        zero = self.const(f"z{len(self.values)}", np.zeros(1, np.float32))
        self.emit("pad", (x, zero), pads=(0, 0, *(self.dice.choice((0, 1)) for _ in range(4)), 0, 0))

    def affine(self, x: str, shape: tuple[int, ...]) -> None:
        if len(shape) == 4:
            c = shape[3]
            self.emit("conv2d", (x, self.noise(c, 1, 1, 1), self.noise(c)), groups=c)

    def monomial(self, x: str, shape: tuple[int, ...]) -> None:
        c = shape[3]
        order = self.dice.sample(range(c), c)
        data = (np.eye(c)[order] * self.rng.uniform(0.5, 2, (c, 1))).astype(np.float32)
        w = self.const(f"c{len(self.values)}", data.reshape(c, 1, 1, c))
        self.emit("conv2d", (x, w, self.noise(c)))

    def dense(self, x: str, shape: tuple[int, ...]) -> None:
        c = shape[3]
        groups = self.dice.choice([g for g in range(1, c + 1) if c % g == 0])
        outs = groups * self.dice.choice((1, 2))
        k, p = self.dice.choice([(1, 0), (3, 1), (2, 0)])
        inputs = (x, self.noise(outs, k, k, c // groups), self.noise(outs))
        if p and self.dice.random() < 0.5:
            inputs = (*inputs, self.noise(c))
        self.emit("conv2d", inputs, groups=groups, pad_top=p, pad_left=p, pad_bottom=p, pad_right=p)

    def fully_connected(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit("fully_connected", (x, self.noise(4, shape[-1]), self.noise(4)))

    def max_pool(self, x: str, shape: tuple[int, ...]) -> None:
        self.emit("max_pool", (x,), kernel_h=2, kernel_w=2, stride_h=self.dice.choice((1, 2)))

    def average_pool(self, x: str, shape: tuple[int, ...]) -> None:
        whole = self.dice.random() < 0.5
        kernel = (shape[1], shape[2]) if whole else (2, 2)
        self.emit("average_pool", (x,), kernel_h=kernel[0], kernel_w=kernel[1])

    def whole(self) -> Graph:
        read = {name for node in self.nodes for name in node.inputs}
        names = [node.outputs[0] for node in self.nodes]
        ends = [name for name in names if name not in read] or names[-1:]
        outputs = dict.fromkeys([*ends, *([self.dice.choice(names)] if names else [])])
        return self.graph(*outputs)


class StreamMaker(Maker):
    """A net of streams of residual sums, with other ops before, behind and beside them."""

    def step(self) -> None:
        names = [node.outputs[0] for node in self.nodes]
        if not names or self.dice.random() < 0.5:
            super().step()
            return
        x = self.dice.choice(names[-2:])
        for _ in range(self.dice.randint(3, 5)):
            x = self.residual(x, self.values[x].shape)

    def residual(self, x: str, shape: tuple[int, ...]) -> str:
        """The sum of a tensor [1,H,W,C] and a convolution of it, sometimes with a Relu; others stay as they are."""
        if len(shape) != 4:
            return x
        weight, bias = self.noise(shape[3], 3, 3, shape[3]), self.noise(shape[3])
        self.emit("conv2d", (x, weight, bias), pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
        self.emit("add", (x, self.nodes[-1].outputs[0]), self.dice.choice([None, (0.0, math.inf), (0.0, math.inf)]))
        return self.nodes[-1].outputs[0]
