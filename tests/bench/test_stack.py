"""The stack that public functions take at most on a Cortex-M4, whatever the file, by the compiler's call graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from zoo_quick import bench_module

from nmpconv.file._schema import OP_TABLES
from nmpconv.runtime.targets import DEEP, DEEP_STACK
from nmpconv.runtime.targets import STACK as PLAIN_STACK

STACK = bench_module("stack")
MOST = {
    "nmp_inspect": 2048,
    "nmp_create": PLAIN_STACK,
    "nmp_run": DEEP_STACK,
    "nmp_run_ops": 3328,
    "nmp_resume": 320,  # a handle of 80 among them
    "agent_push": 4096,
}
FEW = 256  # of the others
CONV_DEPTHWISE = "conv_dsp_depthwise.c:dsp_depthwise_run"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[..., str]) -> Any:
    """The `Bounds` of the firmware, compiled once."""
    need_tool("arm-none-eabi-gcc")
    folder = tmp_path_factory.mktemp("stack")
    return STACK.Bounds(STACK.build(folder), folder)


@pytest.mark.slow
def test_bounds(compiled: Any, record_property: Callable[[str, object], None]) -> None:
    found = STACK.bounds(compiled)
    assert set(MOST) < set(found)
    for name, (most, way) in found.items():
        assert most <= MOST.get(name, FEW), (name, way)
    # Ways that are known to be there: by a member of an op's type, by a table of kernels, by the walk through the file.
    assert any("gemm" in step for step in found["nmp_run"][1])
    assert found["nmp_create"][0] > found["nmp_inspect"][0] > 1500
    record_property("summary", "stack on M4: " + ", ".join(f"{name} {found[name][0]}" for name in MOST))


@pytest.mark.slow
def test_stack_of_bundles(compiled: Any) -> None:
    """STACK_BYTES of a header: ops but for `DEEP` and the portable convolutions need no more than nmp_create."""
    found = compiled
    around = found.of("nmp_run")[0] - found.of("nmp_steps_run")[0] + found.functions["nmp_steps_run"].bytes
    convolutions = [f"../src/arch/cortex_m/{name}" for name in ("conv_dsp.c:dsp_run", CONV_DEPTHWISE)]
    runs = {name.partition("ops/")[2]: name for name in found.functions if name.endswith("_run") and "/ops/" in name}
    plain = [name for file, name in runs.items() if file.partition(".")[0] not in {*DEEP, "conv2d", "fully_connected"}]
    assert len(plain) > len(OP_TABLES) // 2
    overlap = found.of("../src/ops/common/overlap.c:overlap_run")[0] - found.of(convolutions[0])[0]
    for name in (*plain, *convolutions):
        assert around + overlap + found.of(name)[0] <= PLAIN_STACK, name
    frames = found.functions["nmp_added_run"].bytes + found.functions["nmp_conv_run"].bytes  # conv_add
    assert around + frames + found.of(convolutions[0])[0] <= PLAIN_STACK
    deep = [name for file, name in runs.items() if file.partition(".")[0] in DEEP]
    assert len(deep) == len(DEEP) and all(around + found.of(name)[0] > PLAIN_STACK for name in deep)


def test_what_is_called_in_a_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STACK, "FIRMWARE", tmp_path)
    lines = ["{", "  NMP_BY_2(IN(k).gemm, wide(x), 0)", "  (a, b(c, d), e);", "  (n ? one : m ? two : three)(a);"]
    text = "\n".join([*lines, "  s->op.run(&t[0]);", "}"])
    (tmp_path / "a.c").write_text(text)
    assert ("gemm", "", 3) in STACK.called_at("a.c:2:3")
    assert STACK.chosen_at("a.c:4:9") == ["one", "two", "three"]
    assert STACK.called_at("a.c:5:3") == [("run", "op", 1)]
