"""Packages of build systems: files that each wants in the folder of a bundle besides the sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nmpconv import __version__
from nmpconv.exporters.c_sources.bundled_model import BundledModel
from nmpconv.exporters.c_sources.examples import DEVICE, examples, program, sketch
from nmpconv.exporters.c_sources.interpreter_sources import FRAMES, FRONT_END, PUBLIC
from nmpconv.exporters.c_sources.template_files import filled
from nmpconv.exporters.layouts import Layout

URL = "https://github.com/OWNER/nmpconv"
AUTHORS = "The nmpconv developers"
# Of src/: what computes, and is compiled for speed.
FAST = ("kernels/*.c", "conv/*.c", "arch/*/*.c", "core/decode.c")
FAST_SOUND = "sound/*.c"
# Options of the example that owns the line: what Zephyr and ESP-IDF would print there, and how bytes are heard.
ZEPHYR_DEVICE = """\
CONFIG_SERIAL=y
CONFIG_UART_INTERRUPT_DRIVEN=y
CONFIG_UART_CONSOLE=n
CONFIG_BOOT_BANNER=n
"""
IDF_DEVICE = """\
CONFIG_BOOTLOADER_LOG_LEVEL_NONE=y
CONFIG_LOG_DEFAULT_LEVEL_NONE=y
CONFIG_ESP_TASK_WDT_EN=n
"""
SAID = {"test_vector": "outputs are those", "buffer": "is the largest", "measure": "arena [0-9]+ bytes"}


@dataclass(frozen=True)
class Package:
    """name: of the library. export: of its target in CMake, nmp::EXPORT. header: what programs include."""

    name: str
    export: str
    header: str
    models: tuple[BundledModel, ...]

    @property
    def option(self) -> str:
        """In Zephyr's Kconfig."""
        return self.name.upper()

    @property
    def fast(self) -> tuple[str, ...]:
        return (*FAST, FAST_SOUND) if not self.models or any(model.sounds for model in self.models) else FAST

    @property
    def sentence(self) -> str:
        names = ", ".join(model.name for model in self.models)
        contents = f" with the model{'s' * (len(self.models) > 1)} {names}" if names else ""
        return f"Interpreter of neural networks in integers{contents}."

    def values(self) -> dict[str, object]:
        """Values of the names in templates."""
        return {
            "PACKAGE": self.name,
            "EXPORT": self.export,
            "HEADER": self.header,
            "OPTION": self.option,
            "SENTENCE": self.sentence,
            "VERSION": __version__,
            "URL": URL,
            "AUTHORS": AUTHORS,
            "FAST": " ".join(self.fast),
        }


def package_of(name: str, models: tuple[BundledModel, ...]) -> Package:
    """name: of the package; '': of the interpreter alone."""
    header = f"{models[0].name}_data.h" if models else "nmp.h"
    return Package(f"nmp_{name}" if name else "nmp", name or "nmp", header, models)


def packaged(package: Package, layouts: Iterable[Layout], sources: Sequence[str]) -> dict[str, str]:
    """Files of the layouts by path; paths under src/ are `sources`, relative to it."""
    files: dict[str, str] = {}
    for layout in layouts:
        files |= MAKERS[layout](package, sources)
    return files


def _plain(package: Package, sources: Sequence[str]) -> dict[str, str]:
    return {f"examples/{name}.c": program(name, package.models) for name in examples(package.models)}


def _cmake(package: Package, sources: Sequence[str]) -> dict[str, str]:
    size = " -Os" if package.models else ""
    folder = f"include/{package.name}" if package.models else "include"
    text = filled("CMakeLists.txt", **package.values(), SIZE=size, INCLUDEDIR=folder)
    return {"CMakeLists.txt": text, **_plain(package, sources)}


def _sketches(package: Package) -> dict[str, str]:
    return {f"examples/{name}/{name}.ino": sketch(name, package.models) for name in examples(package.models)}


