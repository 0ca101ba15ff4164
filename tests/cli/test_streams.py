"""run, eval and bench of files with states: sequences of calls, arrays of frames, and sound."""

from __future__ import annotations

import runpy
import struct
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx_text import build

import nmpconv
from nmpconv.base.sqnr import Sqnr
from nmpconv.data import audio
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.file import reader
from nmpconv.runtime import on_device
from nmpconv.runtime.feed import given
from nmpconv.runtime.interpreter import Net, load

SOUNDS = runpy.run_path(str(Path(__file__).parent.parent.parent / "samples" / "sounds" / "sounds.py"))
FRONT = "rate=8000,window=64,hop=32,bands=6"
BANDS, FRAMES, CLASSES, HIDDEN = 6, 12, 4, 5
WINDOW = f"""(float[1,{BANDS},{FRAMES}] x) => (y)
<float[8,{BANDS},3] w0, float[8] b0, float[{CLASSES},8] w1, float[{CLASSES}] b1> {{
  a0 = Conv<pads=[2,0]>(x, w0, b0)  a = Relu(a0)  g = GlobalAveragePool(a)  f = Flatten(g)
  z = Gemm<transB=1>(f, w1, b1)  y = Softmax(z)
}}"""
GRU = f"""(float[1,1,{BANDS}] x, float[1,1,{HIDDEN}] h) => (float[1,1,{HIDDEN}] hn, float[1,{CLASSES}] y)
<float[1,{3 * HIDDEN},{BANDS}] w, float[1,{3 * HIDDEN},{HIDDEN}] r, float[1,{6 * HIDDEN}] b,
 float[{CLASSES},{HIDDEN}] o> {{
  s, hn = GRU<hidden_size={HIDDEN}>(x, w, r, b, , h)
  shape = Constant<value_ints=[1,{HIDDEN}]>()  f = Reshape(hn, shape)  y = Gemm<transB=1>(f, o)
}}"""


def walks(count: int, frames: int, seed: int) -> np.ndarray:
    """float32 [count, frames, BANDS] that wander."""
    steps = np.random.default_rng(seed).normal(size=(count, frames, BANDS))
    return np.cumsum(steps * 0.4, axis=1).astype(np.float32)


def write_wav(path: Path, samples: np.ndarray, *, rate: int = 8000, width: int = 2, channels: int = 1) -> Path:
    """samples: from -1 to 1."""
    steps = np.round(np.repeat(samples, channels) * (2 ** (8 * width - 1) - 1)).astype("<i8")
    shown = steps + 128 if width == 1 else steps
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(np.ascontiguousarray(shown[:, None].view(np.uint8)[:, :width]).tobytes())
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """whole.onnx and gru.onnx, converted as a step and with a state, with a front end and without."""
    here, rng = tmp_path_factory.mktemp("streams"), np.random.default_rng(1)
    sizes = {"w0": (8, BANDS, 3), "b0": 8, "w1": (CLASSES, 8), "b1": CLASSES}
    build(WINDOW, 13, here / "whole.onnx", arrays={name: rng.normal(size=size) for name, size in sizes.items()})
    more = {"w": (1, 3 * HIDDEN, BANDS), "r": (1, 3 * HIDDEN, HIDDEN), "b": (1, 6 * HIDDEN), "o": (CLASSES, HIDDEN)}
    build(GRU, 14, here / "gru.onnx", arrays={name: rng.normal(size=size) * 0.5 for name, size in more.items()})
    windows = walks(40, FRAMES, 0).transpose(0, 2, 1)
    how: dict[str, Any] = {"stream": "axis=2,hop=3", "labels": ["a", "b", "c", "d"]}
    nmpconv.convert(here / "whole.onnx", windows).save(here / "whole.nmp")
    nmpconv.convert(here / "whole.onnx", windows, **how).save(here / "mute.nmp")
    nmpconv.convert(here / "whole.onnx", windows, audio=FRONT, **how).save(here / "step.nmp")
    sequences = walks(8, 30, 2)[:, :, None]
    nmpconv.convert(here / "gru.onnx", sequences, state=["hn=h"], audio=FRONT).save(here / "gru.nmp")
    return here


