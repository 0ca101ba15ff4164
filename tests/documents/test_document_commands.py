"""Every command in the documents runs, and prints what the document shows; every flag that they name is there."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from c_core import Once
from documented import Block, Shell, Shown, blocks, commands, is_same, trimmed
from onnx_text import build

from nmpconv.cli import whole_app
from nmpconv.cli.flags import OLDER

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = ROOT / "samples"

# Commands that run elsewhere, or that no test runs: a pattern, and why.
ELSEWHERE = {
    r"make (demo|test)$|make proofs\b": ".ci/run runs them",
    r"make (wheels|cross|models|bench\S*|zoo)\b": "an hour and more; tests/wheels and those of bench/ run parts",
    r"sudo apt-get install ": "changes the machine; .ci/run installs the same packages",
    r"python3 -m venv |\. venv/bin/activate$|pip install ": "tests/wheels installs into new environments",
    r"cd samples/\w+$": "the test begins there",
    r".*/dev/|qemu-system-arm -M netduinoplus2 ": "needs a board; tests/device has lines with boards behind them",
    r"nmpconv (device flash|bench .* --device auto)": "needs a board; tests/device has folders as drives",
    r"nmpconv device (list|build (nucleo|esp32c3))": "another machine has other ports; tests/device runs both",
    r"make -C interpreter/firmware MAIN=": "tests/ops runs this program",
    r".*--workers tcp://": "needs a cluster; tests/base/test_workers.py has one",
    r"nmpconv (convert|eval) gestures": "tests/calib/test_number_tables.py has such tables",
    r"nmpconv convert model.tflite": "tests/frontend has such files",
    r"nmpconv .*\bgate\b": "samples/gate/run.sh runs such ones, tests/ops/test_custom.py those of boards",
    r"make firmware BOARD=nucleo": "tests/device builds for all boards",
}
TOOLS = {
    r"\bgcc ": "gcc",
    r"\bflatc ": "flatc",
    r"\bcmake ": "cmake",
    r"\bopenssl ": "openssl",
    r"device build mps2|sim:mps2": "arm-none-eabi-gcc",
    r"sim:mps2": "qemu-system-arm",
    r"nmpconv page ": "make",
}
HEADERS = {r"-lsodium\b": "/usr/include/sodium.h"}
PACKAGES = {r"nmpconv page ": "ziglang"}
GRU = """(float[1,1,4] x, float[1,1,6] h_in) => (float[1,1,6] h_out, float[1,1,3] y)
  <float[1,18,4] w, float[1,18,6] r, float[1,36] b, float[6,3] o> {
  s, h_out = GRU<hidden_size=6>(x, w, r, b, , h_in)  y = MatMul(h_out, o)
}"""
# A stream of four windows, and a WAV file.
HELLO = (
    'import numpy as np, wave; x = np.load("windows.npy"); np.save("long.npy", np.concatenate(x[:4], 1)[None]);'
    ' f = wave.open("hello.wav", "wb"); f.setparams((1, 2, 8000, 0, "NONE", ""));'
    ' f.writeframes(np.random.default_rng(0).integers(-999, 999, 16000).astype("<i2"))'
)
# Flags of other programs that the documents name.
FOREIGN = {"--bless", "--ops"}


def copy(name: str) -> Callable[[Shell], None]:
    """In the folder of a sample, or in a copy of it."""

    def begin(shell: Shell) -> None:
        shutil.copytree(SAMPLES / name, shell.folder, dirs_exist_ok=True)

    return begin


def of_front(shell: Shell) -> None:
    """A model and a folder of images, as the first commands of a page name them."""
    copy("shapes")(shell)
    shutil.copytree(SAMPLES / "shapes" / "calib", shell.folder / "images")


def of_audio(shell: Shell) -> None:
    copy("sounds")(shell)
    shutil.copytree(SAMPLES / "words", shell.folder.parent / "words")


def of_usage(shell: Shell) -> None:
    """Files that the commands of usage.md, streams.md, python.md and reports.md name."""
    here = shell.folder
    copy("shapes")(shell)
    for source, name in (("calib", "images"), ("test", "photos")):
        shutil.copytree(SAMPLES / ("shapes" if name == "images" else "boxes") / source, here / name)
    for folder, name in (("calib", "train.csv"), ("test", "test.csv")):
        text = (here / folder / "labels.csv").read_text()
        (here / name).write_text(re.sub(r"^(\d)", rf"{folder}/\1", text, flags=re.MULTILINE))
    (here / "score.py").write_text("def recall(outputs, label, reference):\n    return outputs[0].argmax() == label\n")
    (here / "photos" / "instances.json").rename(here / "instances.json")
    for sample, name in (("boxes", "yolox.onnx"), ("sounds", "keywords.onnx")):
        shutil.copy(SAMPLES / sample / "model.onnx", here / name)
    shutil.copy(SAMPLES / "sounds" / "sounds.py", here)
    build(GRU, 14, here / "gru.onnx")
    (here / "sequences").mkdir()
    for number, steps in enumerate(np.random.default_rng(1).normal(size=(4, 20, 1, 4)).astype(np.float32)):
        np.save(here / "sequences" / f"{number}.npy", steps)
    for command in (
        "nmpconv convert yolox.onnx --data photos --std 255 -q",
        "python sounds.py data && mv data/calib.npy windows.npy && mv data/test.npz .",
        f"python -c '{HELLO}'",
        "nmpconv convert model.onnx --data images --std 255 -q -o model.nmp && cp model.nmp before.nmp",
        "nmpconv convert model.onnx --data images --std 255 --bits 16 -q -o after.nmp",
    ):
        code, *said = shell.run(command)
        assert code == 0, said


def begin_of_usage(folder: Path) -> None:
    (folder / "here").mkdir()
    of_usage(Shell(folder / "here"))


def of_schema(shell: Shell) -> None:
    """The folder of the schema, and flatc's output of its samples in it."""
    shutil.copytree(ROOT / "schema", shell.folder, dirs_exist_ok=True)


