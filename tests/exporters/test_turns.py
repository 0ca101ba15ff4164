"""Models of a bundle that take turns in one arena: the same bytes as with an arena each, and nothing verified again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import nets
import pytest
from c_core import built

import nmpconv
from nmpconv.file import flatbuffer
from nmpconv.file.reader import read
from nmpconv.runtime.shared_arena import Together, Turn

PROGRAM = """#include <stdio.h>
#include <string.h>
#include "sums_data.h"
#include "frames_data.h"
#define TURNS 6
#define KEPT 1024

typedef struct user { /* a model in the shared arena, and again in one of its own */
  const unsigned char *data;
  size_t bytes, checksum;
  nmp_net *net, *apart;
  unsigned char memory[KEPT];
} user;

static SUMS_ALIGNED unsigned char arena[ARENA], own[2][ARENA], file[2][FILE_BYTES];

static void fill(nmp_net *net, unsigned seed) {
  nmp_view view;
  for (unsigned i = 0; nmp_input(net, i, &view) == NMP_OK; i++) {
    for (size_t k = 0; nmp_state_of(net, i) < 0 && k < view.bytes; k++) {
      ((unsigned char *)view.data)[k] = (unsigned char)((k + 1) * 37 + seed * 11);
    }
  }
}

static int same(nmp_net *a, nmp_net *b) {
  nmp_view x, y;
  return nmp_output(a, 0, &x) == NMP_OK && nmp_output(b, 0, &y) == NMP_OK && memcmp(x.data, y.data, x.bytes) == 0;
}

int main(void) {
  static user users[2] = {{sums_data, SUMS_BYTES, SUMS_CHECKSUM}, {frames_data, FRAMES_BYTES, FRAMES_CHECKSUM}};
  for (int u = 0; u < 2; u++) {
    user *one = &users[u];
    memcpy(file[u], one->data, one->bytes);
    if (nmp_create(&one->apart, one->data, one->bytes, own[u], ARENA, 0, 0) != NMP_OK ||
        nmp_create(&one->net, file[u], one->bytes, arena, sizeof(arena), 0, 0) != NMP_OK) {
      return 2;
    }
    printf("%u ", (unsigned)nmp_suspended_bytes(one->net));
    if (nmp_suspend(one->net, one->memory, KEPT) != NMP_OK) {
      return 3;
    }
    nmp_info info;
    file[u][one->checksum] ^= 1; /* who verifies the file again refuses it */
    if (nmp_inspect(file[u], one->bytes, 0, &info, 0) != NMP_E_CHECKSUM) {
      return 4;
    }
  }
  for (unsigned turn = 0; turn < TURNS; turn++) {
    for (int u = 0; u < 2; u++) {
      user *one = &users[u];
      if (nmp_resume(&one->net, arena, one->memory, KEPT) != NMP_OK) {
        return 5;
      }
      fill(one->net, turn);
      fill(one->apart, turn);
      nmp_run(one->net);
      nmp_run(one->apart);
      if (!same(one->net, one->apart)) {
        printf("model %d, turn %u", u, turn);
        return 6;
      }
      if (!FORGETS && nmp_suspend(one->net, one->memory, KEPT) != NMP_OK) {
        return 7;
      }
    }
  }
  return 0;
}
"""


def checksum_at(data: bytes) -> int:
    """Offset of the checksum in a file."""
    return data.index(flatbuffer.unpack(data)["checksum"].to_bytes(4, "little"))


@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True], ids=["states kept", "states lost"])
def test_two_models_in_turns(
    forgets: bool, make: Callable[..., Path], tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """The test sees a state that is lost: with one that is never kept, the bytes differ in the second turn."""
    models = {"sums": make(channels=8).read_bytes(), "frames": nets.running_sum()}
    nmpconv.bundle(models, as_="plain", output=tmp_path / "c", name="pair")
    src = tmp_path / "c" / "src"
    together = Together([Turn(data, read(data)) for data in models.values()])
    (tmp_path / "main.c").write_text(PROGRAM)
    sizes = {"ARENA": together.arena, "FILE_BYTES": max(map(len, models.values())), "FORGETS": int(forgets)}
    sizes |= {f"{name.upper()}_CHECKSUM": checksum_at(data) for name, data in models.items()}
    macros = [f"-D{name}={value}" for name, value in sizes.items()]
    sources = [tmp_path / "main.c", *sorted(src.rglob("*.c"))]
    command = [need_tool("gcc"), "-O0", "-fsanitize=address,undefined", *macros, f"-I{src}", *sources]
    ran = subprocess.run([built(command, tmp_path / "program")], capture_output=True, text=True)
    if forgets:
        assert (ran.returncode, ran.stdout.split(" ", 2)[2]) == (6, "model 1, turn 1")
    else:
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert list(map(int, ran.stdout.split())) == [turn.suspended for turn in together.turns]