def test_the_front_end_is_that_of_the_sample() -> None:
    sound = SOUNDS["sound"]("up", np.random.default_rng(0))
    for integers, apart in ((0, 1e-5), (1, 0.01)):  # samples have 16 bits in integers
        found = audio.parse(f"rate=8000,window=512,hop=256,bands=24,integers={integers}").frames(sound)
        np.testing.assert_allclose(found, SOUNDS["spectrogram"](sound)[0], rtol=1e-5, atol=apart)


def test_only_high_bands_hear_a_high_tone() -> None:
    tone = np.sin(2 * np.pi * 3000 * np.arange(800) / 8000)
    energy = np.exp(audio.parse("rate=8000,window=256,hop=128,bands=8,low=100,floor=1e-6").frames(tone))
    assert energy.shape == (5, 8)
    assert (energy.argmax(1) >= 6).all()
    assert energy[:, :5].max() < 1e-3 * energy.max()


@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 1), (2, 2), (3, 1), (4, 2)])
def test_wav(width: int, channels: int, tmp_path: Path) -> None:
    samples = np.array([0, 1, -1, 0.5, -0.25])
    path = write_wav(tmp_path / "a.wav", samples, width=width, channels=channels)
    np.testing.assert_allclose(audio.read_wav(path, 8000), samples, atol=1.5 / 2 ** (8 * width - 1))
    with pytest.raises(InputError, match="8000 samples a second; the model takes 16000"):
        audio.read_wav(path, 16000)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match="not a readable"):
        audio.read_wav(path, 8000)


def riff(form: int, bits: int, data: bytes, *, channels: int = 1, extensible: bool = False, claims: int = -1) -> bytes:
    """A WAV file at 8 kHz. form: 1 for integers, 3 for floats. claims: bytes of its samples, unless they are."""
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", 0xFFFE if extensible else form, channels, 8000, 8000 * frame, frame, bits)
    if extensible:
        fmt += struct.pack("<HHIH", 22, bits, 0, form) + bytes.fromhex("000000001000800000aa00389b71")
    length = len(data) if claims < 0 else claims
    parts = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", length) + data
    return b"RIFF" + struct.pack("<I", min(len(parts) + length - len(data), 2**32 - 1)) + parts


FORMS = [
    pytest.param(3, 32, "<f4", 1, False, id="float32"),
    pytest.param(3, 64, "<f8", 1, False, id="float64"),
    pytest.param(3, 32, "<f4", 2, True, id="float32, extensible"),
    pytest.param(1, 16, "<i2", 1, True, id="16 bits, extensible"),
    pytest.param(1, 32, "<i4", 2, True, id="32 bits, extensible"),
]


