"""Growing a case node by node: every tensor's values on the samples are known at once, so steps can look at them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from fuzz_models.case import Arrays, Case, Node, run_model

T = TypeVar("T")

NEWEST = 26  # the last opset that onnxruntime 1.31 runs
ELEMENTS = 3000  # most elements of a tensor
RANK = 6
SAMPLES = (4, 8)  # with fewer than 6 the converter does not compare recipes
UNREAD = 0.3  # share of the inputs that nobody reads which stay
LARGEST = 1e6
USUAL = (1e-3, 5e3)  # where most tensors' largest value lies
PROBABLE = ("Sigmoid", "Exp")  # may be far smaller, as logits far below 0 make them


class Reject(Exception):
    """A step that does not fit here; what it added is taken back."""


class Net:
    """dice: structure; noise: numbers. values: of every computed tensor on the samples, [n, ...]."""

    def __init__(self, seed: int) -> None:
        self.dice, self.noise = random.Random(seed), np.random.default_rng(seed)
        self.samples = self.among(*SAMPLES)
        self.opset = self.dice.choice((NEWEST, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7))
        self.half = self.dice.random() < 0.12
        self.extremes = self.dice.random() < 0.15
        self.nodes: list[Node] = []
        self.constants: Arrays = {}
        self.feeds: Arrays = {}
        self.folded: Arrays = {}  # what nodes make of constants alone
        self.values: Arrays = {}
        self.loose: set[str] = set()
        self._names = 0

    # -- choices ------------------------------------------------------------------------------------------------------

    def among(self, *options: T) -> T:
        return self.dice.choice(options)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def scale(self) -> float:
        """A factor: mostly near 1, seldom anything from 1e-6 to 1e6."""
        if self.extremes and self.chance(0.2):
            return float(10 ** self.dice.uniform(-6, 6))
        return self.among(1.0, 1.0, 1.0, 0.5, 2.0, 0.1, 10.0, 0.01, 1 / 255, 30.0, 100.0)

    # -- tensors ------------------------------------------------------------------------------------------------------

    def fixed(self, name: str) -> np.ndarray | None:
        """The value of a tensor that depends on no input."""
        return self.constants.get(name, self.folded.get(name))

    def shape(self, name: str) -> tuple[int, ...]:
        known = self.fixed(name)
        return self.values[name].shape[1:] if known is None else known.shape

    def dtype(self, name: str) -> np.dtype:
        known = self.fixed(name)
        return self.values[name].dtype if known is None else known.dtype

    def is_float(self, name: str) -> bool:
        return self.dtype(name).kind == "f"

    def largest(self, name: str) -> float:
        return float(np.abs(self.values[name].astype(np.float64)).max())

    def computed(self, fits: Callable[[tuple[int, ...]], bool] = lambda shape: True) -> list[str]:
        """Float tensors that are no constants, of shapes that fit."""
        return [n for n in self.values if self.is_float(n) and fits(self.shape(n))]

    def fresh(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def input(self, shape: Sequence[int], values: np.ndarray) -> str:
        name = self.fresh("x")
        x = values.reshape(self.samples, *shape).astype(np.float16 if self.half else np.float32)
        self.feeds[name] = self.values[name] = x
        return name

    def const(self, data: Any, like: str = "") -> str:
        """Lists become int64; floats get the type of the tensor ``like``. Now and then a Constant node."""
        integers = isinstance(data, list) or (isinstance(data, np.ndarray) and data.dtype.kind in "ib")
        kind = None if integers and isinstance(data, np.ndarray) else np.int64 if integers else np.float32
        x = np.asarray(data, kind)
        if x.dtype == np.float32 and like and self.dtype(like) == np.float16:
            with np.errstate(over="ignore"):  # infinite: the step is refused by its results
                x = x.astype(np.float16)
        same = [n for n, old in self.constants.items() if old.dtype == x.dtype and np.array_equal(old, x)]
        if same and self.chance(0.5):  # shared
            return same[0]
        name = self.fresh("k")
        self.constants[name] = x
        if self.chance(0.2):
            self.loose.add(name)
        return name

    def weights(self, *shape: int, like: str, spread: float = 1.0, middle: float = 0.0) -> str:
        data = self.noise.normal(middle, spread, shape)
        if shape and self.chance(0.1):  # one channel apart, as BatchNorms leave them
            data[self.dice.randrange(shape[0])] *= self.among(0.0, 1e-3, 30.0)
        elif shape and self.chance(0.06):  # most channels dead, as weight decay leaves them
            data[: max(1, 2 * shape[0] // 3)] = 1e-41
        name = self.const(np.asarray(data, np.float32), like)
        # As compressed files have them: float16 on disk, a Cast before use.
        if self.dtype(name) == np.float32 and self.chance(0.04):
            self.constants[name] = self.constants[name].astype(np.float16)
            return self.fold("Cast", name, to=1)
        return name

    def fold(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node of constants, which the importer computes."""
        node = Node(kind, inputs, (self.fresh("f"),), attributes)
        self.folded.update({name: x[0] for name, x in self._run(node).items()})
        self.nodes.append(node)
        return node.outputs[0]

    def _run(self, *nodes: Node) -> Arrays:
        """The last node's outputs on all samples; one sample where they read constants only."""
        inner, last = {name for node in nodes for name in node.outputs}, nodes[-1]
        read = [name for node in nodes for name in node.inputs if name and name not in inner]
        known = {name: x for name in read if (x := self.fixed(name)) is not None}
        feeds = {name: self.values[name] for name in read if name not in known}
        feeds = feeds or {"nothing": np.zeros((1, 1), np.float32)}
        try:
            return run_model(Case(self.opset, nodes, known, feeds, last.outputs).model(), feeds, last.outputs)
        except Exception as error:  # onnxruntime has no base class of its own
            raise Reject(f"{last.kind}: {error}") from error

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Node:
        return Node(kind, inputs, tuple(self.fresh("t") for _ in range(outputs)), attributes)

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """The node's first output; Reject where onnxruntime refuses it or its values make no sense."""
        return self.add_all(self.node(kind, *inputs, outputs=outputs, **attributes))

    def add_all(self, *nodes: Node) -> str:
        """The last node's first output; nobody else reads what the others make, which may be sequences."""
        last = nodes[-1]
        for name, x in self._run(*nodes).items():
            self._sensible(last.kind, x)
            self.values[name] = x
        self.nodes.extend(nodes)
        return last.outputs[0]

    def outputs_of(self, name: str) -> tuple[str, ...]:
        """All outputs of the node that makes this tensor."""
        return next(node.outputs for node in self.nodes if name in node.outputs)

    def _sensible(self, kind: str, x: np.ndarray) -> None:
        size = prod(x.shape[1:])
        if not 0 < size <= ELEMENTS or len(x.shape) - 1 > RANK:
            raise Reject(f"{kind}: shape {x.shape[1:]}")
        if x.dtype.kind != "f":
            return
        largest = float(np.abs(x.astype(np.float64)).max())
        if not np.isfinite(largest) or largest > (6e4 if x.dtype == np.float16 else LARGEST):
            raise Reject(f"{kind}: values up to {largest:g}")
        if largest < USUAL[0] and kind in PROBABLE:  # logits far below 0
            return
        if largest and not USUAL[0] <= largest <= USUAL[1] and not (self.extremes and self.chance(0.5)):
            raise Reject(f"{kind}: values up to {largest:g}")

    # -- forms that depend on the opset -------------------------------------------------------------------------------

    def since(self, opset: int) -> None:
        """Reject where the operator does not exist yet."""
        if self.opset < opset:
            raise Reject(f"opset {self.opset}")

    def with_axes(self, kind: str, x: str, axes: Sequence[int], since: int, **attributes: Any) -> str:
        """Axes are an attribute before an opset, an input since; from opset 11 on they may be negative."""
        if self.opset < 11:
            rank = len(self.shape(x)) + (len(axes) if kind == "Unsqueeze" else 0)
            if not rank:
                raise Reject(f"{kind}: no axes")
            axes = sorted(axis % rank for axis in axes)
        if self.opset < since:
            return self.add(kind, x, axes=list(axes), **attributes)
        return self.add(kind, x, self.const(list(axes)), **attributes)

    # -- trying -------------------------------------------------------------------------------------------------------

    def attempt(self, step: Callable[[Net, str], str], x: str) -> str | None:
        """The step's result; None, and everything as before, where it is rejected or finds nothing to choose from."""
        nodes, values = list(self.nodes), dict(self.values)
        constants, folded, loose, feeds = dict(self.constants), dict(self.folded), set(self.loose), dict(self.feeds)
        try:
            return step(self, x)
        except (Reject, ValueError, IndexError):
            self.nodes, self.values, self.feeds = nodes, values, feeds
            self.constants, self.folded, self.loose = constants, folded, loose
            return None

    def case(self, outputs: Sequence[str]) -> Case:
        whole = Case(self.opset, tuple(self.nodes), self.constants, self.feeds, tuple(outputs), frozenset(self.loose))
        trimmed = whole.trimmed()
        read = {name for node in trimmed.nodes for name in node.inputs}
        feeds = {n: x for n, x in self.feeds.items() if n in read or self.chance(UNREAD)}
        batched = all(x.shape[1:2] == (1,) for x in feeds.values()) and self.chance(0.15)
        return replace(trimmed, feeds=feeds, batched=batched)
