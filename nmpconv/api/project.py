"""A project file: what is converted, from which data, for which targets, and what the results have to reach.

    model = "model.onnx"
    output = "build"                  # the folder that files go to

    [data]
    calibration = "calib/"            # or a table: one source for each input
    test = "test/labels.csv"

    [convert]                         # keywords of nmpconv.convert, for all targets
    mean = [123.675, 116.28, 103.53]

    [gates]
    min_agreement = 99.0

    [targets.board]                   # the same keywords for one target; `target` is the machine
    target = "cortex-m4"
    [targets.board.gates]
    max_ram = 65536

Paths are relative to the file. It is nmpconv.toml, or the table [tool.nmpconv] of a pyproject.toml. Without targets
there is one, called like the model.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmpconv.base import units
from nmpconv.base.files import open_file, place, read_text, toml_of
from nmpconv.data.sources import files_of
from nmpconv.data.tables import asked
from nmpconv.errors import InputError, UsageError, refusal

PYPROJECT = "pyproject.toml"
NAMES = ("nmpconv.toml", PYPROJECT)  # that are looked for, in this order
TABLES = ("model", "output", "data", "convert", "gates", "targets")
PATHS = ("labels", "load_profile", "recipe")  # options that are files
CHUNK = 1 << 20
NAME_MAX = 240  # bytes of a target: file systems have 255, with the endings
GATES = {
    "min_top1": "top1",
    "max_drop": "drop",
    "min_agreement": "agreement",
    "min_sqnr": "sqnr",
    "max_ram": "ram",
    "max_flash": "flash",
    "max_instructions": "instructions",
}
"""Fields of `Measurements` that gates bound."""
COUNTED = {"max_ram": units.BYTES, "max_flash": units.BYTES, "max_instructions": units.COUNT}
OF_LABELS = ("min_top1", "max_drop")


@dataclass(frozen=True)
class ProjectTarget:
    """options: keywords of nmpconv.convert. gates: bounds by the names of `GATES`."""

    name: str
    options: Mapping[str, Any]
    gates: Mapping[str, float]


@dataclass(frozen=True)
class Project:
    """calibration: by input name, '' for the only one. test: None where nothing is measured on labels."""

    path: Path
    model: Path
    output: Path
    calibration: Mapping[str, Path]
    test: Mapping[str, Path] | None
    targets: tuple[ProjectTarget, ...]


@dataclass(frozen=True)
class Measurements:
    """top1, agreement: %. drop: points of top-1 below the float model's. sqnr: dB. ram: bytes of a run. flash: bytes of
    the file. instructions: of a run on the target's simulated board, counted where a gate asks. None: not known."""

    flash: int
    ram: int
    sqnr: float | None = None
    agreement: float | None = None
    top1: float | None = None
    drop: float | None = None
    instructions: int | None = None


@dataclass(frozen=True)
class Gate:
    """One bound and what was found."""

    name: str
    allowed: float
    found: float

    @property
    def met(self) -> bool:
        return self.found >= self.allowed if self.name.startswith("min_") else self.found <= self.allowed


def find(folder: Path) -> Path:
    """The project file of a folder. Raises InputError."""
    for name in NAMES:
        path = folder / name
        if path.is_file() and (name != PYPROJECT or _load(path)):
            return path
    raise InputError(f"no {NAMES[0]} here", where=str(folder), hint="nmpconv init MODEL.onnx writes one")


def read(path: Path) -> Project:
    """Raises InputError, which says what is allowed."""
    root = _load(path)
    _only(root, TABLES, "", path)
    folder, model = path.parent, _text(root, "model", path)
    data, shared, gates = (_table(root, name, path) for name in ("data", "convert", "gates"))
    _only(data, ("calibration", "test"), "data", path)
    targets = _table(root, "targets", path) or {Path(model).stem: {}}
    project = Project(
        path=path,
        model=folder / model,
        output=folder / (_text(root, "output", path) if "output" in root else "build"),
        calibration=_sources(data, "calibration", path),
        test=_sources(data, "test", path) if "test" in data else None,
        targets=tuple(_target(name, table, shared, gates, path) for name, table in targets.items()),
    )
    for target in project.targets if project.test is None else ():
        if gate := next((gate for gate in target.gates if gate in OF_LABELS), ""):
            raise _unmeasured(gate, target, path)  # before hours of work
    return project


def gates(target: ProjectTarget, measured: Measurements, path: Path) -> list[Gate]:
    """All of a target. Raises InputError for one about what was not measured."""
    results = []
    for name, allowed in target.gates.items():
        value = getattr(measured, GATES[name])
        if value is None:
            raise _unmeasured(name, target, path)
        results.append(Gate(name, allowed, value))
    return results


