"""Products of features, as skl2onnx writes PolynomialFeatures: a ReduceProd for each column, and a Concat of all.

1. Columns of one degree in a row become one product of Gathers: a few nodes in place of hundreds.
2. A Scaler that reads all columns tells the magnitude of each, and so does a linear model of raw features. Features are
   divided by powers of two in front of the products, and the reader takes these up: products of large features, and of
   small ones, are on one grid, that of the Concat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import prod

import numpy as np
import onnx
from onnx import TensorProto

from nmpconv.frontend.node_rewriter import NodeRewriter

Term = tuple[int, ...]
"""Features of a product; () is what stands in front of all products: the column of ones, or other columns."""

LEAST = 2.0**-100  # numbers below tell nothing
SPREAD = 8.0  # of units; weights of features that are alike tell little
ML = "ai.onnx.ml"
_LINEAR = ("LinearClassifier", "LinearRegressor")
_OF_SCALER = ("offset", "scale")
_REALS = ("Normalizer", "Scaler")  # their results are float32


def rewrite(graph: onnx.GraphProto, where: str) -> None:
    """Rewrites the graph in place."""
    if not any(node.domain == ML and node.op_type == "ArrayFeatureExtractor" for node in graph.node):
        return
    writer, nodes, gone = _ColumnWriter(graph, where), list[onnx.NodeProto](), set[str]()
    for node in graph.node:
        source, terms = writer.terms(node)
        if sum(map(bool, terms)) > 1:
            writer.begin(node)
            writer.write(source, terms)
            nodes += writer.nodes
            gone |= writer.between(node)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(node for node in nodes if not gone.issuperset(node.output))


def _rows(linear: onnx.NodeProto) -> int:
    """The number of results of a linear model."""
    numbers = {a.name: onnx.helper.get_attribute_value(a) for a in linear.attribute}
    labels = numbers.get("classlabels_ints", ())
    return len(labels) if linear.op_type == "LinearClassifier" else numbers.get("targets", 1)


class _ColumnWriter(NodeRewriter):
    def __init__(self, graph: onnx.GraphProto, where: str) -> None:
        super().__init__(graph, where)
        self._makers = {name: node for node in graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._ports = {value.name for value in graph.output}

    def terms(self, node: onnx.NodeProto) -> tuple[str, list[Term]]:
        """The features of each column of a Concat, and the tensor that all are from; ("", []) for others."""
        if node.op_type != "Concat" or node.domain or [a.i for a in node.attribute if a.name == "axis"] != [1]:
            return "", []
        sources, terms = set[str](), list[Term]()
        for place, name in enumerate(node.input):
            source, term = self._term(name)
            if source:
                sources.add(source)
            elif place:
                return "", []
            terms.append(term)
        return (sources.pop(), terms) if len(sources) == 1 else ("", [])

    def _term(self, name: str) -> tuple[str, Term]:
        chosen = self._of(name, "ReduceProd")
        columns = self._of(chosen.input[0], "ArrayFeatureExtractor", ML) if chosen else None
        if chosen is None or columns is None or len(columns.input) != 2 or self._axes(chosen) != [1]:
            return "", ()
        index = self._tensors.get(columns.input[1])
        if index is None or any(a.name == "keepdims" and not a.i for a in chosen.attribute):
            return "", ()
        return columns.input[0], tuple(int(i) for i in onnx.numpy_helper.to_array(index).ravel())

    def _of(self, name: str, kind: str, domain: str = "") -> onnx.NodeProto | None:
        """Returns the maker of a tensor that is of this kind and has no other reader, but for its shape."""
        node = self._makers.get(name)
        readers = [reader for reader in self._readers.get(name, ()) if reader.op_type != "Shape"]
        private = name not in self._ports and len(readers) == 1
        return node if node is not None and private and (node.op_type, node.domain) == (kind, domain) else None

    def _axes(self, node: onnx.NodeProto) -> list[int]:
        axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), [])
        if len(node.input) > 1 and node.input[1] in self._tensors:
            axes = [int(i) for i in self._array(node.input[1]).ravel()]
        return axes

    def between(self, node: onnx.NodeProto) -> set[str]:
        """Names of what the columns were made of."""
        products = [name for name in node.input if self._term(name)[0] and len(self._readers[name]) == 1]
        return {*products, *(self._makers[name].input[0] for name in products)}

    def write(self, source: str, terms: Sequence[Term]) -> None:
        units = self._units(source, terms)
        parts = [] if terms[0] else [self._node.input[0]]
        for degree, run in groupby(filter(None, terms), key=len):
            columns = np.array(list(run), np.int64).reshape(-1, degree)
            parts.append(self._product([self._factor(source, column, units) for column in columns.T]))
        self.nodes.append(onnx.helper.make_node("Concat", parts, self._node.output, self._node.name, axis=1))

    def _factor(self, source: str, index: np.ndarray, units: Mapping[int, float]) -> str:
        x = self._add("Gather", [source, self._const(index)], axis=1)
        return self._add("Mul", [x, self._const(np.array([1 / units[i] for i in index], np.float32))]) if units else x

    def _product(self, factors: Iterable[str]) -> str:
        first, *others = factors
        for other in others:
            first = self._add("Mul", [first, other])
        return first

    def _units(self, source: str, terms: Sequence[Term]) -> dict[int, float]:  # case 2
        """A power of two for each feature, which the reader of the columns has taken up; {} where there is none."""
        readers = self._readers.get(self._node.output[0], ())
        if len(readers) != 1 or self._node.output[0] in self._ports or readers[0].domain != ML:
            return {}
        if not self._is_float32(source):
            return {}
        reader, features = readers[0], sorted({i for term in terms for i in term})
        counts = np.array([[term.count(i) for i in features] for term in terms], np.float64)
        attributes = {a.name: np.array(a.floats) for a in reader.attribute if a.floats}
        if reader.op_type == "Scaler" and {len(terms)} == {attributes.get(key, counts[:0]).size for key in _OF_SCALER}:
            reach = np.hypot(attributes["offset"], 1 / np.maximum(np.abs(attributes["scale"]), LEAST))
            taken_up = {"offset": -1, "scale": 1}
        elif reader.op_type in _LINEAR and source not in self._makers:  # features of a Scaler are alike
            weights = attributes.get("coefficients", counts[:0])
            if weights.size != _rows(reader) * len(terms) or not weights.size:  # () is more than one column
                return {}
            reach = 1 / np.maximum(np.abs(weights.reshape(-1, len(terms))).max(axis=0), LEAST)
            counts, taken_up = np.c_[counts, np.ones(len(terms))], {"coefficients": 1}
        else:
            return {}
        known = np.array([bool(term) for term in terms]) & (reach < 1 / LEAST)
        logs = np.linalg.lstsq(counts[known], np.log2(reach[known]), rcond=None)[0]
        units = {i: 2.0 ** round(float(log)) for i, log in zip(features, logs, strict=False)}
        if max(units.values()) < SPREAD * min(units.values()):
            return {}
        columns = np.array([prod(units[i] for i in term) for term in terms])
        for attribute in reader.attribute:
            if attribute.name in taken_up:
                data = np.array(attribute.floats).reshape(-1, len(terms)) * columns ** taken_up[attribute.name]
                attribute.floats[:] = data.ravel().tolist()
        return units

    def _is_float32(self, name: str) -> bool:
        maker = self._makers.get(name)
        if maker is not None:
            return maker.domain == ML and maker.op_type in _REALS
        types = [value.type.tensor_type.elem_type for value in self._graph.input if value.name == name]
        return types == [TensorProto.FLOAT]