BEGIN: dict[str, Callable[[Shell], None]] = {
    "README.md": of_front,
    "docs/arithmetic.md": copy("shapes"),
    "docs/browser.md": of_front,
    "docs/firmware.md": copy("shapes"),
    "docs/index.md": of_front,
    "docs/install.md": copy("shapes"),
    "docs/memory.md": copy("shapes"),
    "docs/python.md": of_usage,
    "docs/reference/tools.md": of_schema,
    "docs/reports.md": of_usage,
    "docs/signing.md": copy("shapes"),
    "docs/streams.md": of_usage,
    "docs/tutorials/accuracy.md": copy("shapes"),
    "docs/tutorials/audio.md": of_audio,
    "docs/tutorials/board.md": copy("shapes"),
    "docs/tutorials/detector.md": copy("boxes"),
    "docs/tutorials/training.md": copy("shapes"),
    "docs/mixed-precision.md": of_usage,
    "docs/usage.md": of_usage,
}
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): list(blocks(path.read_text(encoding="utf-8")))
    for path in sorted(ROOT.rglob("*.md"))
    if not any(part.startswith(".") or part in ("build", "templates", "venv") for part in path.relative_to(ROOT).parts)
}


def elsewhere(command: str) -> bool:
    return any(re.match(pattern, command) for pattern in ELSEWHERE)


def has_commands(block: Block) -> bool:
    return block.file is None and (block.is_session or block.is_commands)


def of_page(name: str) -> Iterator[Shown]:
    for block in DOCUMENTS[name]:
        if has_commands(block):
            yield from commands(block)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "here").mkdir()
    return Shell(tmp_path / "here")


def run(shell: Shell, shown: Shown) -> str:
    """Says what is wrong, with what the document should show; '' for nothing."""
    code, out, err = shell.run(shown.command)
    found = out if code == 0 else f"{out}\n{err}"
    if shown.output is None or not trimmed(shown.output):
        return "" if code == 0 else f"line {shown.line}: {shown.command}\nexit code {code}\n{found}"
    failed = code != 0 and not any("error" in line for line in shown.output)
    shows = trimmed(shown.output)
    if not failed and any(is_same(shows, trimmed(said.splitlines())) for said in (out, found)):
        return ""
    return f"line {shown.line}: {shown.command}\nexit code {code}, prints\n{found}\nthe document shows\n" + "\n".join(
        shown.output
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", BEGIN)
def test_commands(
    name: str,
    shell: Shell,
    need_tool: Callable[..., str],
    need_file: Callable[[str], None],
    need_package: Callable[..., None],
    once: Once,
) -> None:
    here = [shown.command for shown in of_page(name) if not elsewhere(shown.command)]
    for needs, find in ((TOOLS, need_tool), (HEADERS, need_file), (PACKAGES, need_package)):
        for pattern, package in needs.items():
            if any(re.search(pattern, command) for command in here):
                find(package)
    if BEGIN[name] is of_usage:  # what several pages begin with is converted once
        shutil.copytree(once("usage", begin_of_usage) / "here", shell.folder, dirs_exist_ok=True)
    else:
        BEGIN[name](shell)
    wrong = []
    for block in DOCUMENTS[name]:
        text = "\n".join(block.lines) + "\n"
        if block.file:
            (shell.folder / block.file).write_text(text)
        elif block.language == "python":
            if "import torch" not in text or importlib.util.find_spec("torch"):
                (shell.folder / "program.py").write_text(text)
                wrong.append(run(shell, Shown(block.line, "python program.py", None)))
        elif has_commands(block):
            wrong += [run(shell, shown) for shown in commands(block) if not elsewhere(shown.command)]
    assert [one for one in wrong if one] == [], "\n\n".join(one for one in wrong if one)


@pytest.mark.parametrize("name", sorted(DOCUMENTS.keys() - BEGIN.keys()))
def test_other_documents_have_no_commands(name: str) -> None:
    assert [shown.command for shown in of_page(name) if not elsewhere(shown.command)] == []


def test_what_runs_elsewhere_is_still_in_the_documents() -> None:
    all_commands = [shown.command for name in DOCUMENTS for shown in of_page(name)]
    assert [p for p in ELSEWHERE if not any(re.match(p, command) for command in all_commands)] == []


def flags() -> set[str]:
    found = {"--version", "--help", "--install-completion", "--debug", *(f"--{name}" for name in OLDER)}
    whole = typer.main.get_command(whole_app())
    for command in whole.commands.values():  # type: ignore[attr-defined]
        for inner in (command, *getattr(command, "commands", {}).values()):
            found |= {name for param in inner.params for name in (*param.opts, *param.secondary_opts)}
    return found


def test_flags_that_documents_name_are_there() -> None:
    known, unknown = flags() | FOREIGN, set()
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")):
        spans = re.findall(
            r"`((?:nmpconv|convert|eval|run|inspect|bench|report|bundle|bisect|-)[^`]*)`", path.read_text()
        )
        named = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}
        unknown |= {(path.name, flag) for flag in named - known}
    assert unknown == set()


