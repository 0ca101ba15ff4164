"""Frames of sound in integers: nmp_sound.c returns numpy's bytes, here and on boards, near the float front end's, and a
front end that could overflow is refused."""

from __future__ import annotations

import math
import re
import subprocess
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
from board_programs import output
from c_core import C99, SANITIZE, WARNINGS, includes, sources
from verified import inspected

from nmpconv import _nmp
from nmpconv.base import sound
from nmpconv.base.sound import SoundFront
from nmpconv.base.sqnr import sqnr_db
from nmpconv.conversion import sound_ports
from nmpconv.conversion.options import Options
from nmpconv.data.audio import FrontEnd, parse, to_pcm
from nmpconv.device.simulator import MACHINES
from nmpconv.errors import ModelError, UsageError
from nmpconv.exporters.c_sources import bundle
from nmpconv.file import flatbuffer, reader
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Shifts
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter
from nmpconv.runtime.feed import Feed

OWN = "sound_cases.c"
KINDS = 8
FRONTS = {
    "words": "rate=8000,window=512,hop=256,bands=20",
    "padded": "rate=16000,window=400,hop=160,bands=40,fft=512,floor=0.000001",
    "odd": "rate=16000,window=95,hop=200,bands=7,fft=128,low=60,high=7600",
    "least": "rate=8000,window=2,hop=1,bands=2,fft=16,floor=100",
    "16": "rate=8000,window=16,hop=8,bands=3",
    "most": "rate=48000,window=4096,hop=3000,bands=100,floor=0.000000001",
    "mfcc": "rate=16000,window=480,hop=320,bands=40,fft=512,low=20,high=4000,floor=0.000001,mfcc=10",
    "all mfcc": "rate=8000,window=30,hop=64,bands=16,fft=32,mfcc=16,htk=1",
}


def file_of(front: SoundFront, frames: int = 3, bits: int = 8) -> bytes:
    """A model whose input is so many frames."""
    net = nets.Net(grid=nets.grid(bits, 0))
    shape = (front.width, frames) if front.turned else (frames, front.width)
    net.input("x", 1, *shape)
    net.op("requantize", "x", "y", quant=nets.grid(bits, 1))
    return to_bytes(plan_memory.run(net.graph("y")), {}, sounds={"x": front})


