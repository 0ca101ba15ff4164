"""Several models in one bundle, several bundles in one program, names in C, and the header for C++."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from c_core import built, objects

import nmpconv
from nmpconv.cli import main
from nmpconv.errors import UsageError
from nmpconv.exporters.c_sources.bundled_model import c_name

Need = Callable[..., str]
PROGRAM = """#include "{name}_data.h"
static {macro}_ALIGNED unsigned char arena[{macro}_ARENA_BYTES];
int run_{name}(void) {{
  nmp_net *net;
  nmp_view view;
  const nmp_status status = nmp_create(&net, {name}_data, {macro}_BYTES, arena, sizeof(arena), 0, 0);
  return status != NMP_OK || nmp_run(net) != NMP_OK || nmp_output(net, 0, &view) != NMP_OK || view.bytes != {bytes};
}}
"""
CALLER = "int run_first(void);\nint run_second(void);\nint main(void) { return run_first() | run_second() << 1; }\n"
CPP = """#include "kws_data.h"
static nmp::Model<KWS_ARENA_BYTES> kws;
#ifdef __cplusplus
extern "C"
#endif
int classify(const int8_t *pixels) {
  if (kws.create(kws_data) != NMP_OK) {
    return -1;
  }
  nmp::Span<int8_t> x = kws->input<int8_t>();
  for (size_t i = 0; i < x.size(); i++) {
    x[i] = pixels[i];
  }
  kws->run();
  return kws->output<int8_t>()[0];
}
"""
IN_C = """#include "kws_data.h"
static KWS_ALIGNED unsigned char arena[KWS_ARENA_BYTES];
static nmp_net *net;
int classify(const int8_t *pixels) {
  nmp_view view;
  if (nmp_create(&net, kws_data, KWS_BYTES, arena, sizeof(arena), 0, 0) != NMP_OK) {
    net = 0;
    return -1;
  }
  int8_t *x = 0;
  size_t n = 0;
  if (nmp_input(net, 0, &view) == NMP_OK && view.bits == 8) {
    x = (int8_t *)view.data;
    n = view.bytes;
  }
  for (size_t i = 0; i < n; i++) {
    x[i] = pixels[i];
  }
  nmp_run(net);
  const int8_t *y = 0;
  if (nmp_output(net, 0, &view) == NMP_OK && view.bits == 8) {
    y = (const int8_t *)view.data;
  }
  return y[0];
}
"""


@pytest.fixture(scope="module")
def first(make: Callable[..., Path]) -> bytes:
    return make(channels=8).read_bytes()


@pytest.fixture(scope="module")
def second(make: Callable[..., Path]) -> bytes:
    """With other ops' widths and longer sums, which the interpreter of `first` leaves out."""
    return make(channels=16, bits="16").read_bytes()


def written(folder: Path, models: Mapping[str, bytes]) -> Path:
    nmpconv.bundle(models, as_="plain", output=folder)
    return folder / "src"


def c_files(src: Path) -> list[Path]:
    return sorted(src.rglob("*.c"))


def program(folder: Path, name: str, output_bytes: int) -> Path:
    path = folder / f"{name}.c"
    path.write_text(PROGRAM.format(name=name, macro=name.upper(), bytes=output_bytes))
    return path


