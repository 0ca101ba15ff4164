"""Times of runs that a page of pictures shows, with a clock and a net of our own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from nmpconv.base.files import PACKAGE

SCRIPT = PACKAGE / "exporters" / "browser" / "templates" / "picture.js"
# The clock goes on by what each run takes; the first argument: a function of the run's number.
CLOCK = "let at = 0, k = 0; const performance = {{ now: () => at }}, net = {{ runRaw: () => {{ at += ({})(k++); }} }};"


def told(node: str, takes: str, expression: str) -> object:
    script = SCRIPT.read_text(encoding="utf-8")
    part = script[script.index("const BATCH") : script.index("// All that is done")]
    program = f"{CLOCK.format(takes)}\n{part}\nconsole.log(JSON.stringify({expression}));"
    return json.loads(subprocess.run([node, "-e", program], check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize(
    ("takes", "runs"),
    [
        ("() => 5", 20),
        ("(k) => k === 19 ? 3.9 : 5", 21),  # one batch is just under the least
        ("(k) => k < 19 ? 5 : 1", 4),  # the last ones are far under it
        ("() => 1 / 64", 256 * 25),
        ("() => 200", 1),
    ],
)
def test_times_are_there(takes: str, runs: int, need_tool: Callable[..., str]) -> None:
    assert told(need_tool("node"), takes, "timed(100).runs") == runs


def test_no_run_is_timed_where_no_time_is_given(need_tool: Callable[..., str]) -> None:
    assert told(need_tool("node"), "() => 5", "[timed(0).runs, at]") == [0, 0]


def test_times_have_digits(need_tool: Callable[..., str]) -> None:
    found = told(need_tool("node"), "() => 5", "[0, 0.00213, 0.0999, 0.1, 1.234, 123.456].map(written)")
    assert found == ["less than 1", "0.0021", "0.10", "0.10", "1.23", "123.46"]
