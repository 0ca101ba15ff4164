"""Bundles of models with two memories: two buffers, which the user may place, and the same bytes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import nets
import numpy as np
import pytest
from c_core import built, objects

from nmpconv.exporters.c_sources import bundle
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph
from nmpconv.passes.memory import two_memories
from nmpconv.runtime import targets
from nmpconv.runtime.targets import MICROCONTROLLERS

X = np.random.default_rng(0).integers(-128, 128, (1, 12, 12, 8)).astype(np.int8)


def convolutions() -> Graph:
    """The second one adds what the first one reads."""
    net, rng = nets.Net(grid=nets.grid(8, 0)), np.random.default_rng(1)
    net.input("x", 1, 12, 12, 8)
    net.conv("x", "a", 8, 3)
    net.const("w", rng.integers(-9, 10, (8, 3, 3, 8)), nets.grid(8, *(-7,) * 8, axis=0))
    net.const("b", rng.integers(-9, 10, 8), nets.grid(32, 0))
    net.op("conv_add", "x a w b", "d", pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    net.conv("d", "y", 4, 3)
    return nets.placed(net.graph("y"))


def model(fast: int) -> bytes:
    """The convolutions with a test vector; fast: bytes of fast memory, 0 for one memory."""
    graph = convolutions()
    if fast:
        graph = two_memories.run(graph, fast, targets.scratch(to_bytes(graph, {}), None))
        assert graph.fast_bytes
    return to_bytes(graph, {}, [([X.tobytes()], [run_reference(graph, {"x": X})["y"].tobytes()])])


@pytest.mark.parametrize(
    "models",  # 1024: sums are in the slow memory, 1500: with copies of weights; 2048, 2500: the same in the fast one
    [
        {"two": 0, "one": 1500, "more": 3000},
        *(
            pytest.param(more, marks=pytest.mark.slow)
            for more in ({"one": 2048, "less": 1024}, {"one": 2500, "two": 0})
        ),
    ],
)
def test_two_buffers(models: dict[str, int], tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """Sections are those of the user's macros; every example compiles, and the outputs are numpy's."""
    compiler = need_tool("gcc", "clang")
    files = bundle({name: model(fast) for name, fast in models.items()})
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    assert b"#define NMP_TWO_MEMORIES 1" in files["src/base/build.h"]
    assert b"#define ONE_FAST_ARENA_BYTES " in files["src/one_data.h"]
    sections = [f'-DONE_{kind}_MEMORY=__attribute__((section(".{kind.lower()}")))' for kind in ("FAST", "SLOW")]
    command = [compiler, "-std=c99", "-O0", "-Wall", "-Werror", *sections, f"-I{tmp_path / 'src'}"]
    made = objects(command, sorted((tmp_path / "src").rglob("*.c")), tmp_path / "o")
    for example in ("test_vector", "buffer", "measure"):
        program, main = tmp_path / example, next(tmp_path.rglob(f"{example}.c"))
        subprocess.run([*command, main, *made, "-o", program, "-lm"], check=True)
        found = subprocess.run([program], capture_output=True, text=True)
        assert found.returncode == 0, found.stdout
        if example == "test_vector":
            assert found.stdout.count("the outputs are those of the test vector") == len(models)
            first = " ".join(map(str, run_reference(convolutions(), {"x": X})["y"].ravel()[:16]))
            assert found.stdout.count(f"y: {first}\n") == len(models)
            found = subprocess.run([need_tool("objdump"), "-h", program], capture_output=True, text=True)
            assert ".fast" in found.stdout and ".slow" in found.stdout


def test_the_readme_counts_what_a_build_with_two_memories_adds() -> None:
    """A model of one memory has a larger handle there: as the macro says, so for each target."""
    alone, beside = (bundle({"two": model(0), **others}) for others in ({}, {"one": model(2048)}))
    figures = [
        [int(n) for n in re.findall(r"^\| (?:arena:|on) .*?(\d+) \|$", section, re.MULTILINE)]
        for files in (alone, beside)
        for section in files["README.md"].decode().partition("| `two` |")[2].split("\n\n")[:1]
    ]
    assert [more - less for less, more in zip(*figures, strict=True)] == [16] * (len(MICROCONTROLLERS) + 1)
    assert f"TWO_ARENA_BYTES {figures[1][0]} ".encode() in beside["src/two_data.h"]


COPIED = """
#include <stdio.h>
#include <string.h>
#include "net_data.h"
static NET_ALIGNED unsigned char fast[NET_FAST_ARENA_BYTES], slow[NET_SLOW_ARENA_BYTES];
static const unsigned char weights[] = {WEIGHTS};
int main(void) {
  nmp_net *net;
  int copies = 0;
  if (nmp_create_split(&net, net_data, NET_BYTES, fast, sizeof(fast), slow, sizeof(slow), NULL, NULL) != NMP_OK ||
      nmp_run(net) != NMP_OK) {
    return 1;
  }
  for (size_t i = 0; i + sizeof(weights) <= sizeof(fast); i++) {
    copies += memcmp(fast + i, weights, sizeof(weights)) == 0;
  }
  printf("%d\\n", copies);
  return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("pixels", "copies"), [(8, 1), (4, 0)])
def test_weights_are_copied_where_they_are_read_many_times(
    pixels: int, copies: int, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """Into room that the fast memory has left; those of a layer of few pixels stay in the file."""
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, pixels, pixels, 64)
    weights = np.random.default_rng(1).integers(-128, 128, (8, 1, 1, 64)).astype(np.int8)
    net.conv("x", "y", 8, w=weights)
    graph = nets.placed(net.graph("y"))
    data = to_bytes(two_memories.run(graph, 2048, targets.scratch(to_bytes(graph, {}), "cortex-m4")), {})
    for name, text in bundle({"net": data}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    numbers = ",".join(str(byte) for byte in weights.tobytes())
    (tmp_path / "main.c").write_text(COPIED.replace("WEIGHTS}", numbers + "}"))
    command = [need_tool("gcc", "clang"), "-std=c99", "-O0", f"-I{tmp_path / 'src'}", tmp_path / "main.c"]
    program = built([*command, *sorted((tmp_path / "src").rglob("*.c"))], tmp_path / "main")
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == f"{copies}\n"


def test_one_memory_has_one_buffer() -> None:
    files = bundle({"two": model(0)})
    assert b"#define NMP_TWO_MEMORIES 0" in files["src/base/build.h"]
    assert b"FAST" not in files["src/two_data.h"]
    assert all(b"_split" not in text for name, text in files.items() if "examples" in name)