@pytest.mark.slow
def test_bundles_made_apart_link(first: bytes, second: bytes, tmp_path: Path, need_tool: Need) -> None:
    """Both on the include path of all files, one interpreter each: none of them takes the other's choices."""
    gcc, made = need_tool("gcc"), []
    folders = {name: written(tmp_path / name, {name: data}) for name, data in (("first", first), ("second", second))}
    (tmp_path / "main.c").write_text(CALLER)
    for (name, src), size in zip(folders.items(), (5, 10), strict=True):
        include = [f"-I{one}" for one in folders.values()]
        sources = [*c_files(src), program(tmp_path, name, size)]
        made += objects([gcc, "-O0", *include], sources, tmp_path / f"{name}-o")
    subprocess.run([gcc, tmp_path / "main.c", *made, "-o", tmp_path / "program"], check=True)
    assert subprocess.run([tmp_path / "program"]).returncode == 0
    for name in folders:
        listed = subprocess.run(
            [need_tool("nm"), "-g", "--defined-only", *(tmp_path / f"{name}-o").glob("*.o")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        symbols = {line.split()[2] for line in listed if len(line.split()) == 3} - {f"run_{name}"}
        assert len(symbols) > 50 and [one for one in symbols if not one.startswith(f"{name}_")] == []


MIXED = (
    '#include "first_data.h"\n#include "second_data.h"\n',
    '#include "second_data.h"\n#include "first_data.h"\n',
    '#include "first_data.h"\n#include "nmp.h"\n',  # of the folder that is first on the path
    '#include "alone/src/nmp.h"\n#include "first_data.h"\n',
)


def test_headers_of_two_bundles_are_refused(first: bytes, second: bytes, tmp_path: Path, need_tool: Need) -> None:
    apart = [written(tmp_path / name, {name: data}) for name, data in (("second", second), ("first", first))]
    written(tmp_path / "alone", {})
    command = [need_tool("gcc"), "-fsyntax-only", f"-I{tmp_path}", *(f"-I{src}" for src in apart), tmp_path / "user.c"]
    for text in MIXED:
        (tmp_path / "user.c").write_text(text)
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode != 0, text
        assert "made apart: use them in two source files" in ran.stderr or "brings its own" in ran.stderr, text


@pytest.mark.slow
def test_two_models_share_an_interpreter(first: bytes, second: bytes, tmp_path: Path, need_tool: Need) -> None:
    """The union of ops and widths; the headers of one bundle go into one file."""
    src = written(tmp_path / "both", {"first": first, "second": second})
    choices = (src / "base" / "build.h").read_text()
    assert "#define NMP_ACTIVATION_BITS 0\n" in choices and "#define NMP_WEIGHT_BITS 0\n" in choices
    gcc = need_tool("gcc")
    files = [tmp_path / "both" / "examples" / "test_vector.c", *c_files(src)]
    both = built([gcc, "-O0", f"-I{src}", *files], tmp_path / "program")
    said = subprocess.run([both], capture_output=True, text=True)
    assert said.returncode == 0
    assert said.stdout.count("the outputs are those of the test vector\n") == 2


@pytest.mark.slow
def test_cpp_costs_no_flash(first: bytes, tmp_path: Path, need_tool: Need) -> None:
    """The same program in C and in C++, without exceptions, run-time types and a standard library."""
    src, sizes = written(tmp_path / "kws", {"kws": first}), {}
    for suffix, text, tool in ((".c", IN_C, "arm-none-eabi-gcc"), (".cpp", CPP, "arm-none-eabi-g++")):
        source, compiled_ = tmp_path / f"user{suffix}", tmp_path / f"{suffix[1:]}.o"
        source.write_text(text)
        cpp = ["-std=c++11", "-fno-exceptions", "-fno-rtti"] if suffix == ".cpp" else ["-std=c99"]
        flags = ["-mcpu=cortex-m4", "-mthumb", "-Os", "-Wall", "-Wextra", "-Werror", f"-I{src}"]
        subprocess.run([need_tool(tool), *cpp, *flags, "-c", source, "-o", compiled_], check=True)
        listed = subprocess.run(["arm-none-eabi-size", "-A", compiled_], capture_output=True, text=True, check=True)
        rows = [line.split() for line in listed.stdout.splitlines() if line.startswith((".text", ".rodata", ".init"))]
        sizes[suffix] = sum(int(row[1]) for row in rows)
    assert sizes[".cpp"] <= sizes[".c"]


CPP_PAIR = """#include "{name}_data.h"
int run_{name}() {{
  static nmp::Model<{macro}_ARENA_BYTES> model;
  return model.create({name}_data) != NMP_OK || model->run() != NMP_OK || model->output<{type}>().size() != 5;
}}
"""


@pytest.mark.slow
def test_cpp_of_two_bundles(first: bytes, second: bytes, tmp_path: Path, need_tool: Need) -> None:
    """Inline functions of the header call the interpreter of their own bundle."""
    made = []
    for name, data, type_ in (("first", first, "int8_t"), ("second", second, "int16_t")):
        src = written(tmp_path / name, {name: data})
        made += objects([need_tool("gcc"), "-O0"], c_files(src), tmp_path / f"{name}-o")
        user = tmp_path / f"{name}.cpp"
        user.write_text(CPP_PAIR.format(name=name, macro=name.upper(), type=type_))
        made += objects([need_tool("g++"), "-O0", f"-I{src}"], [user], tmp_path / f"{name}-user")
    (tmp_path / "main.cpp").write_text(CALLER.replace("(void)", "()"))
    subprocess.run(["g++", tmp_path / "main.cpp", *made, "-o", tmp_path / "program"], check=True)
    assert subprocess.run([tmp_path / "program"]).returncode == 0


def test_names_in_c_are_the_files(first: bytes, tmp_path: Path) -> None:
    """The name of the file, of --name, or in the model where there is no file."""
    (tmp_path / "2nd try (a).nmp").write_bytes(first)
    assert "src/model_2nd_try_a_data.h" in nmpconv.bundle(tmp_path / "2nd try (a).nmp")
    assert "src/kws_data.h" in nmpconv.bundle(tmp_path / "2nd try (a).nmp", name="kws")
    assert "src/net_data.h" in nmpconv.bundle(first)
    files = nmpconv.bundle({"a": first, "b": first}, name="pair", as_="cmake")
    assert b"project(nmp_pair " in files["CMakeLists.txt"]
    assert {"src/a_data.h", "src/b_data.h"} <= files.keys() and "src/model_data.h" not in files
    assert c_name("Größe-1") == "gr_e_1" and c_name("") == "model" and len(c_name("x" * 99)) == 28


@pytest.mark.parametrize("name", ["", "1st", "a-b", "é", "x" * 29, "a b"])
def test_names_that_c_does_not_have(name: str, first: bytes) -> None:
    with pytest.raises(UsageError, match="is no name in C; allowed: a letter"):
        nmpconv.bundle({name: first})


def test_models_of_one_name_are_refused(first: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kws.nmp").write_bytes(first)
    models = [str(tmp_path / folder / "kws.nmp") for folder in ("a", "b")]
    assert main(["bundle", *models, "-o", str(tmp_path / "out")]) == 2
    assert "two models are called kws" in capsys.readouterr().err
    with pytest.raises(UsageError, match="differ in case alone"):
        nmpconv.bundle({"kws": first, "KWS": first})


@pytest.mark.parametrize(("other", "macro"), [("kws_arena", "KWS_ARENA_BYTES"), ("Kws_input_0", "KWS_INPUT_0_BYTES")])
def test_models_whose_macros_are_the_same_are_refused(other: str, macro: str, first: bytes) -> None:
    """A name that another one begins with, up to what its macros are called."""
    with pytest.raises(UsageError, match=f"kws and {other} would both define {macro}; give one of the files another"):
        nmpconv.bundle({"kws": first, other: first})
    assert "src/kws_small_data.h" in nmpconv.bundle({"kws": first, "kws_small": first})


@pytest.mark.parametrize("name", ["model", "Model", "MODEL", "kws"])
def test_no_two_files_differ_in_case_alone(name: str, first: bytes) -> None:
    """They are one file on Windows and macOS."""
    paths = [path.lower() for path in nmpconv.bundle({name: first})]
    assert len(paths) == len(set(paths)) and f"src/{name.lower()}_data.h" in paths


def test_old_names_are_there_still(first: bytes, tmp_path: Path, need_tool: Need) -> None:
    """Programs that use model_data.h: the same numbers as under today's names."""
    src = written(tmp_path / "kws", {"kws": first})
    today = (src / "kws_data.h").read_text()
    macros = [line.split()[1] for line in today.splitlines() if line.startswith("#define KWS_")][1:]
    checks = "".join(
        f'_Static_assert({name.replace("KWS", "MODEL", 1)} == {name}, "");\n'
        for name in dict.fromkeys(macros)
        if not name.endswith(("_ALIGNED", "_SCALE", "_OFFSET"))
    )
    (tmp_path / "user.c").write_text(
        f'#include "model_data.h"\n{checks}'
        "MODEL_ALIGNED char arena[MODEL_ARENA_BYTES];\n"
        f"int main(void) {{ return model_data[0] + (int)(MODEL_INPUT_0_SCALE + MODEL_OUTPUT_0_OFFSET); }}\n"
    )
    subprocess.run([need_tool("gcc"), "-std=c11", "-fsyntax-only", f"-I{src}", tmp_path / "user.c"], check=True)
    assert len(checks.splitlines()) > 8
