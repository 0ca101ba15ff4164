"""What --json prints is as the schemas in docs/reference/json say; --bless writes them anew and keeps descriptions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from every_command import COMMANDS

from nmpconv.cli import main
from nmpconv.device import simulator

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
# Objects whose keys are names: of outputs, recipes, metrics and so on.
BY_NAME = {"sqnr_by_head", "metadata", "metrics", "parity", "costliest", "noise"}


@pytest.fixture
def printed(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[[str], list[Any]]:
    """printed(command): what it prints with --json."""
    shutil.copytree(inputs, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(simulator, "_folders", lambda: [Path.cwd()])

    def objects(command: str) -> list[Any]:
        found = [json.loads(Path("built.json").read_text())] if command == "device-build" else []
        for words in COMMANDS[command]:
            capsys.readouterr()
            main([*words, "--json"])
            found.append(json.loads(capsys.readouterr().out))
        return found

    return objects


def schema_of(values: list[Any], name: str = "") -> dict[str, Any]:
    """What all of the values are."""
    kinds = {"null" if value is None else KINDS[type(value)] for value in values}
    if "number" in kinds:
        kinds.discard("integer")
    ordered = sorted(kinds, key=lambda kind: (kind == "null", kind))
    found: dict[str, Any] = {"type": ordered[0] if len(ordered) == 1 else ordered}
    objects = [value for value in values if isinstance(value, dict)]
    items = [item for value in values if isinstance(value, list) for item in value]
    if objects and name in BY_NAME:
        inner = [v for value in objects for v in value.values()]
        found["additionalProperties"] = schema_of(inner) if inner else True
    elif objects:
        keys = dict.fromkeys(key for value in objects for key in value)
        found["properties"] = {key: schema_of([v[key] for v in objects if key in v], key) for key in keys}
        found["required"] = [key for key in keys if all(key in value for value in objects)]
    if items:
        found["items"] = schema_of(items)
    return found


def with_descriptions(new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the old schema, in the new one."""
    found = {**({"description": old["description"]} if "description" in old else {}), **new}
    if "properties" in new:
        before = old.get("properties", {})
        found["properties"] = {k: with_descriptions(v, before.get(k, {})) for k, v in new["properties"].items()}
    for part in ("items", "additionalProperties"):
        if isinstance(new.get(part), dict):
            found[part] = with_descriptions(new[part], old.get(part, {}))
    return found


def without_descriptions(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            k: without_descriptions(v) for k, v in schema.items() if not (k == "description" and isinstance(v, str))
        }
    return schema


@pytest.mark.parametrize("command", COMMANDS)
def test_schema(command: str, printed: Callable[[str], list[Any]], root: Path, bless: bool) -> None:
    path = root / "docs" / "reference" / "json" / f"{command}.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    title = command.replace("-", " ")
    new = {"$schema": DIALECT, "title": title, **schema_of(printed(command))}
    if bless:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(with_descriptions(new, old), indent=1, ensure_ascii=False) + "\n")
        return
    assert without_descriptions(old) == without_descriptions(new)


def test_every_schema_is_of_a_command(root: Path) -> None:
    assert {path.stem for path in (root / "docs" / "reference" / "json").glob("*.json")} == set(COMMANDS)


def test_schemas_tell_kinds_apart() -> None:
    found = schema_of([{"a": 1, "b": [1, 2.5]}, {"a": None, "c": "x"}])
    assert found["required"] == ["a"]
    assert found["properties"]["a"] == {"type": ["integer", "null"]}
    assert found["properties"]["b"]["items"] == {"type": "number"}
