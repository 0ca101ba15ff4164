"""Converts the models of the zoo at several widths and measures each on images that it was not calibrated with.

The zoo ($NMP_ZOO, default ../shared/zoo) is a folder of third parties' models and images with a zoo.json that says what
feeds each model. --floors compares with FLOORS and exits with 1 where one is missed. Calibration and measurement never
share an image:

  imagenet     every fifth image calibrates, the others measure (mobilenetv2: every fourth of those, it is slow)
  cifar10      its own training and test files
  coco         the first of every four images calibrates, the third measures
  faces        every other image calibrates
  textcls      of every four images the first two calibrate: a line of text, upright and turned
  sr           the corners, in the size of the model, of three images and of the three others
  ad01         windows of 5 frames of one clip: its first half calibrates, its second half measures
  others       the first 100 calibrate, the rest measures

All models are converted whole, with what decodes boxes; none needs --outputs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image

from nmpconv.conversion.pipeline import Options, convert
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.ir import Preprocess
from nmpconv.runtime.interpreter import load

SETTINGS: dict[str, dict[str, Any]] = {
    "8": {"bits": "8"},
    "fast": {"bits": "8", "fast": True},
    "strict": {"bits": "8", "widths": "strict"},
    "precise": {"bits": "8", "widths": "precise"},
    "a16w8": {"bits": "a16w8"},
    "16": {"bits": "16"},
}
FIRST = 100  # images that calibrate where the set is not split otherwise
FRAME, FRAMES = 128, 5  # of the audio clip: floats a frame, frames a sample


@dataclass(frozen=True)
class Floor:
    """The least SQNR in dB of every output, the least agreement in %, the most that top-1 may drop in points.

    None: not asked for.
    """

    sqnr_db: float | None = None
    agreement: float | None = None
    drop: float | None = None


def _floors(default: Floor, strict: float | None, wide: Floor) -> dict[str, Floor]:
    return {"8": default, "strict": Floor(strict), "16": wide}


def _outputs(narrow: Floor, wide: Floor) -> dict[str, Floor]:
    return {"8": narrow, "16": wide}


RESNET8 = _floors(Floor(34.8, 98.6, 0.5), 33, Floor(60, 99.8))
FLOORS: dict[str, dict[str, Floor]] = {
    "mnist_cntk": _floors(Floor(agreement=99.5), None, Floor(agreement=99.8)),
    "mlperf_ic_resnet8_nchw": RESNET8,
    "mlperf_ic_resnet8_nhwc": RESNET8,
    "mlperf_vww_mobilenet025_nchw": _floors(Floor(28.5, 98.8, 0.6), 28, Floor(52, 99.7)),
    "mlperf_kws_dscnn": _floors(Floor(35.5, 99, 0.6), 32.5, Floor(52, 99.7)),
    "mlperf_ad_autoencoder": _outputs(Floor(48), Floor(70)),
    "cifar10_resnet20": _floors(Floor(33.2, 99, 0.5), 29.6, Floor(57, 99.8)),
    "mobilenetv1_025_224": _floors(Floor(23.3, 92, 2), 18, Floor(53, 99.4)),
    "mobilenetv2_100_224_ptqdeq": _floors(Floor(21.5, 98, 1), 12.5, Floor(57, 99.8)),
    "squeezenet1.1_227": _floors(Floor(33.9, 95.5, 1), 27, Floor(57, 99)),
    "cifar10_se_mbv3_local": _floors(Floor(28.2, 98.3, 1), 25.5, Floor(55, 99.5)),
    "ppocr_cls": _outputs(Floor(25.5, 93), Floor(53, 98.5)),
    "ultraface_rfb_320": _outputs(Floor(36.5), Floor(63)),
    "yunet_n_320": _outputs(Floor(17), Floor(52)),
    "yolox_nano_416": _outputs(Floor(13.3), Floor(45)),
    "fastestdet_352": _outputs(Floor(17), Floor(45)),
    "deeplabv3_mnv2_dm05_513_qatdeq": _outputs(Floor(29), Floor(60)),
    "super_resolution_224": _outputs(Floor(45.5), Floor(70)),
    "fsrcnn_x2": _outputs(Floor(32), Floor(63)),
}
MEASURE_EVERY = {"mobilenetv2_100_224_ptqdeq": 4}
CROPS = {"super_resolution_224": 224, "fsrcnn_x2": 128}  # side in pixels


@dataclass(frozen=True)
class Row:
    """Results of one model at one width. Rates in %, SQNR in dB at the input of a final Softmax.

    costliest: the tensor that makes most of the noise at the heads, and its share; or the layer at which the cumulative
    SQNR falls most, and by how much.
    """

    model: str
    bits: str
    images: int
    quantized_nodes: int
    total_nodes: int
    sqnr: Mapping[str, float]  # by output
    costliest: str
    float_top1: float | None
    top1: float | None
    agreement: float | None
    worst_sqnr_db: float | None  # of the outputs
    bias_rule_cost_db: float | None
    arena_bytes: int
    file_bytes: int
    seconds: float
    peak_mib: int  # of this process so far

    def misses(self, floor: Floor) -> list[str]:
        """Lists in words the floors that are missed."""
        texts = []
        if self.quantized_nodes != self.total_nodes:
            texts.append(f"quantized {self.quantized_nodes}/{self.total_nodes} nodes")
        for what, value, least in (
            ("SQNR", self.worst_sqnr_db, floor.sqnr_db),
            ("agreement", self.agreement, floor.agreement),
        ):
            if least is not None and (value is None or value < least):
                texts.append(f"{what} {_number(value)}, wanted {least}")
        if floor.drop is not None and (self.float_top1 is None or self.top1 is None):
            texts.append("no top-1")
        elif floor.drop is not None and self.float_top1 - self.top1 > floor.drop:  # type: ignore[operator]
            texts.append(f"top-1 dropped by {_number(self.float_top1 - self.top1)}, allowed {floor.drop}")  # type: ignore[operator]
        return texts


@dataclass(frozen=True)
class Split:
    """Two sources of samples, and how their images become the model's input (None: they are arrays)."""

    calib: Path
    measure: Path
    preprocess: Preprocess | None