def _unmeasured(gate: str, target: ProjectTarget, path: Path) -> InputError:
    needed = "labels in [data] test" if gate in OF_LABELS else "[data] test, or enough images to hold some out"
    return InputError(f"the gate {gate} of {target.name!r} needs {needed}", where=str(path))


def digest(project: Project, target: ProjectTarget, package: str, weights: Sequence[Path]) -> str:
    """Digest of all that the target's file and measurements depend on, wherever the project lies. package: of the code
    that makes them. weights: files beside the model that hold some of its tensors."""
    plain = {key: value for key, value in target.options.items() if key not in PATHS or not isinstance(value, str)}
    sha256 = hashlib.sha256(json.dumps([package, plain], sort_keys=True).encode())
    for role, path in _read_files(project, target, weights):
        with open_file(path) as (file, size):
            sha256.update(json.dumps([role, size]).encode())
            while chunk := file.read(CHUNK):
                sha256.update(chunk)
    return sha256.hexdigest()


def of_folder(folder: Path, *endings: str) -> str:
    """Digest of the files in a folder that end so."""
    sha256 = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in endings):
        sha256.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return sha256.hexdigest()


def _read_files(project: Project, target: ProjectTarget, weights: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Each with what it is to the target: a file that moves to another folder may get another label."""
    yield "model", project.model
    yield from ((f"weights/{path.name}", path) for path in weights)
    for kind, sources in (("calibration", project.calibration), ("test", project.test or {})):
        for name, source in sources.items():
            if not asked(source)[0].exists():
                hint = " ".join(filter(None, [f"[data] {kind} of {project.path.name} names it;", place(source)]))
                raise InputError("no such file or folder", where=str(source), hint=hint)
            folder = source if source.is_dir() else source.parent
            for path in files_of(source):
                yield f"{kind}/{name}/{Path(os.path.relpath(path, folder)).as_posix()}", path
    for key in PATHS:
        if isinstance(target.options.get(key), str):
            yield key, Path(target.options[key])


def _load(path: Path) -> dict[str, Any]:
    """The tables of a project. Of a pyproject.toml, those of [tool.nmpconv], none where it has no such table."""
    root = toml_of(read_text(path, "project file"), "TOML file", str(path))
    return root if path.name != PYPROJECT else _table(_table(root, "tool", path), "nmpconv", path)


def _only(table: Mapping[str, Any], allowed: tuple[str, ...], name: str, path: Path) -> None:
    for key in table:
        if key not in allowed:
            place = f"in [{name}] " if name else ""
            words = ", ".join(allowed)
            message = f"{key!r} {place}is no key"
            raise InputError(message, where=str(path), found=key, allowed=words, hint=f"allowed: {words}")


def _table(root: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    table = root.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{name} is no table", where=str(path), hint=f"[{name}]")
    return table


def _text(table: Mapping[str, Any], name: str, path: Path) -> str:
    text = table.get(name)
    if not isinstance(text, str) or not text or "\0" in text:
        wrong = "missing" if text is None else "no path"
        raise InputError(f"{name} is {wrong}", where=str(path), hint=f'{name} = "..."')
    return text


def _sources(data: Mapping[str, Any], name: str, path: Path) -> dict[str, Path]:
    sources = data.get(name)
    if isinstance(sources, dict):
        return {key: path.parent / _text(sources, key, path) for key in sources}
    return {"": path.parent / _text(data, name, path)}


def _target(name: str, table: Any, shared: Mapping[str, Any], gates: Mapping[str, Any], path: Path) -> ProjectTarget:
    no_file = Path(name).name != name or name in ("", ".", "..") or "\0" in name or len(name.encode()) > NAME_MAX
    if not isinstance(table, dict) or no_file:
        hint = f"[targets.NAME], a name that files can have, of at most {NAME_MAX} bytes"
        raise InputError(f"{name!r} is no target", where=str(path), hint=hint)
    own = dict(table)
    bounds = {**gates, **_table(own, "gates", path)}
    own.pop("gates", None)
    _only(bounds, tuple(GATES), "gates", path)
    bounds = {gate: _bound(gate, value, path) for gate, value in bounds.items()}
    options = {**shared, **own}
    for key in PATHS:
        if isinstance(options.get(key), str):
            options[key] = str(path.parent / options[key])
    return ProjectTarget(name, options, bounds)


def _bound(gate: str, value: Any, path: Path) -> float:
    """A number; of what is counted, a text with a unit, too."""
    try:
        if isinstance(value, str) and gate in COUNTED:
            return units.whole(value, COUNTED[gate])
        if isinstance(value, str):
            raise refusal(value, "a number")
        units.number(value)
    except UsageError as error:
        raise InputError(
            f"the gate {gate}: {error.message}", where=str(path), found=error.found, allowed=error.allowed
        ) from None
    return value
