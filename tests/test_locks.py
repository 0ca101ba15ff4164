"""Packages for tests, lint and the site are pinned by hashes, in versions that the project allows."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LOCKS = sorted((ROOT / "packaging" / "locks").glob("*.lock"))
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def pinned(lock: Path) -> list[Requirement]:
    return [Requirement(line) for line in re.findall(r"^([^\s#].*?)(?: \\)?$", lock.read_text(), re.MULTILINE)]


def version(lock: Path, name: str, python: str) -> Version | None:
    """The pinned version of a package, on Linux with this Python."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": "linux",
        "os_name": "posix",
    }
    matches = [
        pin
        for pin in pinned(lock)
        if canonical(pin.name) == canonical(name) and (pin.marker is None or pin.marker.evaluate(environment))
    ]
    assert len(matches) <= 1, f"{lock.name} has {name} {len(matches)} times for Python {python}"
    return Version(next(iter(matches[0].specifier)).version) if matches else None


def wanted() -> dict[str, list[str]]:
    """By lock, what pyproject.toml and the tools of `make wheels` ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, needs = project["project"]["optional-dependencies"], project["project"]["dependencies"]
    tools = (ROOT / "packaging" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return {
        "build": project["build-system"]["requires"],
        "run": needs,
        "test": [*needs, *extras["test"]],
        "lint": extras["lint"],
        "docs": extras["docs"],
        "proofs": extras["proofs"],
        "sim": [*extras["sim"], *(line for line in tools if line.startswith("ziglang"))],
        "wheels": [line for line in tools if not line.startswith("#")],
    }


def test_each_has_a_lock() -> None:
    assert {lock.stem for lock in LOCKS} == set(wanted())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_versions_are_allowed_and_have_hashes(lock: Path) -> None:
    packages = re.split(r"^(?=[^\s#])", lock.read_text(), flags=re.MULTILINE)[1:]
    assert len(packages) == len(pinned(lock)) >= len(wanted()[lock.stem])
    assert [text.splitlines()[0] for text in packages if "--hash=sha256:" not in text] == []
    for python in PYTHONS[1:] if lock.stem == "docs" else PYTHONS:
        for need in map(Requirement, wanted()[lock.stem]):
            if need.marker is None or need.marker.evaluate({"python_version": python}):
                locked = version(lock, need.name, python)
                assert locked is not None, f"{need} for Python {python}: make lock"
                assert locked in need.specifier, f"{need} for Python {python}, not {locked}: make lock"


@pytest.mark.parametrize("python", PYTHONS)
def test_locks_agree(python: str) -> None:
    """They may be installed into one environment."""
    names = {canonical(pin.name) for lock in LOCKS for pin in pinned(lock)}
    for name in names:
        versions = {version(lock, name, python) for lock in LOCKS if not (lock.stem == "docs" and python == "3.10")}
        assert len(versions - {None}) <= 1, f"{name} for Python {python}: {versions}"


def test_no_recipe_installs_anything_else() -> None:
    """Recipes of the Makefile. Peers and published architectures are measured against, in environments of their own."""
    recipes = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line]
    others = [line for line in recipes if "--require-hashes" not in line and "--no-deps" not in line]
    assert len(recipes) > len(others)
    assert all(re.search(r"(MODELS|BENCH)_VENV|build/lock", line) for line in others), others