@pytest.mark.parametrize(
    ("shown", "same", "other"),
    [
        ("quantized 20/20 nodes", ["quantized 20/20 nodes"], ["quantized 18/18 nodes", "quantized 19/20 nodes"]),
        ("samples  120", ["samples 120"], ["samples 119", "samples 121"]),
        ("file  shapes.nmp, 22.2 kB", ["file  shapes.nmp, 22.2 kB"], ["file  shapes.nmp, 23.2 kB"]),
        (
            "quantized  98.33 %  100.00 %",
            ["quantized  97.50 %  100.00 %"],
            ["quantized  93.50 %  100.00 %", "quantized  98.33 %  98.33 %"],
        ),
        ("agreement  97.50 %", ["agreement  98.33 %"], ["agreement  95.83 %"]),
        ("held out  33.9 dB, 100.0 % agreement, without 27", [], ["held out  33.9 dB, 100.0 % agreement, without 26"]),
        ("ap50   92.35", ["ap50  92.9"], ["ap50  90.9"]),
        ("SQNR   33.3 dB  logits", ["SQNR  33.6 dB  logits"], ["SQNR  34.0 dB  logits"]),
        ("costliest  81 % of the noise  a", ["costliest  79 % of the noise  a"], ["costliest  70 % of the noise  a"]),
        ("origin  0.5", ["origin  0.5"], ["origin  0.6"]),
        ("instructions  1285997 (min)", ["instructions  1290000 (min)"], ["instructions  1485997 (min)"]),
        ("0  conv2d  264811  20.6 %  111 k  0.418  ###", ["0  conv2d  265811  20.5 %  111 k  0.417  ##"], []),
        ("0  conv2d  264811  20.6 %  111 k  0.418  ###", [], ["0  conv2d  264811  20.6 %  111 k  0.618  ##"]),
        ("triangle [9. 6.] [34. 31.]", ["triangle [9. 6.] [33. 31.]"], ["triangle [9. 6.] [32. 31.]"]),
        ("logits: 4371 -503", ["logits: 4370 -504"], ["logits: 4371 503", "logits: 4000 -503"]),
    ],
)
def test_tolerances(shown: str, same: list[str], other: list[str]) -> None:
    assert all(is_same([shown], [found]) for found in same)
    assert not any(is_same([shown], [found]) for found in other)


def test_the_comparison_sees_differences() -> None:
    text = "a\n\n    $ x  # why\n    one 2.5 ms of 10\n    ...\n    last\n\nWrite `b.py`:\n\n```python\nc\n```\n"
    session, program = blocks(text)
    assert [(s.command, s.output) for s in commands(session)] == [("x  # why", ["one 2.5 ms of 10", "...", "last"])]
    assert (program.file, program.language, program.lines) == ("b.py", "python", ["c"])
    shown = ["one 2.5 ms of 10", "...", "last"]
    assert is_same(shown, ["one  0.1 s of 10", "x", "y", "last"])
    assert not is_same(shown, ["one 2.5 ms of 13", "last"])
    assert not is_same(shown, ["one 2.5 ms of 10", "last", "more"])
    assert is_same(["33.3 dB ... avx2"], ["33.4 dB  of all portable"])
    assert not is_same(["33.3 dB"], ["35.3 dB"])
    assert not is_same(["-1014..299  1,204"], ["-1014..298  1,204"])
    assert not is_same(["1,204 B"], ["1,205 B"])
    assert not is_same(["...", "a"] * 20, ["a", "b"] * 100)  # ends soon
    assert not is_same(["a3.nmp"], ["a4.nmp"])
