"""Compares --json of a command with its schema in docs/reference/json, as strictly as the schemas are made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference" / "json"
KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
USED = {"$schema", "title", "description", "type", "properties", "required", "items", "additionalProperties"}
CALLERS = {
    "cli": "error",
    "html_report": "report",
    "bench_device": "bench-device",
    "memory_of_several": "inspect-memory",
    "web_page": "page",
}  # modules of nmpconv.cli


@cache
def schema(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def name_of(frame: FrameType) -> str:
    """The schema of what a function of a command prints."""
    module, function = frame.f_globals["__name__"].rpartition(".")[2], frame.f_code.co_name
    if module == "device":
        return f"device-{'list' if function == 'listed' else function}"
    return CALLERS.get(module, module)


def kind_of(value: object) -> str:
    return "null" if value is None else KINDS[type(value)]


def problems(value: Any, schema: Mapping[str, Any], place: str = "$") -> Iterator[str]:
    """Places where a value is not what a schema says. A key that it does not name is one, though programs ignore it."""
    assert USED.issuperset(schema), set(schema) - USED
    allowed = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    kind = kind_of(value)
    if kind not in allowed and not (kind == "integer" and "number" in allowed):
        yield f"{place} is {kind}, not {' or '.join(allowed)}"
    if isinstance(value, dict):
        yield from (f"{place} has no {key}" for key in schema.get("required", ()) if key not in value)
        other = schema.get("additionalProperties")
        for key, inner in value.items():
            if (known := schema.get("properties", {}).get(key, other)) is None:
                yield f"{place}.{key} is not in the schema"
            elif known is not True:
                yield from problems(inner, known, f"{place}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            if "items" not in schema:
                yield f"{place}[{i}] is not in the schema"
            else:
                yield from problems(inner, schema["items"], f"{place}[{i}]")
