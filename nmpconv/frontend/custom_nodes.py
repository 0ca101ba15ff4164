"""ONNX nodes that become ops of users (`nmpconv.ops.custom_op`)."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from nmpconv.ops.custom_op import custom_ops


def custom_name(node: onnx.NodeProto) -> str | None:
    """Name of the installed op that a node is; None for others. Raises InputError for one that cannot be used."""
    name = f"{node.domain}::{node.op_type}"
    return name if node.domain and name in custom_ops() else None


def float_forms(functions: Iterable[onnx.FunctionProto]) -> list[tuple[str, str]]:
    """Domains and names of the local functions that are the float form of an installed op: these are not inlined."""
    return [(f.domain, f.name) for f in functions if f"{f.domain}::{f.name}" in custom_ops()]
