"""nmpconv bundle --as: what each build system's rules demand, and a build by the steps that the README gives.

Build systems that are not here are stood in for (build_systems/): files that a package writes for them are read by
these as the real ones read them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from c_core import objects

import nmpconv
from nmpconv.exporters.layouts import LAYOUTS, USUAL

HERE = Path(__file__).parent / "build_systems"
RAN = "the outputs are those of the test vector\n"
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
EXAMPLES = ("buffer", "device", "measure", "test_vector")
DEVICE = ["device"]  # the example of an interpreter alone
CODE = (".c", ".h", ".hpp", ".inc", ".ino")
MODELS = {"one": ["kws"], "two": ["kws", "vww"], "alone": []}

Files = Mapping[str, str]
Bundle = Callable[..., Files]


@pytest.fixture(params=MODELS)
def packaged(request: pytest.FixtureRequest, model: Path) -> Bundle:
    """packaged(layout): texts of a bundle by path, with one model, with two, or of the interpreter alone."""
    models = dict.fromkeys(MODELS[request.param], model)
    return lambda layout: {p: text.decode() for p, text in nmpconv.bundle(models, as_=layout).items()}


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Callable[[str], Path]:
    """folder(layout): a bundle of two models on disk."""

    def written(layout: str) -> Path:
        nmpconv.bundle({"kws": model, "vww": model}, as_=layout, output=tmp_path / "bundle")  # type: ignore[arg-type]
        return tmp_path / "bundle"

    return written


def has_models(files: Files) -> bool:
    return any(path.endswith("_data.c") for path in files)


def examples(files: Files) -> Sequence[str]:
    return EXAMPLES if has_models(files) else DEVICE


def run(command: list[str | Path], **environment: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_package_has_sources_steps_and_a_licence(layout: str, packaged: Bundle) -> None:
    files = packaged(layout)
    assert {"LICENSE", "README.md", "src/nmp.h", "src/nmp.hpp", "src/nmp.c"} <= files.keys()
    assert not re.search(r"@[A-Z]+@", "".join(files.values()))
    assert sum(line.startswith("## ") for line in files["README.md"].splitlines()) == 2
    steps = re.findall(r"(?:cd|build -b BOARD) ((?:examples|samples)/\w+)", files["README.md"])
    assert all(any(path.startswith(f"{step}/") for path in files) for step in steps)
    ours = [p for p in files if p.endswith(CODE) and not p.endswith(("_data.c", "_data.h"))]
    assert all(files[path].startswith("/* SPDX-License-Identifier: Apache-2.0 */\n") for path in ours)


def test_a_folder_for_several_build_systems_by_default(model: Path) -> None:
    """A plain bundle, as every one was before --as."""
    files = nmpconv.bundle({"model": model})
    assert {"CMakeLists.txt", "library.properties", "library.json", "src/model_data.h"} <= files.keys()
    each = [nmpconv.bundle({"model": model}, as_=layout) for layout in USUAL]
    assert set(files) == {path for one in each for path in one}


def test_arduino(packaged: Bundle) -> None:
    """Rules of the library specification, the strict ones of the linter among them."""
    files = packaged("arduino")
    fields = dict(line.split("=", 1) for line in files["library.properties"].splitlines())
    required = {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"}
    assert required <= fields.keys() <= required | {"includes", "depends", "license"}
    assert all(fields.values())
    assert re.fullmatch(r"[A-Za-z0-9][\w.-]{0,31}", fields["name"]) and "arduino" not in fields["name"].lower()
    assert SEMVER.fullmatch(fields["version"])
    assert fields["category"] == "Data Processing"
    assert urlsplit(fields["url"]).scheme == "https" and urlsplit(fields["url"]).netloc
    assert f"src/{fields['includes']}" in files
    sketches = [Path(path) for path in files if path.endswith(".ino")]
    assert all(path.parent.name == path.stem and path.parts[0] == "examples" for path in sketches)
    assert sorted(path.stem for path in sketches) == sorted(examples(files))
    beside = {str(path.parent) for path in sketches}  # C files there would be compiled with the sketch
    assert not [p for p in files if str(Path(p).parent) in beside and not p.endswith(".ino")]


def test_platformio(packaged: Bundle) -> None:
    files = packaged("platformio")
    manifest = json.loads(files["library.json"])
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,100}", manifest["name"]) and SEMVER.fullmatch(manifest["version"])
    assert manifest["license"] == "Apache-2.0" and len(manifest["description"]) <= 255
    assert manifest["repository"]["type"] == "git" and manifest["repository"]["url"].startswith("https://")
    assert all(len(word) <= 50 and word == word.lower() for word in manifest["keywords"])
    assert f"src/{manifest['headers']}" in files
    listed = [f"{one['base']}/{name}" for one in manifest.get("examples", ()) for name in one["files"]]
    assert sorted(listed) == sorted(path for path in files if path.endswith(".ino"))


def test_zephyr(packaged: Bundle) -> None:
    files = packaged("zephyr")
    module = yaml.safe_load(files["zephyr/module.yml"])
    assert module.keys() <= {"name", "build", "samples"} and module["build"].keys() == {"cmake", "kconfig"}
    assert f"{module['build']['cmake']}/CMakeLists.txt" in files and module["build"]["kconfig"] in files
    [option] = re.findall(r"^config (\w+)$", files["zephyr/Kconfig"], re.M)
    assert re.search(r"^\tbool \"[^\"]+\"$", files["zephyr/Kconfig"], re.M)
    assert f"if(CONFIG_{option})\n" in files["zephyr/CMakeLists.txt"]
    samples = {path.split("/")[1] for path in files if path.startswith("samples/")}
    assert samples == set(examples(files))
    for name in samples:
        assert f"CONFIG_{option}=y\n" in files[f"samples/{name}/prj.conf"]
        about = yaml.safe_load(files[f"samples/{name}/sample.yaml"])
        assert about.keys() == {"sample", "tests"} and len(about["tests"]) == 1
        [tested] = about["tests"].values()
        assert ("build_only" if name == "device" else "harness_config") in tested
        assert f"samples/{name}/src/main.c" in files


def test_idf(packaged: Bundle) -> None:
    files = packaged("idf")
    manifest = yaml.safe_load(files["idf_component.yml"])
    assert manifest.keys() == {"version", "description", "url", "license", "dependencies"}
    assert SEMVER.fullmatch(manifest["version"]) and urlsplit(manifest["url"]).scheme == "https"
    assert manifest["dependencies"].keys() == {"idf"}
    projects = {path.split("/")[1] for path in files if path.startswith("examples/")}
    assert projects == set(examples(files))
    for name in projects:
        assert {
            f"examples/{name}/{path}" for path in ("CMakeLists.txt", "main/CMakeLists.txt", "main/main.c")
        } <= files.keys()


# Order of elements of a package and of a file's attributes, by the schema of packs.
PACK = ["vendor", "name", "description", "url", "license", "releases", "conditions", "components"]


def test_cmsis_pack(packaged: Bundle) -> None:
    files = packaged("cmsis-pack")
    [path] = [path for path in files if path.endswith(".pdsc")]
    root = ElementTree.fromstring(files[path])
    assert [one.tag for one in root] == PACK
    assert path == f"{root.findtext('vendor')}.{root.findtext('name')}.pdsc"
    url = root.findtext("url") or ""
    assert url.startswith("https://") and url.endswith("/")  # PATH/Vendor.Name.pdsc is below it
    assert root.findtext("license") in files
    conditions = {one.get("id") for one in root.iter("condition")}
    [component] = list(root.iter("component"))
    assert component.get("condition") in conditions
    assert SEMVER.fullmatch(component.get("Cversion") or "")
    listed = {one.get("name") or "": one for one in component.iter("file")}
    assert [name for name in listed if name not in files and name != "src/"] == []
    assert {one.get("category") for one in listed.values()} == {"doc", "include", "header", "source"}
    assert {name for name in files if name.endswith(".c")} == {name for name in listed if name.endswith(".c")}
    templates = {name for name, one in listed.items() if one.get("attr") == "template"}
    assert templates == {name for name in files if name.startswith("examples/")}


@pytest.mark.slow
def test_zephyr_sample_is_built(folder: Callable[[str], Path], tmp_path: Path, need_tool: Callable[..., str]) -> None:
    need_tool("gcc")
    cmake, sample = need_tool("cmake"), folder("zephyr") / "samples" / "test_vector"
    run([cmake, "-S", sample, "-B", tmp_path / "b", f"-DZephyr_DIR={HERE / 'zephyr'}"])
    run([cmake, "--build", tmp_path / "b"])
    assert run([tmp_path / "b" / "app"]).count(RAN) == 2
    fast = (tmp_path / "b" / "module" / "CMakeFiles" / "nmp_kws_vww.dir" / "flags.make").read_text()
    assert "kernels_portable.c.o_OPTIONS = -O2" in fast and "nmp.c.o_OPTIONS" not in fast


SAYS = {"test_vector": RAN, "buffer": "is the largest", "measure": ": us 7\n"}


@pytest.mark.slow
def test_idf_examples_are_built(folder: Callable[[str], Path], tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """Twice read, as ESP-IDF does: `project` in a script is an error of CMake's own."""
    need_tool("gcc")
    cmake, component = need_tool("cmake"), folder("idf")
    for name in SAYS:
        run([cmake, "-S", component / "examples" / name, "-B", tmp_path / name], IDF_PATH=str(HERE / "idf"))
        run([cmake, "--build", tmp_path / name])
        said = run([tmp_path / name / f"{name}.elf"])
        assert said.count(": 7 us, arena " if name == "measure" else SAYS[name]) == 2


@pytest.mark.slow
def test_arduino_sketches_are_built(
    folder: Callable[[str], Path], tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """As the builder does: a sketch in C++ after Arduino.h, all C files below src/."""
    library = folder("arduino")
    made = objects([need_tool("gcc"), "-O0"], sorted((library / "src").rglob("*.c")), tmp_path / "objects")
    cxx = [need_tool("g++"), "-std=gnu++11", "-O0", "-Wall", "-Werror", "-include", "Arduino.h"]
    for name in SAYS:
        sketch, compiled = library / "examples" / name / f"{name}.ino", tmp_path / f"{name}.o"
        run([*cxx, "-x", "c++", f"-I{HERE / 'arduino'}", f"-I{library / 'src'}", "-c", sketch, "-o", compiled])
        run([*cxx[:1], compiled, *made, "-o", tmp_path / name])
        assert run([tmp_path / name]).count(SAYS[name]) == 2
