"""The example of a bundle whose model hears: from int16 samples to words, here and on simulated boards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from test_bundle import QUICK, on_cortex_m, on_host, on_rv32

import nmpconv
from nmpconv.data.audio import parse
from nmpconv.exporters.c_sources import bundle
from nmpconv.file import flatbuffer

RATE = 8000
WORDS, SOUNDS = (f"rate={RATE},window=512,hop=256,bands={bands}" for bands in (20, 24))


@pytest.fixture(scope="module")
def pcm() -> np.ndarray:
    """int16: three seconds of gliding vowels, loud and quiet, silence, and noise of full scale."""
    rng, t = np.random.default_rng(8), np.arange(RATE) / RATE
    glide = np.concatenate([np.sin(2 * np.pi * f * t * (1 + 0.2 * t)) / (1 + i) for i, f in enumerate((700, 320))])
    voice = np.sign(np.sin(2 * np.pi * 130 * np.arange(2 * RATE) / RATE)) * 0.2 + 0.5 * glide
    parts = [voice, np.zeros(2000), rng.normal(0, 0.01, 2000), rng.choice([-1, 1], 3000)]
    return np.clip(np.concatenate(parts) * 32768, -32768, 32767).astype(np.int16)


def bundled(file: nmpconv.Converted, name: str, pcm: np.ndarray, folder: Path) -> Path:
    """The folder of a bundle whose example hears these samples."""
    for path, text in bundle({name: file.data}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text)
    example = folder / "examples" / "buffer.c"
    buffer = f"{name}_pcm_0[{name.upper()}_INPUT_0_RATE];"
    text = example.read_text()
    assert buffer in text
    example.write_text(text.replace(buffer, f"{name}_pcm_0[] = {{{','.join(map(str, pcm))}}};"))
    return folder


def said(file: nmpconv.Converted, audio: str, pcm: np.ndarray, steps: int, layout: tuple[int, ...]) -> str:
    """Lines that the example prints, by numpy's frames and the interpreter here."""
    net, frames = file.load(), layout[-2]
    numbers = parse(audio).frames((pcm / 32768).astype(np.float32))
    lines, before = [], -1
    for last in range(frames, len(numbers) + 1, steps):
        scores = net.run({net.inputs[0].name: numbers[last - frames : last].reshape(layout)})[0].ravel()
        best = int(scores.argmax())
        if best != before:
            lines.append(f"{net.labels[best]}: output {best} is the largest, {scores[best]}\n")
        before = best
    assert len(lines) > 2
    return "".join(lines)


@pytest.fixture(scope="module")
def words(samples: Path, pcm: np.ndarray) -> nmpconv.Converted:
    """A frame a call, and a state."""
    frames = parse(WORDS).frames((pcm / 32768).astype(np.float32))
    return nmpconv.convert(
        samples / "words" / "model.onnx",
        np.stack([frames[:30], frames[-30:]])[:, :, None, None],
        state=["h_next=h"],
        audio=WORDS,
        labels=samples / "words" / "labels.txt",
        rounding="nearest",
        equalize="none",
    )


@pytest.mark.slow
def test_a_state_hears_here(
    words: nmpconv.Converted, pcm: np.ndarray, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    folder = bundled(words, "words", pcm, tmp_path)
    assert on_host(folder, need_tool("gcc"), QUICK, "buffer") == said(words, WORDS, pcm, 1, (1, 1, 20))


@pytest.mark.slow
def test_a_state_hears_on_boards(
    words: nmpconv.Converted, pcm: np.ndarray, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    folder = bundled(words, "words", pcm, tmp_path)
    board = on_cortex_m(folder, need_tool, "cortex-m4", "mps2-an386", 0x20000000, "buffer")
    assert board == on_rv32(folder, need_tool, "buffer") == said(words, WORDS, pcm, 1, (1, 1, 20))


@pytest.mark.slow
def test_words_are_told_as_with_floats(words: nmpconv.Converted, samples: Path) -> None:
    """As many of 140 words in noise, and more than by chance."""
    made, net, rng = run_path(str(samples / "words" / "words.py")), words.load(), np.random.default_rng(4)
    fronts, right = [parse(f"{WORDS},integers={n}") for n in (0, 1)], [0, 0]
    for i in range(140):
        label = i % len(made["KINDS"])
        clip = made["clip"](made["KINDS"][label], rng, made["NOISE"])
        for n, front in enumerate(fronts):
            net.reset()
            scores = [net.run({"x": frame.reshape(1, 1, 20)})[0] for frame in front.frames(clip)]
            right[n] += int(scores[-1].argmax()) == label
    assert right[0] == right[1] > 120


@pytest.mark.slow
@pytest.mark.parametrize("ram", [None, "fast=2k,slow=64k"])
def test_a_window_hears_here(
    samples: Path, pcm: np.ndarray, tmp_path: Path, need_tool: Callable[..., str], ram: str | None
) -> None:
    """All 32 frames a run, which moves on by a quarter of them; in one memory and in two."""
    frames = parse(SOUNDS).frames((pcm / 32768).astype(np.float32))
    file = nmpconv.convert(
        samples / "sounds" / "model.onnx",
        np.stack([frames[at : at + 32] for at in range(0, 40, 8)])[:, None],
        audio=SOUNDS,
        labels=samples / "sounds" / "labels.txt",
        rounding="nearest",
        equalize="none",
        ram=ram,
    )
    folder = bundled(file, "sounds", pcm, tmp_path)
    assert on_host(folder, need_tool("gcc"), QUICK, "buffer") == said(file, SOUNDS, pcm, 8, (1, 1, 32, 24))


def test_labels_of_other_outputs_are_no_names(words: nmpconv.Converted) -> None:
    """A file may have any number of them; the example has names for each element or none."""
    root = flatbuffer.unpack(words.data)
    root["labels"] = ["a", "b"]
    text = bundle({"words": flatbuffer.pack(root)})["examples/buffer.c"].decode()
    assert "words_names" not in text and 'print_result("words", best' in text


def test_a_model_that_hears_nothing_has_no_sound(model: Path) -> None:
    files = bundle({"plain": model.read_bytes()})
    assert not [path for path in files if "sound" in path]
    assert b"#define NMP_SOUND 0\n" in files["src/base/build.h"]
    assert b"nmp_sound" not in files["README.md"]