def pcm_of(kind: int, count: int) -> np.ndarray:
    """Samples of sound_cases.c."""
    i, random, state = np.arange(count), np.empty(count, np.uint32), kind
    for at in range(count):
        random[at] = state = (state * 1664525 + 1013904223) % 2**32
    noise = (random >> 16).astype(np.uint16).view(np.int16)
    low, high = np.int16(-32768), np.int16(32767)
    return [
        noise,
        np.full(count, low),
        np.where(i & 1, low, high),
        np.zeros(count, np.int16),
        np.trunc(noise / 8192).astype(np.int16),
        np.where(i // 7 & 1, low, high),
        np.where(i < 900, 0, np.where(i == 900, low, 1)).astype(np.int16),
        (i * i % 2**32 * 3 % 2**32 // 64 & 0x7FFF).astype(np.int16),
    ][kind]


def checksum(data: bytes) -> int:
    found = 2166136261
    for byte in data:
        found = (found ^ byte) * 16777619 % 2**32
    return found


def wanted(front: SoundFront, pcm: np.ndarray, frames: int, bits: int) -> tuple[int, int]:
    """The number of frames, and the checksum of their numbers and of what the input holds at the end."""
    numbers = sound.features(front, pcm)
    low, high = (-128, 127) if bits == 8 else (-32768, 32767)
    whole = np.concatenate([np.zeros((frames, front.width), int), sound.integers(front, numbers, low, high)])[-frames:]
    whole = whole.T if front.turned else whole
    return len(numbers), checksum(numbers.astype("<i4").tobytes() + whole.astype(f"<i{bits // 8}").tobytes())


def on_a_grid(front: SoundFront, rng: np.random.Generator, case: int) -> SoundFront:
    """With shifts and offsets: one or one a band, also where integers saturate."""
    count = front.width if case % 2 else 1
    shifts = tuple(int(n) for n in rng.integers(6, 17, count))
    return replace(front, shifts=shifts, offsets=tuple(int(n) for n in rng.integers(-400000, 400000, count)))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sound_cases.h: every kind of sound for each front end."""
    folder, rng = tmp_path_factory.mktemp("sounds"), np.random.default_rng(4)
    arrays, lines, most = [], [], {"ARENA": 0, "MEMORY": 0, "INPUT": 0, "BANDS": 0, "PIECE": 0}
    for i, text in enumerate(FRONTS.values()):
        bits, frames, one = 8 << i % 2, int(rng.integers(1, 4)), parse(text).whole
        front = replace(on_a_grid(one, rng, i), turned=i % 3 == 1)
        data, size = file_of(front, frames, bits), len(front.window)
        arrays.append(f"static const ALIGNED uint8_t model_{i}[] = {{{','.join(map(str, data))}}};")
        input_bytes = frames * front.width * bits // 8
        for kind in range(KINDS):
            samples = min(size + int(rng.integers(2, 6)) * front.hop, 12000) + int(rng.integers(0, front.hop))
            piece = int(rng.integers(1, 300))
            found = wanted(front, pcm_of(kind, samples), frames, bits)
            numbers = f"{input_bytes}, {kind}u, {samples}u, {piece}u, {found[0]}u, {found[1]}u"
            lines.append(f"{{model_{i}, sizeof model_{i}, {numbers}}},")
            new = {"ARENA": 4096, "MEMORY": front.memory, "INPUT": input_bytes, "BANDS": front.bands, "PIECE": piece}
            most = {key: max(value, new[key]) for key, value in most.items()}
    text = "\n".join([*(f"#define {key}_MAX {value}" for key, value in most.items()), *arrays])
    (folder / "sound_cases.h").write_text(
        f"{text}\nstatic const sound_case cases[] = {{\n" + "\n".join(lines) + "\n};\n"
    )
    return folder


@pytest.mark.slow
def test_the_integers_of_numpy_and_c_here(
    cases: Path, root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """Sound is compiled with sanitizers, the rest of the interpreter as fast as can be."""
    gcc, src = need_tool("gcc", "clang"), root / "interpreter" / "src"
    ops = ["-DNMP_BUILD_OPS(X)=X(requantize, REQUANTIZE)", "-DNMP_FIXED_CPU=1", "-DNMP_KEEP_STEPS=0"]
    judged = [src / "sound" / "nmp_sound.c", src / "core" / "sounds.c", root / "interpreter" / "tests" / OWN]
    parts = ("nmp.c", "dispatch.c", "base", "gen", "kernels", "conv", "arch/plain32", "ops/common", "ops/requantize.c")
    others = [p for p in sources(root, *parts) if not {"gemm", "depthwise"} & {*p.parts}]
    others += [p for p in sources(root, "core") if p not in judged and p.parent.name != "fuse"]
    others += [root / "interpreter" / "tests" / "memory.c"]
    for files, flags in (
        (others, ("-std=c99", "-O0", "-D_POSIX_C_SOURCE=200112L")),
        (judged, (*C99, *WARNINGS, *SANITIZE)),
    ):
        command = [gcc, *flags, *ops, *includes(root), f"-I{cases}", "-c", *files]
        subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([gcc, *SANITIZE, *sorted(tmp_path.glob("*.o")), "-o", tmp_path / "sounds"], check=True)
    said = subprocess.run([tmp_path / "sounds"], capture_output=True, text=True)
    assert said.stdout == f"{KINDS * len(FRONTS)} sounds, 0 differ\n", said.stdout + said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "rv32"])
def test_the_integers_of_numpy_and_c_on_a_board(
    board: str, cases: Path, root: Path, tmp_path: Path, need_tool: Callable[..., str]
) -> None:
    """With the interpreter of a bundle, which has few files."""
    need_tool("riscv64-unknown-elf-gcc" if board == "rv32" else "arm-none-eabi-gcc")
    need_tool(MACHINES[board].program)
    make = ["make", "-s", "-C", root / "interpreter" / "firmware", f"BOARD={board}", f"OUT={tmp_path}"]
    for path, text in bundle({f"of{bits}": file_of(parse(FRONTS["16"]).whole, 1, bits) for bits in (8, 16)}).items():
        (tmp_path / "bundle" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / path).write_bytes(text)
    make += [f"SRC={tmp_path / 'bundle' / 'src'}", f"NAME={board}", f"DEFINES=-I{cases}"]
    make += [f"MAIN=../tests/{OWN} ../tests/memory.c"]
    subprocess.run(make, check=True, capture_output=True)
    assert output(board, tmp_path / f"{board}.elf") == f"{KINDS * len(FRONTS)} sounds, 0 differ\n"


def heard(kind: str) -> np.ndarray:
    """float32 samples of two seconds at 8 kHz: speech-like tones, and noise, loud and quiet."""
    rng, t = np.random.default_rng(7), np.arange(16000) / 8000
    tones = sum(np.sin(2 * np.pi * f * t + 3 * np.sin(9 * t)) / i for i, f in enumerate((220, 450, 910, 1800), 1))
    found = {"tones": 0.4 * tones, "noise": rng.normal(0, 0.2, 16000), "quiet": rng.normal(0, 0.003, 16000)}[kind]
    return (to_pcm(found) / 32768).astype(np.float32)


@pytest.mark.parametrize("kind", ["tones", "noise", "quiet"])
@pytest.mark.parametrize("name", ["words", "padded", "16"])
def test_near_the_floats(name: str, kind: str) -> None:
    """But for bands that are 75 dB below a tone, whose window has 16 bits."""
    front = parse(FRONTS[name])
    whole, floats = front.frames(heard(kind)), replace(front, integers=0).frames(heard(kind))
    assert front.integers
    apart = np.abs(whole - floats)
    weak = floats < floats.max(axis=1, keepdims=True) - 7.5 * np.log(10)
    assert apart[~weak].max() < 3e-2
    assert apart.max() < 0.2
    assert apart[~weak].mean() < 1e-3


@pytest.mark.parametrize("kind", ["tones", "noise", "quiet"])
@pytest.mark.parametrize("name", ["mfcc", "all mfcc"])
def test_mfcc_near_the_floats(name: str, kind: str) -> None:
    """All numbers but the first, the largest one, whose SQNR is more."""
    front = parse(FRONTS[name])
    whole, floats = front.frames(heard(kind)), replace(front, integers=0).frames(heard(kind))
    assert front.integers and whole.shape[1] == front.mfcc == front.whole.width
    assert sqnr_db(floats[:, 1:], whole[:, 1:]) > 50


@pytest.mark.parametrize("htk", [0, 1])
def test_mfcc_are_a_cosine_transform(htk: int) -> None:
    """The numbers of the orthonormal DCT-II, by its sum; with htk=1 that of tf.signal.mfccs_from_log_mel_spectrograms:
    2 / sqrt(2 * bands) times the sum for number 0, too."""
    bands = parse("rate=16000,window=480,hop=320,bands=40,fft=512,integers=0")
    mfcc = replace(bands, mfcc=13, htk=htk)
    logarithms, found = bands.frames(heard("tones")).astype(float), mfcc.frames(heard("tones"))
    for k in range(13):
        cosines = [math.cos(math.pi * k * (2 * band + 1) / 80) for band in range(40)]
        factor = 2 / math.sqrt(80) if k or htk else 1 / math.sqrt(40)
        np.testing.assert_allclose(found[:, k], logarithms @ cosines * factor, atol=2e-5)


def test_files_of_sound_are_fed_as_the_devices_integers(tmp_path: Path) -> None:
    """Also where MFCC pass 2^24: float32 rounds the first one of silence, to another integer of this grid."""
    front, pcm = parse("rate=16000,window=512,hop=64,bands=64,mfcc=13,htk=1,floor=1e-10"), np.zeros(640, np.int16)
    with wave.open(str(tmp_path / "silence.wav"), "wb") as file:
        file.setparams((1, 2, front.rate, 0, "NONE", ""))
        file.writeframes(pcm.tobytes())
    net = nets.Net(grid=nets.grid(16, -15))
    net.input("x", 1, 3, 13)
    net.op("requantize", "x", "y", quant=nets.grid(8, 0))
    graph = net.graph("y", sources=True)
    graph = graph.with_values(replace(graph["x"], shifts=Shifts((0,), None, (-261.0,))))
    [written] = sound_ports.fronts(graph, front, None, ()).values()
    host = interpreter.load(to_bytes(plan_memory.run(graph), {}, sounds={"x": written}))
    feed = Feed(host, {"": tmp_path / "silence.wav"})
    wanted = sound.integers(written, sound.features(written, pcm), -32768, 32767)
    assert abs(wanted[0, 0]) < 32767
    np.testing.assert_array_equal(host.inputs[0].integers(feed.integers(feed[0])["x"])[0, 0], wanted)


def test_powers_are_those_of_the_transform() -> None:
    """Against numpy's transform of the same integers, as far as the rounding of 30 bits goes."""
    front = parse("rate=8000,window=256,hop=256,bands=2,fft=256").whole
    one = replace(front, first=(0,) * 129, counts=(0,) * 129)
    for k in range(129):  # a band for each frequency
        one = replace(
            one, first=(*one.first[:k], k, *one.first[k + 1 :]), counts=(*one.counts[:k], 1, *one.counts[k + 1 :])
        )
    one = replace(one, weights=(32768,) * 129, floor=1)
    pcm = pcm_of(0, 256)
    found = sound.features(one, pcm)[0] / 65536
    energy = np.abs(np.fft.rfft(pcm / 32768 * np.array(one.window) / 32768)) ** 2
    np.testing.assert_allclose(found, np.log(energy), atol=3e-4)


def _mixed(front: SoundFront, weight: int) -> dict[str, Any]:
    """300 bands and a coefficient of them."""
    return {"points": 512, "turns": parse("rate=8000,window=512,hop=9,bands=2").whole.turns, "first": (0,) * 300} | {
        "counts": (0,) * 300,
        "weights": (),
        "cepstrum": (weight,) * 300,
    }


WRONG: dict[str, Callable[[SoundFront], dict[str, Any]]] = {
    "0 samples a second": lambda one: {"rate": 0},
    "a transform of 0 points": lambda one: {"points": 0},
    "a transform of 96 points": lambda one: {"points": 96},
    "a transform of 8 points": lambda one: {"points": 8},
    "a transform of 8192 points": lambda one: {"points": 8192},
    "a transform of 2147483648 points": lambda one: {"points": 2**31},
    "a hop of 0 samples": lambda one: {"hop": 0},
    "a hop of 65536 samples": lambda one: {"hop": 65536},
    "a window of 1 samples": lambda one: {"window": (1,)},
    "a window of 129 samples": lambda one: {"window": (1,) * 129},
    "a weight of a sample beyond 1": lambda one: {"window": (*one.window[:-1], 32769)},
    "32 turns": lambda one: {"turns": one.turns[:-1]},
    "a turn that is not from 0 to 1": lambda one: {"turns": (*one.turns[:5], -1, *one.turns[6:])},
    "turns from 0 to 1073741823": lambda one: {"turns": (*one.turns[:-1], 2**30 - 1)},
    "turns from 1 to": lambda one: {"turns": (1, *one.turns[1:])},
    "turns that enlarge": lambda one: {"turns": (0, *one.turns[2:], 2**30)},
    "7 bands, 6 of them begin": lambda one: {"first": one.first[:-1]},
    "0 bands": lambda one: {"first": (), "counts": (), "weights": ()},
    "a band beyond frequency 64": lambda one: {"first": (*one.first[:-1], one.first[-1] + 9)},
    "weights of": lambda one: {"weights": one.weights[:-1]},
    "a weight of a band beyond 1": lambda one: {"weights": (*one.weights[:-1], 32769)},
    "a floor of 0": lambda one: {"floor": 0},
    "a floor of 4611686018427387905": lambda one: {"floor": 2**62 + 1},
    "13 weights of a cepstrum of 7 bands": lambda one: {"cepstrum": (1,) * 13},
    "8 coefficients": lambda one: {"cepstrum": (1,) * 56},
    "a coefficient that enlarges": lambda one: _mixed(one, -32768),
    "a coefficient that": lambda one: _mixed(one, 32767),
    "7 shifts for 3 numbers": lambda one: {"cepstrum": (1,) * 21, "shifts": (1,) * 7, "offsets": (1,) * 7},
    "frames of 2 in 21 elements": lambda one: {"cepstrum": (1,) * 14},
    "2 shifts for 7 numbers": lambda one: {"shifts": (1, 2), "offsets": (1, 2)},
    "0 shifts": lambda one: {"shifts": (), "offsets": ()},
    "7 offsets for 1 shifts": lambda one: {"offsets": (0,) * 7},
    "a shift out of range": lambda one: {"shifts": (48,)},
    "a shift out of": lambda one: {"shifts": (-16,)},
    "an offset out of range": lambda one: {"offsets": (2**30 + 1,)},
    "an offset out of": lambda one: {"offsets": (-(2**31),)},
}


@pytest.mark.parametrize("rule", WRONG)
def test_hostile_numbers_are_refused(rule: str) -> None:
    """By both readers, with one status."""
    front = parse(FRONTS["odd"]).whole
    good = file_of(front)
    assert reader.read(good).inputs[0].sound == front
    bad = replace(front, **WRONG[rule](front))
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 3, 7)
    net.op("requantize", "x", "y", quant=nets.grid(8, 1))
    data = to_bytes(plan_memory.run(net.graph("y")), {}, sounds={"x": bad})
    with pytest.raises(ModelError, match=rule) as error:
        reader.read(data)
    assert error.value.status == "NMP_E_TENSOR"
    with pytest.raises(ModelError) as error:
        interpreter.load(data)
    assert error.value.status == "NMP_E_TENSOR"


def test_a_coefficient_may_be_nothing() -> None:
    front = replace(parse(FRONTS["odd"]).whole, cepstrum=(0,) * 7)
    data = file_of(front)
    assert reader.read(data).inputs[0].sound == front
    interpreter.load(data)


def test_sound_is_of_inputs() -> None:
    root = flatbuffer.unpack(file_of(parse(FRONTS["odd"]).whole))
    root["outputs"][0]["sound"], root["inputs"][0]["sound"] = root["inputs"][0]["sound"], None
    with pytest.raises(_nmp.Fault) as caught:
        inspected(flatbuffer.pack(root))
    assert caught.value.args[2:5] == ("sound of an output", 1, 0)


def test_random_numbers_are_judged_alike() -> None:
    """Both readers take a front end or refuse it; what they take computes without an overflow, whatever is heard."""
    rng, taken = np.random.default_rng(11), 0
    for _ in range(150):
        points = int(rng.choice([16, 32, 64]))
        angle = np.linspace(0, np.pi / 2, points // 4 + 1)
        turns = np.rint(np.sin(angle) * 2**30).astype(int)
        turns[1:-1] += rng.integers(-2, 2, len(turns) - 2)
        bands, high = int(rng.integers(1, 4)), int(rng.choice([32768, 32768, 32768, 32769]))
        first, counts = rng.integers(0, points // 2, bands), rng.integers(0, 4, bands)
        front = SoundFront(
            int(rng.integers(0, 3)),
            int(rng.integers(1, 99)),
            points,
            tuple(int(n) for n in rng.integers(0, high + 1, int(rng.integers(2, points + 1)))),
            tuple(turns.tolist()),
            tuple(first.tolist()),
            tuple(counts.tolist()),
            (high,) * int(counts.sum()),
            int(rng.choice([1, 2**62])),
            cepstrum=tuple(rng.integers(-32768, 32768, int(rng.choice([0, 0, bands, bands, bands * 2, 5]))).tolist()),
        )
        data = file_of(front)
        try:
            reader.read(data)
        except ModelError:
            with pytest.raises(ModelError):
                interpreter.load(data)
            continue
        interpreter.load(data)
        taken += 1
        for kind in (0, 1, 2, 5):
            found = sound.features(front, pcm_of(kind, 300))
            sums = front.bands if front.cepstrum else 1  # weights are at most 1
            assert np.abs(found).max(initial=0) < math.log(2**63) * 65536 * sums
    assert 20 < taken < 140


def test_a_front_end_says_whether_it_is_in_integers() -> None:
    assert parse("rate=8000,window=400,hop=160,bands=20").why_floats.startswith("a transform of 400 points")
    assert [parse(f"rate=8000,window=512,hop=9,bands=20,integers={n}").integers for n in (0, 1)] == [0, 1]
    for text, why in (
        ("window=400,hop=160,bands=9", "400 points"),
        ("window=16,hop=70000,bands=9", "a hop of 70000"),
        ("window=16,hop=9,bands=2,mfcc=2", "MFCC of 2 bands; 3 to the 16 points"),
        ("window=16,hop=9,bands=17,mfcc=2", "MFCC of 17 bands"),
    ):
        with pytest.raises(UsageError, match=why):
            parse(f"rate=8000,{text},integers=1")
    with pytest.raises(UsageError, match="floor"):
        parse("rate=8000,window=4096,hop=160,bands=9,floor=1e-15,integers=1")
    assert FrontEnd(16000).why_floats == "a frame is a sample"
    for text, why in (("rate=8000,floor=inf", "floor"), ("rate=5000000000", "5000000000 samples a second")):
        assert not parse(f"{text},window=512,hop=256,bands=20").integers
        with pytest.raises(UsageError, match=why):
            parse(f"{text},window=512,hop=256,bands=20,integers=1")


def test_what_a_bundle_says_of_sound_is_in_the_documents(root: Path) -> None:
    """Macros of an input that sound feeds, and `info.numbers`."""
    header = bundle({"words": file_of(parse(FRONTS["mfcc"]).whole)})["src/words_data.h"].decode()
    macros = header[header.index("WORDS_INPUT_0_RATE") :].partition("OUTPUT")[0]
    text = (root / "docs" / "firmware.md").read_text(encoding="utf-8").partition("## Sound")[2].partition("\n## ")[0]
    names = re.findall(r"WORDS_INPUT_0(_\w+)", macros)
    assert "_NUMBERS" in names and "info.numbers" in text
    assert [name for name in names if f"{name}`" not in text and f"WORDS_INPUT_0{name}" not in text] == []


def test_long_sounds_are_transformed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    front, pcm = parse(FRONTS["padded"]).whole, pcm_of(1, 5000)
    whole = sound.features(front, pcm)
    monkeypatch.setattr(sound, "AT_ONCE", 3 * front.points)
    np.testing.assert_array_equal(sound.features(front, pcm), whole)


def test_grids_that_no_front_end_has_leave_it_in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a warning, where integers were not asked for by name."""

    def refused(*_: object) -> dict[str, SoundFront]:
        raise UsageError("the frames have grids of their own")

    monkeypatch.setattr(sound_ports, "fronts", refused)
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 4, 4, 1)
    net.op("requantize", "x", "y", quant=nets.grid(8, 1))
    graph = net.graph("y")
    fronts, warnings = sound_ports.chosen(graph, Options(audio=FRONTS["words"]))
    assert fronts == {} and "in floats" in warnings[0] and "grids of their own" in warnings[0]
    with pytest.raises(UsageError, match="grids of their own"):
        sound_ports.chosen(graph, Options(audio=f"{FRONTS['words']},integers=1"))


def test_sound_beside_another_input_stays_in_floats() -> None:
    net = nets.Net(grid=nets.grid(8, 0))
    for name in ("x", "z"):
        net.input(name, 1, 4, 4, 1)
    net.op("add", "x z", "y", quant=nets.grid(8, 1))
    graph = net.graph("y")
    fronts, warnings = sound_ports.chosen(graph, Options(audio=FRONTS["words"]))
    assert fronts == {} and "2 inputs, x, z" in warnings[0]
    with pytest.raises(UsageError, match="2 inputs, x, z"):
        sound_ports.chosen(graph, Options(audio=f"{FRONTS['words']},integers=1"))
