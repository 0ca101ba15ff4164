"""nmpconv: from an ONNX CNN and a folder of images to an integer-only `.nmp` file, and running it.

    converted = nmpconv.convert("model.onnx", "images/", mean=127.5, std=127.5)
    converted.save("model.nmp")
    net = nmpconv.load("model.nmp")
    scores, = net(image)

Importing the package takes no time: what a function needs is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"
__all__ = [
    "Bisected",
    "Built",
    "Converted",
    "__version__",
    "bench",
    "bisect",
    "build",
    "bundle",
    "convert",
    "evaluate",
    "export",
    "html_report",
    "init",
    "inspect",
    "load",
    "page",
]

if TYPE_CHECKING:
    from types import ModuleType

    from nmpconv.api.building import Built, build
    from nmpconv.api.conversion import Converted, convert
    from nmpconv.api.evaluation import evaluate
    from nmpconv.api.file_commands import bench, bundle, export, inspect
    from nmpconv.api.pages import html_report, page
    from nmpconv.api.searching import Bisected, bisect
    from nmpconv.api.template import init
    from nmpconv.runtime.interpreter import load
else:
    _HOMES = {
        "convert": "nmpconv.api.conversion",
        "Converted": "nmpconv.api.conversion",
        "evaluate": "nmpconv.api.evaluation",
        "bench": "nmpconv.api.file_commands",
        "bisect": "nmpconv.api.searching",
        "Bisected": "nmpconv.api.searching",
        "build": "nmpconv.api.building",
        "Built": "nmpconv.api.building",
        "bundle": "nmpconv.api.file_commands",
        "export": "nmpconv.api.file_commands",
        "html_report": "nmpconv.api.pages",
        "init": "nmpconv.api.template",
        "inspect": "nmpconv.api.file_commands",
        "load": "nmpconv.runtime.interpreter",
        "page": "nmpconv.api.pages",
    }

    def __getattr__(name: str) -> object:
        if name == "_nmp":  # `from nmpconv import _nmp` asks for it before it imports it
            return _extension()
        if name not in _HOMES:
            raise AttributeError(f"module 'nmpconv' has no attribute {name!r}")
        try:
            return getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("nmpconv."):
                raise
            raise ImportError(f"nmpconv-runtime has no {name}, it runs files: pip install nmpconv instead") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    def _extension() -> ModuleType:
        """The interpreter. Raises NotBuilt."""
        try:
            return import_module("nmpconv._nmp")
        except ModuleNotFoundError as error:
            if error.name != "nmpconv._nmp":
                raise
        from pathlib import Path

        from nmpconv.errors import NotBuilt

        home = Path(__file__).resolve().parent.parent
        hint = "install nmpconv again"
        if (home / "CMakeLists.txt").exists():
            hint = "`make build` there builds it in .venv; to use an installed nmpconv, start it in another folder"
        raise NotBuilt("nmpconv has no compiled interpreter here", where=str(home), hint=hint)
