"""The interpreter, with or without models in it, as a C library: a folder to drop into a firmware project.

src/nmp.h, src/nmp.hpp         the interpreter's functions; the same for C++
src/**                         the interpreter; with models, reduced to the ops that they have
src/NAME_data.h, .c            of each model: sizes, shapes and exponents; its file's bytes as an array
src/model_data.h               the same under the names that every model had before 0.2.0, where there is one model
examples/, samples/            programs and sketches
LICENSE                        of the interpreter; each of its files names it (SPDX)
the rest                       what build systems want: see `packages`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nmpconv.base.files import licence
from nmpconv.errors import UsageError
from nmpconv.exporters.c_sources.bundled_model import BundledModel, bundled, c_name, check_name, knows_two_memories
from nmpconv.exporters.c_sources.data_header import OLD_NAME, data_files, old_header
from nmpconv.exporters.c_sources.interpreter_sources import ON_PCS, SPDX, interpreter_files
from nmpconv.exporters.c_sources.packages import package_of, packaged
from nmpconv.exporters.c_sources.readme import readme
from nmpconv.exporters.layouts import USUAL, Layout

__all__ = ["ON_PCS", "BundledModel", "bundle", "c_name"]
CODE = (".c", ".h", ".ino")
MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)


def bundle(
    models: Mapping[str, bytes], *, name: str = "", layouts: Sequence[Layout] = USUAL, tensors: bool = False
) -> dict[str, bytes]:
    """Relative path to content.

    models: .nmp files by their names in C; none: the interpreter alone. name: of the package, without its nmp_;
    default: those of the models. tensors: headers have the grids of all activations, too. Raises UsageError for a name.
    """
    all_ = bundled(models)
    package = package_of(check_name(name) if name else _joined(all_), all_)
    sources = dict(interpreter_files(all_, package.export))
    macros: dict[str, str] = {}
    for model in all_:
        own = data_files(model, tensors, split=knows_two_memories(all_))
        _check_macros(model, own[f"{model.name}_data.h"], macros)
        sources |= own
    if len(all_) == 1 and all_[0].name.lower() != OLD_NAME:  # Model_data.h would be this file on some systems
        sources[f"{OLD_NAME}_data.h"] = old_header(all_[0], sources[f"{all_[0].name}_data.h"])
    files = {f"src/{path}": text for path, text in sources.items()}
    for path, text in packaged(package, layouts, sorted(sources)).items():
        files[path] = SPDX + text if path.endswith(CODE) else text
    files["README.md"] = readme(package, layouts)
    files["LICENSE"] = licence()
    return {path: text.encode() for path, text in sorted(files.items())}


def _check_macros(model: BundledModel, header: str, seen: dict[str, str]) -> None:
    """Raises UsageError for a macro that another model's header has; seen: models by their macros, added to."""
    for macro in sorted(set(MACRO.findall(header))):
        if (other := seen.setdefault(macro, model.name)) != model.name:
            raise UsageError(
                f"{other} and {model.name} would both define {macro}; give one of the files another name", where="name"
            )


def _joined(models: Sequence[BundledModel]) -> str:
    """Name of a package: that of its model, or those of all of them as far as there is room."""
    return models[0].name if len(models) == 1 else c_name("_".join(model.name for model in models)) if models else ""