def shapes(zoo: Path, name: str, about: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The input shape to bind, by input name; none where the model has it."""
    if "input" not in about:
        return {}
    graph = onnx.load(zoo / "models" / f"{name}.onnx", load_external_data=False).graph
    return {graph.input[0].name: tuple(about["input"])}


def split(zoo: Path, name: str, about: Mapping[str, Any], folder: Path) -> Split:
    """Writes the lists or arrays of one model into ``folder``."""
    data = zoo / "data" / about["data"]
    if about["data"] == "ad01":
        clip = np.concatenate([np.fromfile(path, np.float32) for path in sorted(data.glob("*.bin"))]).reshape(-1, FRAME)
        windows = np.stack([clip[i : i + FRAMES].ravel() for i in range(len(clip) - FRAMES + 1)])
        half = len(windows) // 2
        # Windows that share a frame with the other half are left out.
        return Split(
            _npy(folder / "calib", windows[: half - FRAMES + 1]), _npy(folder / "measure", windows[half:]), None
        )
    if about["data"] == "cifar10":
        return Split(data / "train_labels.csv", data / "test_labels.csv", _preprocess(about))
    if about["data"] in ("coco", "faces"):
        files = sorted(path for path in data.rglob("*") if path.suffix in (".jpg", ".png"))
        step = 4 if about["data"] == "coco" else 2
        halves = [_texts(folder / half, files[at::step]) for half, at in (("calib", 0), ("measure", step // 2))]
        return Split(*halves, _preprocess(about))
    if about["data"] == "sr":
        files, size = sorted(data.glob("*.png")), CROPS[name]
        return Split(
            _crops(folder / "calib", files[::2], size),
            _crops(folder / "measure", files[1::2], size),
            _preprocess(about),
        )
    rows = _rows(data / "labels.csv")
    if about["data"] == "textcls":
        calib, measure = ([row for i, row in enumerate(rows) if i % 4 // 2 == half] for half in (0, 1))
    elif about["data"] == "imagenet":
        calib, measure = rows[::5], [row for i, row in enumerate(rows) if i % 5]
    else:
        calib, measure = rows[:FIRST], rows[FIRST:]
    measure = measure[:: MEASURE_EVERY.get(name, 1)]
    if about["data"] == "kws":
        quant = json.loads((data / "quant.json").read_text())
        return Split(_features(folder / "calib", calib, quant), _features(folder / "measure", measure, quant), None)
    return Split(_list(folder / "calib", calib), _list(folder / "measure", measure), _preprocess(about))


def _rows(path: Path) -> list[tuple[Path, int]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [((path.parent / row["file"]).resolve(), int(row["label"])) for row in csv.DictReader(file)]


def _texts(path: Path, files: Sequence[Path]) -> Path:
    path = path.with_suffix(".txt")
    path.write_text("".join(f"{file.resolve()}\n" for file in files))
    return path


def _crops(folder: Path, files: Sequence[Path], size: int) -> Path:
    """The four corners of each image."""
    folder.mkdir()
    for file in files:
        with Image.open(file) as image:
            for left, top in product((0, image.width - size), (0, image.height - size)):
                image.crop((left, top, left + size, top + size)).save(folder / f"{file.stem}_{left}_{top}.png")
    return folder


def _list(path: Path, rows: Sequence[tuple[Path, int]]) -> Path:
    path = path.with_suffix(".csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("file", "label"), *rows])
    return path


def _npy(path: Path, array: np.ndarray) -> Path:
    path = path.with_suffix(".npy")
    np.save(path, array)
    return path


def _features(path: Path, rows: Sequence[tuple[Path, int]], quant: Mapping[str, float]) -> Path:
    path = path.with_suffix(".npz")
    q = np.stack([np.fromfile(file, np.int8).reshape(49, 10, 1) for file, _ in rows])
    x = (q.astype(np.float32) - np.float32(quant["zero_point"])) * np.float32(quant["scale"])
    np.savez(path, x=x, labels=np.array([label for _, label in rows]))
    return path


def _preprocess(about: Mapping[str, Any]) -> Preprocess:
    """The layout is told by the model's input."""
    resize = about.get("resize", "squash").split(",")[0]  # "letterbox, pad 114": the pad is the default
    shorter = resize.startswith("shorter")
    return Preprocess(
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        layout="auto",
        channel_order=about.get("channel_order", "RGB").lower(),
        resize="shorter" if shorter else resize,
        crop=0.875 if shorter else 1.0,
    )


def measure(
    zoo: Path,
    name: str,
    settings: Sequence[str],
    limit: int | None,
    max_images: int | None = None,
    *,
    zero_points: bool = True,
) -> Iterator[Row]:
    """One row per setting. limit: of the images measured; max_images: of those that calibrate."""
    about = json.loads((zoo / "zoo.json").read_text())[name]
    model = zoo / "models" / f"{name}.onnx"
    with tempfile.TemporaryDirectory() as folder:
        data = split(zoo, name, about, Path(folder))
        for setting in settings:
            options = Options(
                **SETTINGS[setting],
                preprocess=data.preprocess,
                input_shape=shapes(zoo, name, about),
                limit=max_images,
                zero_points=zero_points,
            )
            start = time.perf_counter()
            result = convert(model, {"": data.calib}, options, lambda stage, done, total: None)
            seconds = time.perf_counter() - start
            net = load(result.data)
            offset = about.get("label_offset", 0)
            evaluation = evaluate(net, {"": data.measure}, reference=model, limit=limit, label_offset=offset)
            ranked = about["task"] == "classification"
            costly, worst = list(result.report.costliest.items()), result.report.steepest
            named = "" if worst is None else f"{worst.name} ({worst.op}, {worst.fall:.1f} dB)"
            yield Row(
                model=name,
                bits=setting,
                images=evaluation.n,
                quantized_nodes=result.report.quantized_nodes,
                total_nodes=result.report.total_nodes,
                sqnr=evaluation.sqnr,
                costliest=f"{costly[0][0]} ({100 * costly[0][1]:.0f} % of the noise)" if costly else named,
                float_top1=evaluation.reference_top1,
                top1=evaluation.top1,
                agreement=evaluation.agreement if ranked else None,
                worst_sqnr_db=min(evaluation.sqnr.values()),
                bias_rule_cost_db=result.report.bias_rule_cost_db,
                arena_bytes=net.model.arena_bytes,
                file_bytes=len(result.data),
                seconds=seconds,
                peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
            )


HEADER = (
    "model",
    "bits",
    "images",
    "nodes",
    "float",
    "top-1",
    "agree %",
    "SQNR dB",
    "rule dB",
    "arena",
    "file",
    "seconds",
)
WIDTHS = (28, 6, 6, 7, 6, 6, 7, 7, 7, 8, 8, 7)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _line(cells: Sequence[str]) -> str:
    first, *others = zip(cells, WIDTHS, strict=True)
    return " ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])


def _details(row: Row) -> Iterator[str]:
    """Notes without a column: the outputs of a model with several, and the costliest layer at 8 bits."""
    if len(row.sqnr) > 1:
        yield "  " + "  ".join(f"{name} {db:.1f} dB" for name, db in row.sqnr.items())
    if row.bits == "8" and row.agreement is None:
        yield f"  costs most: {row.costliest}"


def _cells(row: Row) -> list[str]:
    rates = (row.float_top1, row.top1, row.agreement, row.worst_sqnr_db, row.bias_rule_cost_db)
    return [
        row.model,
        row.bits,
        str(row.images),
        f"{row.quantized_nodes}/{row.total_nodes}",
        *map(_number, rates),
        str(row.arena_bytes),
        str(row.file_bytes),
        f"{row.seconds:.1f}",
    ]


def _plain(row: Row) -> dict[str, Any]:
    """For JSON, where the SQNR of the worst output is "sqnr_db"."""
    return {name.removeprefix("worst_"): value for name, value in asdict(row).items()}


def _arguments() -> argparse.Namespace:
    default = os.environ.get("NMP_ZOO") or Path(__file__).resolve().parents[2] / "shared" / "zoo"
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=Path(default), help="the folder with zoo.json")
    parser.add_argument("--only", action="append", default=[], help="models whose name has this in it; repeatable")
    parser.add_argument("--bits", nargs="+", choices=list(SETTINGS), help="default: those with floors")
    parser.add_argument("--limit", type=int, help="measure at most so many images")
    parser.add_argument("--no-zero-points", action="store_true", help="convert so, to see what they bring")
    parser.add_argument("--floors", action="store_true", help="exit with 1 where a floor is missed")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    if not (args.zoo / "zoo.json").is_file():
        print(f"no zoo.json in {args.zoo}: set NMP_ZOO to the folder of models and images", file=sys.stderr)
        return 1
    names = [name for name in FLOORS if not args.only or any(part in name for part in args.only)]
    print(_line(HEADER), flush=True)
    rows, missed = [], []
    for name in names:
        settings = args.bits or list(FLOORS[name])
        for row in measure(args.zoo, name, settings, args.limit, zero_points=not args.no_zero_points):
            rows.append(row)
            print(_line(_cells(row)), *_details(row), sep="\n", flush=True)
            misses = row.misses(FLOORS[name].get(row.bits, Floor()))
            missed += [f"{name} at {row.bits}: {miss}" for miss in misses]
    if args.json:
        args.json.write_text(json.dumps([_plain(row) for row in rows], indent=2) + "\n")
    if args.floors:
        print("\n".join(["", *(f"MISSED  {miss}" for miss in missed)] if missed else ["", "all floors are reached"]))
    return int(args.floors and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
