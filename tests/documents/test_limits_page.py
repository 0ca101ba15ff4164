"""docs/reference/limits.md: each number is that of the constants beside it, and no limit is missing."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "limits.md"
ROW = re.compile(r"^\| (?P<what>.+?) \| (?P<limit>.+?) \| (?P<places>`.+`) \|$", re.MULTILINE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\^\d+)?(?: - \d+)?")
# Named like limits, and none of what is accepted: thresholds and tables of an implementation, which choose a way.
CHOICES = {
    "nmpconv/data/camera.py": {"SHIFT_MAX", "FACTOR_MAX", "BIAS_MAX"},  # of 32 bits
    "nmpconv/base/fixed_point.py": {"INT_MAX"},
    "nmpconv/base/sound.py": {"FLOOR_MAX", "OFFSET_MAX"},  # of the format, with their checks in C
    "interpreter/src/core/sounds.c": {"FLOOR_MAX", "OFFSET_MAX"},
    "nmpconv/base/summary.py": {"ROWS_MAX", "LINE_MAX"},
    "nmpconv/calib/native_sums.py": {"TAPS_MAX", "ROWS_MAX"},
    "nmpconv/calib/observers.py": {"CHANNELS_MAX", "RISE_MAX"},
    "nmpconv/device/link.py": {"WAIT_MAX", "GROWN_MAX"},
    "nmpconv/ops/grid_sample.py": {"RISE_MAX", "PLACE_MAX"},  # from SHIFT_MAX
    "nmpconv/ops/op.py": {"FLOAT32_MAX"},  # of the type
    "nmpconv/ops/requantize.py": {"FLOAT_MAX"},
    "nmpconv/ops/resize.py": {"RISE_MAX"},
    "nmpconv/runtime/benchmark.py": {"RUNS_MAX"},
    "nmpconv/device/protocol.py": {"_ENCODED_MAX"},
    "nmpconv/frontend/onnx.py": {"BOTH_MAX", "CUTS_MAX"},
    "nmpconv/frontend/read.py": {"OPSET_MAX"},  # that of the installed onnx
    "nmpconv/ops/lookup.py": {"PIECE_MAX"},
    "nmpconv/ops/sum_lookup.py": {"PIECES_MAX"},  # of the format, with its check in C
    "interpreter/src/ops/sum_lookup.c": {"PIECES_MAX"},
    "nmpconv/passes/float/quotients.py": {"EPSILON_MAX"},
    "nmpconv/passes/quantize/input_grids.py": {"CHANNELS_MAX"},
    "nmpconv/passes/quantize/rounding.py": {"COLUMNS_MAX"},
    "interpreter/src/core/fuse/fuse_concat.c": {"CONVS_MAX", "INPUTS_MAX"},
    "interpreter/src/core/fuse/fuse_rows.c": {"OPS_MAX"},
    "interpreter/src/kernels/kernels.h": {"NMP_RESIZE_V_MAX", "NMP_MAX"},
    "interpreter/src/ops/resize.c": {"SUM_MAX"},  # in units of WEIGHT_BITS: test_in_c holds it
    "interpreter/src/ops/softmax.c": {"EXPONENT_MIN"},
}


def rows() -> list[tuple[str, int, list[tuple[str, str]]]]:
    """Rows of the page: what is limited, its number, and the constants by file and name."""
    found = []
    for row in ROW.finditer(PAGE.read_text(encoding="utf-8")):
        numbers = NUMBER.findall(row["limit"])
        assert len(numbers) == 1, row["what"]
        places = [tuple(place.rsplit(":", 1)) for place in re.findall(r"`([^`]+)`", row["places"])]
        found.append((row["what"], value(numbers[0].replace(",", "").replace("^", "**")), places))
    return found


def value(text: str) -> Any:
    """The value of an expression of numbers."""
    return eval(compile(ast.parse(text, mode="eval"), "limits", "eval"), {"__builtins__": {}}, {})


def constant(path: str, name: str) -> Any:
    if path.endswith(".py"):
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return getattr(importlib.import_module(module), name)
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.findall(rf"^#define {name} +(.+?)(?: *//.*| */\*.*)?$", text, re.MULTILINE)
    assert len(found) == 1, f"{path}: {name} is defined {len(found)} times"
    return value(re.sub(r"\((?:u?int\d+_t|size_t)\)", "", re.sub(r"\b(0x[0-9a-f]+|\d+)[uUlL]+\b", r"\1", found[0])))


ROWS = rows()


@pytest.mark.parametrize(("row", "number", "places"), ROWS, ids=[row[0] for row in ROWS])
def test_each_number_is_the_code_s(row: str, number: int, places: list[tuple[str, str]]) -> None:
    assert [f"{path}:{name} is {constant(path, name)}" for path, name in places if constant(path, name) != number] == []


def named_like_limits() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "nmpconv").rglob("*.py")):
        targets = re.findall(r"^((?:\w+, )*\w+)(?: *:[^=\n]*)? = ", path.read_text(encoding="utf-8"), re.MULTILINE)
        names = [name for some in targets for name in some.split(", ") if name.endswith("_MAX")]
        yield from ((str(path.relative_to(ROOT)), name) for name in names)
    folders = ("include", "src/base", "src/core", "src/ops", "src/kernels")
    for path in sorted(path for folder in folders for path in (ROOT / "interpreter" / folder).rglob("*.[ch]")):
        names = re.findall(r"^#define (\w+_(?:MAX|MIN)|SPREAD)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
        yield from ((str(path.relative_to(ROOT)), name) for name in names)


def test_no_limit_is_missing() -> None:
    told = {place for _, _, places in ROWS for place in places}
    limits = list(named_like_limits())
    missing = [
        f"{path}: {name}" for path, name in limits if (path, name) not in told and name not in CHOICES.get(path, ())
    ]
    assert missing == [], "write it into docs/reference/limits.md, or into CHOICES here"
    gone = [f"{path}: {name}" for path, names in CHOICES.items() for name in names if (path, name) not in limits]
    assert gone == []


def test_in_c() -> None:
    """Limits that C computes otherwise than Python says them."""
    text = (ROOT / "interpreter/src/ops/resize.c").read_text(encoding="utf-8")
    bits = int(re.findall(r"^#define WEIGHT_BITS (\d+)", text, re.MULTILINE)[0])
    assert "SUM_MAX ((int64_t)1 << (WEIGHT_BITS + 1))" in text and 1 << (bits + 1) == 2**16
    text = (ROOT / "interpreter/src/core/model.c").read_text(encoding="utf-8")
    assert "needs->budget = 4096 + 4 * (uint64_t)m->bytes;" in text
    assert "% 64 != 0" in text[text.index("static nmp_rule check_data") :][:400]


@pytest.mark.parametrize("name", ["WEIGHT_ONE", "TURN_ONE", "TURN_SLACK", "FLOOR_MAX", "OFFSET_MAX"])
def test_of_sound_in_c(name: str) -> None:
    """Both verifiers have them by themselves."""
    assert constant("interpreter/src/core/sounds.c", name) == constant("nmpconv/base/sound.py", name)