def _arduino(package: Package, sources: Sequence[str]) -> dict[str, str]:
    return {"library.properties": filled("library.properties", **package.values()), **_sketches(package)}


def _platformio(package: Package, sources: Sequence[str]) -> dict[str, str]:
    sketches = _sketches(package)
    rows = [
        f'{{ "name": "{path.split("/")[1]}", "base": "{path.rpartition("/")[0]}", "files": ["{path.split("/")[2]}"] }}'
        for path in sketches
    ]
    listed = ",\n    ".join(rows)
    return {"library.json": filled("library.json", **package.values(), EXAMPLES=listed), **sketches}


def _zephyr(package: Package, sources: Sequence[str]) -> dict[str, str]:
    values = package.values()
    files = {
        "zephyr/module.yml": filled("module.yml", **values),
        "zephyr/Kconfig": filled("Kconfig", **values),
        "zephyr/CMakeLists.txt": filled("zephyr_module.cmake", **values),
    }
    for name, does in examples(package.models).items():
        folder = f"samples/{name}"
        files[f"{folder}/CMakeLists.txt"] = filled("zephyr_sample.cmake", EXAMPLE=name)
        options = ZEPHYR_DEVICE if name == DEVICE else ""
        files[f"{folder}/prj.conf"] = f"CONFIG_{package.option}=y\nCONFIG_MAIN_STACK_SIZE=8192\n{options}"
        check = filled("console_check.yaml", SAID=SAID[name]) if name in SAID else "    build_only: true\n"
        files[f"{folder}/sample.yaml"] = filled("sample.yaml", **values, EXAMPLE=name, DOES=does, CHECK=check)
        files[f"{folder}/src/main.c"] = program(name, package.models)
    return files


def _idf(package: Package, sources: Sequence[str]) -> dict[str, str]:
    files = {
        "CMakeLists.txt": _cmake(package, sources)["CMakeLists.txt"],
        "idf_component.yml": filled("idf_component.yml", **package.values()),
    }
    for name in examples(package.models):
        folder = f"examples/{name}"
        files[f"{folder}/CMakeLists.txt"] = filled("idf_project.cmake", EXAMPLE=name)
        files[f"{folder}/main/CMakeLists.txt"] = 'idf_component_register(SRCS "main.c")\n'
        options = IDF_DEVICE if name == DEVICE else ""
        files[f"{folder}/sdkconfig.defaults"] = f"CONFIG_ESP_MAIN_TASK_STACK_SIZE=8192\n{options}"
        files[f"{folder}/main/main.c"] = program(name, package.models)
    return files


def _cmsis_pack(package: Package, sources: Sequence[str]) -> dict[str, str]:
    header, include = '<file category="header" name="src/{}"/>', '<file category="include" name="src/"/>'
    heads = [
        *PUBLIC,
        *(path for path in sources if path in (FRAMES, FRONT_END)),
        *(f"{model.name}_data.h" for model in package.models),
    ]
    listed = ['<file category="doc" name="README.md"/>', include, *map(header.format, heads)]
    listed += [f'<file category="source" name="src/{path}"/>' for path in sources if path.endswith(".c")]
    files = _plain(package, sources)
    for path in files:
        does = examples(package.models)[path.rpartition("/")[2].removesuffix(".c")]
        select = f"{package.export}: {does}"
        listed.append(f'<file category="source" name="{path}" attr="template" select="{select}"/>')
    lines = "\n".join(f"        {line}" for line in listed)
    return {f"nmpconv.{package.name}.pdsc": filled("pack.pdsc", **package.values(), FILES=lines), **files}


MAKERS: Mapping[Layout, Callable[[Package, Sequence[str]], dict[str, str]]] = {
    "plain": _plain,
    "cmake": _cmake,
    "arduino": _arduino,
    "platformio": _platformio,
    "zephyr": _zephyr,
    "idf": _idf,
    "cmsis-pack": _cmsis_pack,
}
