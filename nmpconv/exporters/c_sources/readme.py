"""README.md of a bundle: sizes, the steps of its build system, and how the interpreter is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nmpconv.exporters.c_sources.bundled_model import BundledModel, knows_two_memories, markdown
from nmpconv.exporters.c_sources.data_header import handle_growth
from nmpconv.exporters.c_sources.examples import examples
from nmpconv.exporters.c_sources.packages import Package
from nmpconv.exporters.c_sources.template_files import filled
from nmpconv.exporters.layouts import Layout
from nmpconv.file._schema import OP_TABLES
from nmpconv.runtime.targets import MICROCONTROLLERS, needs

# Build system to its heading and steps. @FOLDER@: of the bundle.
STEPS: Mapping[Layout, tuple[str, str]] = {
    "plain": (
        "Any build system",
        """Compile every `.c` file in `src` and its folders as C99. Put `src` on the include path of your own files;
files of the bundle find each other by relative paths. Let the linker remove what is not used:
`-ffunction-sections -fdata-sections -Wl,--gc-sections`.""",
    ),
    "cmake": (
        "CMake",
        """    add_subdirectory(@PACKAGE@)                  # this folder
    target_link_libraries(program nmp::@EXPORT@)

Or install it (`cmake --install build`) and use `find_package(@PACKAGE@)`.""",
    ),
    "arduino": (
        "Arduino",
        """Copy this folder into the `libraries` folder of the sketchbook, or zip it and take *Sketch, Include
Library, Add .ZIP Library*. Its sketches are under *File, Examples, @PACKAGE@*.""",
    ),
    "platformio": (
        "PlatformIO",
        """Copy this folder into `lib` of a project, or write its path to `platformio.ini`:

    lib_deps = symlink://path/to/@PACKAGE@""",
    ),
    "zephyr": (
        "Zephyr",
        """    west build -b BOARD samples/@EXAMPLE@

In an application of yours: add this folder to `EXTRA_ZEPHYR_MODULES` before `find_package(Zephyr)`, or
to the manifest of west, and set `CONFIG_@OPTION@=y` in `prj.conf`.""",
    ),
    "idf": (
        "ESP-IDF",
        """    cd examples/@EXAMPLE@ && idf.py set-target esp32s3 && idf.py build flash monitor

In a project of yours: copy this folder to `components/@PACKAGE@`.""",
    ),
    "cmsis-pack": (
        "CMSIS-Pack",
        """    cpackget add nmpconv.@PACKAGE@.pdsc

The component is *Machine Learning, nmp, @EXPORT@*; its examples are templates of user code. Kernels are
faster at `-O2` than at `-Os`.""",
    ),
}

ALONE = """
The example is a device that `nmpconv bench` sends models to: write into it how much RAM they may take.
"""
TURNS = """
Models that run one after the other may share an arena: `nmp_suspend` keeps a model's handle and states
(`..._SUSPENDED_BYTES`) while another one runs, `nmp_resume` goes on with it, and verifies nothing again.
"""


def readme(package: Package, layouts: Iterable[Layout]) -> str:
    models = package.models
    ops = sorted({op.kind for bundled in models for op in bundled.model.ops}) if models else list(OP_TABLES)
    return filled(
        "README.md",
        TITLE=" and ".join(markdown(bundled.model.name) or "A model" for bundled in models) or "The nmp interpreter",
        FACTS="".join(_facts(bundled, split=knows_two_memories(models)) for bundled in models),
        EXAMPLES=_examples(models),
        STEPS="\n".join(_steps(package, layout) for layout in layouts),
        OPS=", ".join(ops),
        FAST=", ".join(f"`src/{path}`" for path in package.fast),
    )


def _facts(bundled: BundledModel, *, split: bool) -> str:
    more = handle_growth(bundled, split=split)
    arenas = "\n".join(f"| on {target} | {needs(bundled.data, target).arena + more} |" for target in MICROCONTROLLERS)
    return f"""
| `{bundled.name}` | bytes |
|---|---|
| model: constant, may stay in flash | {len(bundled.data)} |
| arena: RAM, of which activations {bundled.model.arena_bytes} | at most {bundled.turn.arena + more} |
{arenas}
| stack, on Cortex-M with DSP or vectors | at most {bundled.turn.stack} |
"""


def _examples(models: tuple[BundledModel, ...]) -> str:
    if not models:
        return ALONE
    first = models[0]
    shared = TURNS if len(models) > 1 else ""
    return f"""
`src/{first.name}_data.h` says what goes in and comes out; include it, it brings `nmp.h`. The examples run
a test vector, hand in a buffer, measure, and are a device that `nmpconv bench` sends models to.
{shared}"""


def _steps(package: Package, layout: Layout) -> str:
    title, text = STEPS[layout]
    example = next(iter(examples(package.models)))
    for key, value in {**package.values(), "EXAMPLE": example}.items():
        text = text.replace(f"@{key}@", str(value))
    return f"## {title}\n\n{text}\n"