@pytest.mark.parametrize(("form", "bits", "kind", "channels", "extensible"), FORMS)
def test_wav_by_libsndfile(form: int, bits: int, kind: str, channels: int, extensible: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    wanted = np.array([[0, 0.5], [-1, 0.25], [0.75, -0.75]])[:, :channels]
    data = wanted if form == 3 else wanted * 2.0 ** (bits - 1)
    path.write_bytes(riff(form, bits, data.astype(kind).tobytes(), channels=channels, extensible=extensible))
    assert audio.read_wav(path, 8000).tolist() == wanted.mean(1).tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_libsndfile_reads_the_same_samples(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, so that nothing depends on what is installed."""
    path = write_wav(tmp_path / "a.wav", np.random.default_rng(width).uniform(-1, 1, 99), width=width, channels=3)
    wanted = audio.read_wav(path, 8000)
    monkeypatch.setattr(audio, "PCM", -1)
    assert audio.read_wav(path, 8000).tobytes() == wanted.tobytes()


def test_what_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    path = tmp_path / "a.wav"
    path.write_bytes(riff(3, 32, bytes(16)))
    with pytest.raises(InputError) as error:
        audio.read_wav(path, 8000)
    assert "not a readable .wav file" in error.value.message
    assert error.value.hint == "PCM of 8 to 32 bits; pip install 'nmpconv[audio]' reads more"


@pytest.mark.parametrize("form", [1, 3])
@pytest.mark.parametrize("claims", [18, 2**31, 2**32 - 1])
@pytest.mark.parametrize("installed", [True, False])
def test_samples_that_are_not_there(
    form: int, claims: int, installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "soundfile", None)
    path = tmp_path / "a.wav"
    path.write_bytes(riff(form, 16 if form == 1 else 32, bytes(16), claims=claims))
    with pytest.raises(InputError, match=f"its part 'data' claims {claims} bytes, and has 16"):
        audio.read_wav(path, 8000)


def test_floats_that_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(riff(3, 32, np.array([0, 1, np.nan, np.inf], "<f4").tobytes(), channels=2))
    with pytest.raises(InputError, match="sample 1 is infinite or no number"):
        audio.read_wav(path, 8000)


def test_samples_themselves_are_frames() -> None:
    assert audio.parse("rate=16000").frames(np.arange(3)).tolist() == [[0], [1], [2]]


@pytest.mark.parametrize(
    "text",
    [
        *("window=3", "rate=8000,window=64", "rate=x", f"{FRONT},rate=1", f"{FRONT},high=5000", "rate=0", "a"),
        *("rate=8000,mfcc=1", f"{FRONT},mfcc=-1", f"{FRONT},mfcc=4097", f"{FRONT},htk=1", f"{FRONT},mfcc=3,htk=2"),
    ],
)
def test_no_front_end(text: str) -> None:
    with pytest.raises(UsageError) as error:
        audio.parse(text)
    assert error.value.where == "--audio"


@pytest.mark.slow
def test_a_front_end_has_to_fit_the_input(made: Path) -> None:
    with pytest.raises(UsageError, match=r"frames of 7 numbers do not fit an input of \[1, 6, 12\]"):
        nmpconv.convert(made / "whole.onnx", dry_run=True, audio="rate=8000,window=64,hop=32,bands=7")


@pytest.mark.parametrize(
    ("front", "input_text", "message"),
    [
        (FRONT, "float[1,6,12] x", "11 frames; the model's input takes 12, 0.052 s of sound"),
        ("rate=8000", "float[1,1,415] x", "400 samples; the model's input takes 415, 0.05187 s of sound"),
    ],
)
def test_a_recording_of_another_length_is_told_in_seconds(
    front: str, input_text: str, message: str, tmp_path: Path
) -> None:
    build(f"({input_text}) => (y) {{ y = Relu(x) }}", 13, tmp_path / "m.onnx")
    path = write_wav(tmp_path / "a.wav", np.zeros(400))
    with pytest.raises(InputError, match=message):
        nmpconv.convert(tmp_path / "m.onnx", path, audio=front)


def calls_of(net: Net, frames: np.ndarray) -> list[np.ndarray]:
    """The outputs of a step by hand. frames: [frames, BANDS]."""
    net.reset()
    return [net.run(frames[i : i + 3].T[None])[0] for i in range(0, len(frames) - 2, 3)]


def test_sound_is_run_as_its_frames_are(made: Path, cli: Any, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", np.random.default_rng(3).uniform(-1, 1, 32 * 24))
    frames = audio.parse(FRONT).frames(audio.read_wav(path, 8000))
    assert len(frames) == 23
    wanted = np.concatenate(calls_of(load(made / "step.nmp"), frames))
    ran = cli("run", made / "step.nmp", path, "-o", "all.npz", "--raw", "--json")
    [found] = ran.json["samples"]
    assert (found["file"], found["calls"]) == (str(path), 7)
    written = np.load("all.npz")
    np.testing.assert_array_equal(written["y"], wanted)
    best = wanted.argmax(1)
    assert [s["class"] for s in found["stretches"] for _ in range(s["first"], s["last"] + 1)] == best.tolist()
    assert found["top"][0]["class"] == best[-1]
    assert "calls  class  label" in cli("run", made / "step.nmp", path).out


def test_mfcc_are_heard_by_the_file(made: Path, cli: Any, tmp_path: Path) -> None:
    """The file has the cosine transform; what it is fed are the frames of --audio."""
    text = "rate=8000,window=64,hop=32,bands=9,mfcc=6"
    path = write_wav(tmp_path / "a.wav", np.random.default_rng(3).uniform(-1, 1, 32 * 13))
    frames = audio.parse(text).frames(audio.read_wav(path, 8000))
    file = nmpconv.convert(made / "whole.onnx", frames.T[None], audio=text, rounding="nearest", equalize="none")
    (tmp_path / "mfcc.nmp").write_bytes(file.data)
    front = reader.read(file.data).inputs[0].sound
    assert front is not None and (front.width, front.bands, len(front.cepstrum)) == (6, 9, 54)
    cli("run", tmp_path / "mfcc.nmp", path, "-o", "out.npz", "--raw")
    [wanted] = file.load().run(frames.T[None])
    np.testing.assert_array_equal(np.load("out.npz")["y"], wanted)
    assert "6 MFCC of 9 bands of 64 samples, every 32" in " ".join(cli("inspect", tmp_path / "mfcc.nmp").out.split())


def test_every_sequence_begins_anew(made: Path, cli: Any, tmp_path: Path) -> None:
    walk = walks(3, 21, 4)
    np.save(tmp_path / "one.npy", walk[0].T[None])
    np.savez(tmp_path / "three.npz", x=walk.transpose(0, 2, 1))
    wanted = [np.concatenate(calls_of(load(made / "mute.nmp"), one)) for one in walk]
    cli("run", made / "mute.nmp", tmp_path / "one.npy", tmp_path / "three.npz", "-o", "all.npz", "--raw")
    written = np.load("all.npz")
    assert written["starts"].tolist() == [0, 7, 14, 21]
    np.testing.assert_array_equal(written["y"], np.concatenate([wanted[0], *wanted]))


@pytest.mark.parametrize("file", ["mute.nmp", "whole.nmp"])
def test_sound_needs_a_front_end(file: str, made: Path, cli: Any, tmp_path: Path) -> None:
    ran = cli("run", made / file, write_wav(tmp_path / "a.wav", np.zeros(2000)))
    assert ran.code == 3
    assert "does not say how sound becomes its input" in ran.err
    assert "--audio rate=HZ where samples" in ran.err and ".npy" in ran.err


def test_a_step_is_judged_as_the_whole(made: Path) -> None:
    """On windows of their own: the same outputs, so the same figures."""
    windows, labels = walks(30, FRAMES, 5).transpose(0, 2, 1), np.arange(30) % CLASSES
    data = list(zip(windows, labels, strict=True))
    figures = [evaluate(load(made / f), {"": data}, reference=made / "whole.onnx") for f in ("whole.nmp", "step.nmp")]
    assert figures[1].sequences == 30
    assert [f.n for f in figures] == [30, 30]
    for name in ("top1", "top5", "reference_top1", "agreement", "sqnr"):
        assert getattr(figures[0], name) == getattr(figures[1], name)


def test_a_stream_is_judged_once_it_fills_the_window(made: Path) -> None:
    frames = walks(1, 30, 6)[0].T[None]
    found = evaluate(load(made / "step.nmp"), {"": frames}, reference=made / "whole.onnx")
    assert (found.n, found.sequences) == (10 - 3, 1)
    with pytest.raises(InputError, match="no sequence fills the window"):
        evaluate(load(made / "step.nmp"), {"": frames[:, :, :9]}, reference=made / "whole.onnx")


def by_hand(made: Path, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [sequences, calls, CLASSES] of the file and of the float model with its state fed back."""
    net, session = load(made / "gru.nmp"), ort.InferenceSession(made / "gru.onnx")
    ours, theirs = [], []
    for sequence in sequences:
        net.reset()
        h = np.zeros((1, 1, HIDDEN), np.float32)
        for x in sequence:
            ours.append(net.run_float(x[None, None])[0])
            h, y = session.run(None, {"x": x[None, None], "h": h})
            theirs.append(y)
    shape = (*sequences.shape[:2], CLASSES)
    return np.array(ours).reshape(shape), np.array(theirs).reshape(shape)


@pytest.mark.parametrize("each", [False, True])
def test_states_are_fed_back_to_the_reference(each: bool, made: Path, cli: Any) -> None:
    """A label of a sequence judges its last call; labels of all calls judge all."""
    sequences = walks(6, 20, 7)
    ours, theirs = by_hand(made, sequences)
    labels = np.random.default_rng(8).integers(0, CLASSES, (6, 20) if each else 6)
    np.savez("test.npz", x=sequences[:, :, None], labels=labels)
    if not each:
        ours, theirs = ours[:, -1:], theirs[:, -1:]
    wanted = Sqnr()
    for a, b in zip(theirs.reshape(-1, CLASSES), ours.reshape(-1, CLASSES), strict=True):
        wanted.add(a, b)
    found = cli("eval", made / "gru.nmp", "--data", "test.npz", "--reference", made / "gru.onnx", "--json").json
    assert (found["n"], found["sequences"]) == (120 if each else 6, 6)
    assert found["sqnr_db"] == pytest.approx(wanted.db, abs=1e-3)
    assert found["top1"] == pytest.approx(100 * np.mean(ours.argmax(-1).ravel() == labels.ravel()))
    assert found["reference_top1"] == pytest.approx(100 * np.mean(theirs.argmax(-1).ravel() == labels.ravel()))
    assert found["agreement"] == pytest.approx(100 * np.mean(ours.argmax(-1) == theirs.argmax(-1)))


def test_limits_count_sequences(made: Path) -> None:
    data = [(one[:, None], 1) for one in walks(5, 20, 9)]
    found = evaluate(load(made / "gru.nmp"), {"": data}, limit=2)
    assert (found.n, found.sequences) == (2, 2)


def test_labels_have_to_fit(made: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", x=walks(4, 20, 1)[:, :, None], labels=np.zeros((4, 3), int))
    with pytest.raises(InputError, match="3 labels for 20 calls"):
        evaluate(load(made / "gru.nmp"), {"": tmp_path / "bad.npz"})
    np.savez(tmp_path / "bad.npz", x=walks(4, FRAMES, 1).transpose(0, 2, 1), labels=np.zeros((4, 4), int))
    with pytest.raises(InputError, match="several labels for a sample"):
        evaluate(load(made / "whole.nmp"), {"": tmp_path / "bad.npz"})
    with pytest.raises(InputError, match=r"an array of shape \[7, 12\]; a call takes \[1, 6, 3\]"):
        evaluate(load(made / "step.nmp"), {"": [np.zeros((7, FRAMES))]})


def test_bench_takes_streams(made: Path, cli: Any, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", np.random.default_rng(3).uniform(-1, 1, 32 * 24))
    net = load(made / "gru.nmp")
    [calls] = given(net, {"": path})
    assert len(calls) == 23
    assert cli("bench", made / "gru.nmp", "--data", path, "--runs", 30, "--json").json["runs"] == 30
    assert [len(sequence) for sequence in on_device.sequences(net)] == [on_device.STREAM_CALLS]
