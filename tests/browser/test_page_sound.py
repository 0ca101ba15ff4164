"""Pages of models of sound in Chromium: WAV files have there what `nmpconv run` makes of them.

A front end in integers has numpy's numbers. In floats a page's sums and logarithms may differ from numpy's in their
last bit, which is lost as a frame becomes float32 and then integers, but for a number that lies just between two. Such
frames are compared within a step of float32; of the outputs the bytes, and of all calls the classes and scores that the
page shows.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import listened, opened

import nmpconv
from nmpconv.base import fixed_point
from nmpconv.cli.run import _stretches
from nmpconv.data.audio import parse, read_wav
from nmpconv.exporters.browser import front_facts
from nmpconv.ir import Shifts
from nmpconv.runtime.feed import Feed

FRONTS = {
    "words": "rate=8000,window=512,hop=256,bands=20",
    "floats": "rate=8000,window=512,hop=256,bands=20,integers=0",
    "padded": "rate=16000,window=401,hop=160,bands=30,fft=1024,low=60,high=7600,floor=0.00001",
    "padded floats": "rate=16000,window=400,hop=160,bands=30,fft=480",
    "odd": "rate=16000,window=400,hop=160,bands=30,low=60,high=7600,floor=0.00001",
    "mfcc": "rate=8000,window=256,hop=256,bands=64,mfcc=13,htk=1,floor=1e-10",
    "mfcc floats": "rate=16000,window=400,hop=160,bands=30,fft=480,mfcc=12,htk=1",
    "samples": "rate=8000",
}
AT_LENGTH = [pytest.mark.slow, pytest.mark.soak]
NOTHING = 1e-6  # of sums of logarithms that cancel each other: cosine transforms of silence
FEATURES = """
import { readFileSync } from "node:fs";
const [, , module, file, front] = process.argv;
const { wav, frontEnd } = await import(module);
const found = wav(readFileSync(file));
const frames = frontEnd(JSON.parse(front))(found.samples).map((one) => Array.from(one));
console.log(JSON.stringify({ rate: found.rate, frames }));
"""
INTEGERS = """
const [, , runtime, port, numbers] = process.argv;
const { quantized } = await import(runtime);
console.log(JSON.stringify(Array.from(quantized(JSON.parse(port), Float64Array.from(JSON.parse(numbers))))));
"""


def write(path: Path, sound: np.ndarray, rate: int, width: int = 2, channels: int = 1) -> Path:
    """A WAV file of a sound from -1 to 1, whose channels differ."""
    top = 2.0 ** (8 * width - 1)
    whole = np.round(np.stack([sound * (1 - 0.3 * c) for c in range(channels)], 1) * (top - 1)).astype(np.int64)
    data = (
        (whole + 128).astype(np.uint8) if width == 1 else whole.astype("<i8").reshape(-1, 1).view(np.uint8)[:, :width]
    )
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(np.ascontiguousarray(data).tobytes())
    return path


@pytest.fixture
def sound() -> np.ndarray:
    """Two seconds at 8 kHz: a falling tone in noise, silence, and noise."""
    random, t = np.random.default_rng(5), np.arange(8000) / 8000
    tone = 0.5 * np.sin(2 * np.pi * (900 * t - 300 * t**2)) + 0.01 * random.normal(size=8000)
    return np.clip(np.concatenate([tone, np.zeros(3000), 0.2 * random.normal(size=5000)]), -1, 1)


def test_integers_are_those_of_python(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """Also where a number is 2^24 units and more from the offset, next to a half of the grid, and at its ends."""
    far = np.ldexp(200 * 65536 + 512 - np.array([1, 0]), -16) + 100
    near = [0.5, -0.5, -1.5, 0.49999999999999994, -1e-300, 32766.5, 32767.5, -32768.5, -32769, 1e300]
    exact = [19200, 19201, 1, 0, -1, 0, 0, 32767, 32767, -32768, -32768, 32767]
    numbers = np.concatenate([far * 64, near])
    port = {"name": "x", "shape": [12], "bits": 16, "bytes": 24, "axis": -1, "clip": [-32768, 32767], "origin": 0}
    (tmp_path / "integers.mjs").write_text(INTEGERS)
    runtime = root / "interpreter" / "wasm" / "nmp_runtime.mjs"
    for exponent, offset in ((0, 0), (-6, -100)):
        given = numbers * 2.0**exponent + offset
        facts = {**port, "exponents": [exponent], "offsets": [offset] if offset else None}
        command = [need_tool("node", "nodejs"), tmp_path / "integers.mjs", runtime, json.dumps(facts)]
        ran = subprocess.run([*command, json.dumps(given.tolist())], check=True, capture_output=True, text=True)
        found = json.loads(ran.stdout)
        assert found == fixed_point.quantize(given - offset, exponent, -32768, 32767).tolist()
        assert offset or found == exact


@pytest.mark.parametrize("kind", ["Float32", "Float64"])
def test_steps_that_are_no_powers_of_two(kind: str, root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    """Difference and quotient are those of numpy, in the precision of the numbers."""
    shifts = Shifts((1, 1), 0, tuple(map(float, np.float32([-38.43, 1.5]))), tuple(map(float, np.float32([1.22, 1.7]))))
    port: dict[str, Any] = {"name": "x", "shape": [2, 999], "bits": 8, "bytes": 1998, "axis": 0, "exponents": [-1, -1]}
    port |= {"offsets": shifts.offsets, "mantissas": shifts.mantissas, "clip": [-128, 127]}
    x = (np.random.default_rng(3).integers(-260, 260, (2, 999)) * 0.305 - 38.43).astype(kind.lower())
    (tmp_path / "integers.mjs").write_text(INTEGERS.replace("Float64", kind))
    runtime = root / "interpreter" / "wasm" / "nmp_runtime.mjs"
    facts = json.dumps(port), json.dumps(x.ravel().tolist())
    command = [need_tool("node", "nodejs"), tmp_path / "integers.mjs", runtime, *facts]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found == fixed_point.quantize(shifts.stored(x), 0, -128, 127).ravel().tolist()


@pytest.mark.parametrize(
    ("name", "width", "channels"),
    [
        pytest.param(name, *form, marks=[] if name == "words" or form == (2, 1) else AT_LENGTH)
        for name in FRONTS
        for form in ((2, 1), (1, 1), (2, 2), (3, 1), (4, 2))
    ],
)
def test_frames_are_those_of_python(
    name: str,
    width: int,
    channels: int,
    sound: np.ndarray,
    root: Path,
    tmp_path: Path,
    need_tool: Callable[..., str],
) -> None:
    """At most a step of float32 apart, in integers the same."""
    front = parse(FRONTS[name])
    file = write(tmp_path / "sound.wav", sound, front.rate, width, channels)
    (tmp_path / "features.mjs").write_text(FEATURES)
    module = root / "nmpconv" / "exporters" / "browser" / "templates" / "sound.mjs"
    command = [need_tool("node", "nodejs"), tmp_path / "features.mjs", module, file, json.dumps(front_facts(front))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    wanted = front.frames(read_wav(file, front.rate))
    assert found["rate"] == front.rate
    assert np.shape(found["frames"]) == wanted.shape
    if front.integers:
        np.testing.assert_array_equal(found["frames"], wanted)
        return
    apart = 1 if front.bands else 0
    pair = [np.where(np.abs(x) < NOTHING, 0, x).astype(np.float32) for x in (np.array(found["frames"]), wanted)]
    np.testing.assert_array_max_ulp(*pair, apart)


def of_run(file: nmpconv.Converted, sound: Path) -> tuple[list[dict[str, Any]], str]:
    """The stretches of best classes, and the digest of the last call's output."""
    net = file.load()
    feed = Feed(net, {"": sound})
    outputs = [net.run(feed.integers(feed[i])) for i in range(len(feed))]
    calls = []
    for [integers] in outputs:
        scores = net.outputs[0].dequantize(integers).ravel()
        calls.append({"class": int(np.argmax(scores)), "label": "", "score": float(scores.max())})
    return _stretches(calls), hashlib.sha256(np.ascontiguousarray(outputs[-1][0]).tobytes()).hexdigest()


