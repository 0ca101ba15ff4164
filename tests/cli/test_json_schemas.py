"""Output of --json is as the schemas in docs/reference/json say; --bless writes them anew and keeps descriptions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from every_command import BOARD, COMMANDS, ON_A_BOARD
from json_schemas import kind_of, problems

from nmpconv.cli import main
from nmpconv.device import drives, simulator

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Objects whose keys are names: of outputs, recipes, metrics and so on.
BY_NAME = {"sqnr_db", "metadata", "metrics", "parity", "costliest", "shares", "grids", "said"}


@pytest.fixture
def printed(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[[str], list[Any]]:
    """printed(command): what it prints with --json."""
    shutil.copytree(inputs, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(simulator, "_folders", lambda: [Path.cwd()])
    monkeypatch.setattr(drives, "mount_points", lambda: iter([Path("drive"), Path("other")]))

    def objects(command: str) -> list[Any]:
        found = [json.loads(Path("built.json").read_text())] if command == "device-build" else []
        for words in COMMANDS[command]:
            capsys.readouterr()
            main([*words, "--json"])
            found.append(json.loads(capsys.readouterr().out))
        return found

    return objects


def schema_of(values: list[Any], name: str = "") -> dict[str, Any]:
    """The kind that all of the values have."""
    found: dict[str, Any] = {"type": ordered({kind_of(value) for value in values})}
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


def widened(new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that allows what the old one does, too: null for what these commands always know, and keys that need not
    be there. Other keys that they do not print are gone."""
    types = [one["type"] for one in (new, old) if "type" in one]
    kinds = {kind for named in types for kind in ([named] if isinstance(named, str) else named)}
    found = {**new, "type": ordered(kinds)}
    if "properties" in new and "properties" in old:
        before, needed = old["properties"], old.get("required", ())
        found["properties"] = {key: widened(v, before.get(key, {})) for key, v in new["properties"].items()}
        found["properties"] |= {k: v for k, v in before.items() if k not in new["properties"] and k not in needed}
        found["required"] = [key for key in new["required"] if key in needed or key not in before]
    for part in ("properties", "required", "items", "additionalProperties"):
        if part not in new and part in old:
            found[part] = old[part]
        elif part in ("items", "additionalProperties") and isinstance(new.get(part), dict):
            found[part] = widened(new[part], inner if isinstance(inner := old.get(part), dict) else {})
    return found


def ordered(kinds: set[str]) -> str | list[str]:
    """As a type has it: null at the end, no integer beside a number."""
    left = sorted(kinds - ({"integer"} if "number" in kinds else set()), key=lambda kind: (kind == "null", kind))
    return left[0] if len(left) == 1 else left


def without_descriptions(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            k: without_descriptions(v) for k, v in schema.items() if not (k == "description" and isinstance(v, str))
        }
    return schema


@pytest.mark.parametrize("command", COMMANDS)
def test_schema(
    command: str,
    printed: Callable[[str], list[Any]],
    root: Path,
    bless: bool,
    need_tool: Callable[..., str],
    need_package: Callable[..., None],
) -> None:
    if command == "page":  # compiles what it holds
        need_tool("make")
        need_package("ziglang")
    path = root / "docs" / "reference" / "json" / f"{command}.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    title = command.replace("-", " ")
    values = printed(command)
    new = {"$schema": DIALECT, "title": title, **widened(schema_of(values), old)}
    if bless:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(with_descriptions(new, old), indent=1, ensure_ascii=False) + "\n")
        return
    assert without_descriptions(old) == without_descriptions(new)
    assert [wrong for value in values for wrong in problems(value, old)] == []


@pytest.mark.slow
def test_of_a_board(printed: Callable[[str], list[Any]], root: Path, firmware: Callable[[str], Path], capsys) -> None:
    """Instructions instead of milliseconds."""
    shutil.copy(firmware(BOARD), ".")
    assert main([*ON_A_BOARD, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    schema = json.loads((root / "docs" / "reference" / "json" / "bench-device.json").read_text())
    assert (found["instructions"] > 0, found["latency_ms"]) == (True, None)
    assert list(problems(found, schema)) == []


def test_every_schema_is_of_a_command(root: Path) -> None:
    assert {path.stem for path in (root / "docs" / "reference" / "json").glob("*.json")} == set(COMMANDS)


def test_schemas_tell_kinds_apart() -> None:
    found = schema_of([{"a": 1, "b": [1, 2.5]}, {"a": None, "c": "x"}])
    assert found["required"] == ["a"]
    assert found["properties"]["a"] == {"type": ["integer", "null"]}
    assert found["properties"]["b"]["items"] == {"type": "number"}


def test_problems_are_seen() -> None:
    schema = schema_of([{"a": 1, "b": [{"c": 2.5}], "said": {"x": 1}}, {"a": None, "b": [], "said": {}}])
    assert list(problems({"a": 3, "b": [{"c": 4}], "said": {"y": 2}}, schema)) == []
    assert list(problems({"a": 0.5, "b": [{}, {"c": None}], "d": 1, "said": {"x": "n"}}, schema)) == [
        "$.a is number, not integer or null",
        "$.b[0] has no c",
        "$.b[1].c is null, not number",
        "$.d is not in the schema",
        "$.said.x is string, not integer",
    ]
    assert list(problems({"b": []}, schema)) == ["$ has no a", "$ has no said"]


def test_a_schema_may_allow_more() -> None:
    """But it needs no other keys."""
    new = schema_of([{"a": 1, "b": {"c": 2}}])
    old = {
        "type": ["object", "null"],
        "properties": {"a": {"type": ["integer", "null"]}, "z": {}, "o": {}},
        "required": ["b", "z"],
    }
    found = widened(new, old)
    assert found["type"] == ["object", "null"] and found["required"] == ["b"]
    assert found["properties"] == {"a": {"type": ["integer", "null"]}, "b": new["properties"]["b"], "o": {}}
