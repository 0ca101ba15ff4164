"""Models of the zoo, converted in a second: which recipe makes the weights does not matter for equal bytes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from nmpconv.conversion.pipeline import Options, convert


def bench_module(name: str) -> ModuleType:
    """bench/<name>.py, which is no package; it imports its neighbours."""
    bench = Path(__file__).resolve().parents[1] / "bench"
    if str(bench) not in sys.path:
        sys.path.insert(0, str(bench))
    spec = importlib.util.spec_from_file_location(f"bench_{name}", bench / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


HARNESS = bench_module("zoo")


def converted(zoo: Path, name: str, bits: str, folder: Path, **options: Any) -> tuple[Any, Path]:
    """The result of a quick conversion, and samples that it was not calibrated with (written to folder)."""
    about = json.loads((zoo / "zoo.json").read_text())[name]
    data = HARNESS.split(zoo, name, about, folder)
    chosen = Options(
        bits=bits,
        preprocess=data.preprocess,
        input_shape=HARNESS.shapes(zoo, name, about),
        rounding="nearest",
        **{"equalize": "none", "limit": 4, **options},
    )
    result = convert(zoo / "models" / f"{name}.onnx", {"": data.calib}, chosen, lambda stage, done, total: None)
    return result, data.measure