@pytest.mark.slow
def test_a_state_hears_a_file(
    samples: Path, sound: np.ndarray, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    """The words sample, which takes a frame a call."""
    need_package("ziglang")
    frames = parse(FRONTS["words"]).frames(sound.astype(np.float32))
    labels = samples / "words" / "labels.txt"
    made = nmpconv.convert(
        samples / "words" / "model.onnx",
        np.stack([frames[:30], frames[20:50]])[:, :, None, None],
        state=["h_next=h"],
        audio=FRONTS["words"],
        labels=labels,
        rounding="nearest",
        equalize="none",
    )
    files = [write(tmp_path / f"{i}.wav", part, 8000) for i, part in enumerate([sound, sound[::-1], sound[:600]])]
    files.append(write(tmp_path / "short.wav", sound[:500], 8000))
    *found, short = opened(need_tool("chromium", "chromium-browser"), tmp_path, nmpconv.page(made), files, "audio/wav")
    names = labels.read_text().split()
    assert found[0]["time"].endswith(" calls")
    for file, one in zip(files, found, strict=False):
        stretches, digest = of_run(made, file)
        assert one["failed"] == ""
        assert one["digests"] == [digest]
        assert [row[1] for row in one["rows"]] == [names[s["class"]] for s in stretches]
        for row, s in zip(one["rows"], stretches, strict=True):
            assert row[0].split()[1::2] == [str(n) for n in dict.fromkeys([s["first"], s["last"]])]
            assert float(row[2]) == pytest.approx(s["score"], rel=1e-3)
    assert short["failed"] == "This sound cannot be run: it has 0 frames; the model takes 1, which is 0.06 s"


@pytest.mark.slow
def test_a_window_hears_a_file(
    samples: Path, sound: np.ndarray, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    """The sounds sample, which takes all frames at once; another rate is brought to the model's by the browser."""
    need_package("ziglang")
    front = parse("rate=8000,window=512,hop=256,bands=24")
    size = 31 * 256 + 512
    parts = [sound[at : at + size] for at in (0, 3000, 6000)]
    made = nmpconv.convert(
        samples / "sounds" / "model.onnx",
        np.stack([front.frames(part.astype(np.float32)) for part in parts])[:, None],
        audio="rate=8000,window=512,hop=256,bands=24",
        labels=samples / "sounds" / "labels.txt",
        rounding="nearest",
        equalize="none",
    )
    files = [write(tmp_path / f"{i}.wav", part, 8000, channels=2) for i, part in enumerate(parts)]
    twice = np.repeat(parts[0], 2)
    odd = [write(tmp_path / "twice.wav", twice, 16000), write(tmp_path / "long.wav", sound, 8000), tmp_path / "no.wav"]
    odd[-1].write_bytes(b"no sound")
    page = nmpconv.page(made)
    *found, fast, long, none = opened(
        need_tool("chromium", "chromium-browser"), tmp_path, page, [*files, *odd], "audio/wav"
    )
    names = (samples / "sounds" / "labels.txt").read_text().split()
    for file, one in zip(files, found, strict=True):
        [stretch], digest = of_run(made, file)
        assert (one["failed"], one["digests"], one["rows"][0][0]) == ("", [digest], names[stretch["class"]])
        assert one["time"].endswith("on one thread")
    assert (fast["failed"], fast["rows"][0][0]) == ("", found[0]["rows"][0][0])
    assert long["failed"] == "This sound cannot be run: it has 61 frames; the model takes 32, which is 1.06 s"
    assert none["failed"].startswith("This sound cannot be run: ")


@pytest.mark.slow
def test_a_microphone(
    samples: Path, sound: np.ndarray, tmp_path: Path, need_tool: Callable[..., str], need_package: Callable[..., None]
) -> None:
    """Chromium plays a file as its microphone, again and again; the page names classes while it listens, until it is
    stopped."""
    need_package("ziglang")
    made = nmpconv.convert(
        samples / "sounds" / "model.onnx",
        np.random.default_rng(2).normal(-3, 2, (4, 1, 32, 24)).astype(np.float32),
        audio="rate=8000,window=512,hop=256,bands=24",
        labels=samples / "sounds" / "labels.txt",
        rounding="nearest",
        equalize="none",
    )
    file = write(tmp_path / "played.wav", np.tile(sound, 3), 8000)
    outcome = listened(need_tool("chromium", "chromium-browser"), tmp_path, nmpconv.page(made), file)
    names = (samples / "sounds" / "labels.txt").read_text().split()
    assert outcome["failed"] == ""
    assert outcome["button"] == ["Stop the microphone", "Use the microphone"]
    assert sorted(row[0] for row in outcome["rows"]) == sorted(set(names) & {row[0] for row in outcome["rows"]})
    assert len(outcome["rows"]) == 5
    assert outcome["runs"] > 3
    assert outcome["after"] == 0
