"""nmpconv: from an ONNX CNN and a folder of images to an integer-only `.nmp` file, and running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

if TYPE_CHECKING:
    from nmpconv.run.runtime import load
else:

    def __getattr__(name: str) -> object:
        # `nmpconv.load` needs the compiled interpreter; importing the package does not.
        if name == "load":
            from nmpconv.run.runtime import load

            return load
        raise AttributeError(f"module 'nmpconv' has no attribute {name!r}")
