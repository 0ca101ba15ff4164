"""Training with the file's arithmetic on nets that lose by quantization: before (PTQ), after, float.

    make qat                         # needs torch; NMP_ZOO has the models and images of two of the four nets
    make qat ARGS="--only words --epochs 1"

All tensors and weights are int8 (--strict). Training is towards the float net's answers, by Adam with a falling rate,
and needs no labels. No image that is judged calibrated or trained anything:

  shapes/4, words/4    the samples at a quarter of their width, trained here; drawn anew to be judged
  cifar10_se_mbv3      400 training images and their mirror images train, the test images are judged
  mobilenetv1_025      of five images the first calibrates, and trains with the second and third; the others are judged
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import nmpconv.torch
from nmpconv.base.sqnr import sqnr_db

ROOT = Path(__file__).resolve().parents[1]
BATCH = 32
EXPONENT_RATE = 2e-2  # of the logarithms of steps: one that each update raises passes to the next within 25 of them

Run = Callable[[Any, Tensor], Tensor]
"""Takes a net and inputs [n, ...]; returns logits [n, classes]."""


@dataclass(frozen=True)
class Case:
    """A float net and what it is converted, trained and judged with.

    model, example: as of `nmpconv.torch.prepare`, with these keywords. answer: logits of the float net. train, test:
    inputs [n, ...]; labels: of test. rate: of weights.
    """

    model: Any
    example: Any
    calib: np.ndarray
    keywords: Mapping[str, Any]
    answer: Callable[[Tensor], Tensor]
    train: Tensor
    test: Tensor
    labels: np.ndarray
    epochs: int
    rate: float
    run: Run = field(default=lambda net, x: net(x))


def _sample(name: str, module: str) -> Any:
    sys.path.insert(0, str(ROOT / "samples" / name))
    sys.modules.pop(module, None)
    try:
        return __import__(module)
    finally:
        sys.path.pop(0)


def shapes() -> Case:
    train = _sample("shapes", "train")
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU6(),
        train.separable(4, 8, 1),
        train.separable(8, 12, 2),
        train.separable(12, 16, 1),
        train.separable(16, 24, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, len(train.SHAPES)),
    )
    pixels, labels = train.images(train.TRAIN, seed=1)
    x = train.tensor(pixels)
    train.fit(net, x, torch.from_numpy(labels))
    net.eval()
    held, wanted = train.images(1000, seed=2)
    keywords = {"mean": train.MEAN, "std": train.STD}
    return Case(net, x[:1], pixels[:200], keywords, net, x[:3000], train.tensor(held), wanted, epochs=6, rate=1e-4)


def words() -> Case:
    train = _sample("words", "train")
    train.HIDDEN //= 4
    x, y = (torch.from_numpy(array) for array in train.drawn(train.TRAIN, seed=1))
    mean, std = x[:, :, 0].mean((0, 1)), x[:, :, 0].std((0, 1))
    net = train.Words()
    train.fit(net, (x[:, :, 0] - mean) / std, y)
    train.take_up(net, mean, std)
    net.eval()
    held, wanted = train.drawn(train.TEST, seed=2)
    zero = torch.zeros(1, 1, train.HIDDEN)
    names = {"input_names": ["x", "h"], "output_names": ["logits", "h_next"], "state": ["h_next=h"]}

    def unrolled(step: Any, clips: Tensor) -> Tensor:
        """The answer behind the last frame of clips [n, frames, 1, bands]."""
        logits, h = clips, zero.expand(len(clips), 1, -1)
        for frame in clips.unbind(1):
            logits, h = step(frame, h)
        return logits

    def answer(clips: Tensor) -> Tensor:
        return train.logits(net, clips[:, :, 0])

    example, calib = (x[0, :1], zero), x[:200].numpy()
    test = torch.from_numpy(held)
    return Case(
        train.Step(net), example, calib, names, answer, x[:1000], test, wanted, epochs=2, rate=1e-3, run=unrolled
    )


def _of_zoo(name: str, calib: list[int], train: list[int], judged: list[int] | None, folder: str, **kept: Any) -> Case:
    """A classifier of the zoo without its Softmax. calib, train, judged: remainders by 5 of images; None: others."""
    zoo = Path(os.environ.get("NMP_ZOO") or ROOT.parent / "shared" / "zoo")
    about, model = json.loads((zoo / "zoo.json").read_text())[name], onnx.load(zoo / "models" / f"{name}.onnx")
    if model.graph.node[-1].op_type == "Softmax":
        model.graph.output[0].name = model.graph.node.pop().input[0]
    side = model.graph.input[0].type.tensor_type.shape.dim[-1].dim_value
    data = zoo / "data" / folder
    pixels, _ = _images(data / ("train_labels.csv" if judged is None else "labels.csv"), side)
    held, labels = _images(data / ("test_labels.csv" if judged is None else "labels.csv"), side)
    if judged is not None:
        of_judged = np.isin(np.arange(len(held)) % 5, judged)
        held, labels = held[of_judged], labels[of_judged]
    mean, std = (np.broadcast_to(about[key], 3).astype(np.float32) for key in ("mean", "std"))

    def tensor(images: np.ndarray) -> Tensor:
        return torch.from_numpy((images.astype(np.float32) - mean) / std).permute(0, 3, 1, 2).contiguous()

    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    port = model.graph.input[0].name

    def answer(x: Tensor) -> Tensor:
        return torch.from_numpy(np.concatenate([session.run(None, {port: one[None].numpy()})[0] for one in x]))

    at = np.arange(len(pixels)) % 5
    x = tensor(pixels[np.isin(at, train)])
    x = torch.cat([x, x.flip(3)])
    keywords = {"mean": tuple(mean.tolist()), "std": tuple(std.tolist())}
    return Case(model, None, pixels[np.isin(at, calib)], keywords, answer, x, tensor(held), labels, **kept)


def _images(table: Path, side: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n,side,side,3], cut out of the middle, and labels [n]."""
    pixels, labels = [], []
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            with Image.open(table.parent / row["file"]) as image:
                left, top = (image.width - side) // 2, (image.height - side) // 2
                pixels.append(np.asarray(image.convert("RGB").crop((left, top, left + side, top + side))))
            labels.append(int(row["label"]))
    return np.stack(pixels), np.array(labels)


CASES: dict[str, Callable[[], Case]] = {
    "shapes/4": shapes,
    "words/4": words,
    "cifar10_se_mbv3": lambda: _of_zoo(
        "cifar10_se_mbv3_local", [0, 2], [0, 1, 2, 3, 4], None, "cifar10", epochs=4, rate=2e-4
    ),
    "mobilenetv1_025": lambda: _of_zoo("mobilenetv1_025_224", [0], [0, 1, 2], [3, 4], "imagenet", epochs=4, rate=2e-4),
}


def fit(prepared: nmpconv.torch.TrainableNet, case: Case, wanted: Tensor, epochs: int, *, learn: bool) -> None:
    """Trains towards the answers wanted [n, classes], in a shuffled order. learn: exponents, too."""
    exponents = prepared.get_parameter("_exponents.log2_steps").requires_grad_(learn)
    own = [p for p in prepared.parameters() if p is not exponents]
    groups = [{"params": own, "lr": case.rate}, {"params": [exponents], "lr": EXPONENT_RATE}]
    optimizer = torch.optim.Adam(groups[: 1 + learn])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(case.train) // BATCH))
    prepared.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(case.train)).split(BATCH):
            logits = case.run(prepared, case.train[batch])
            goal = functional.log_softmax(wanted[batch], -1)
            loss = functional.kl_div(
                functional.log_softmax(logits.reshape(goal.shape), -1), goal, reduction="batchmean", log_target=True
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(own, 1.0)
            optimizer.step()
            schedule.step()
    prepared.eval()


def logits(net: Any, case: Case) -> np.ndarray:
    with torch.no_grad():
        found = [case.run(net, x) for x in case.test.split(BATCH)]
    return torch.cat(found).numpy().reshape(len(case.test), -1)


def judged(found: np.ndarray, wanted: np.ndarray, labels: np.ndarray) -> str:
    """top-1 and agreement with the float net's logits in %, and their SQNR in dB."""
    best = found.argmax(1)
    top1, agree = 100 * np.mean(best == labels), 100 * np.mean(best == wanted.argmax(1))
    return f"top-1 {top1:.1f} %, agreement {agree:.1f} %, SQNR {sqnr_db(wanted, found):.1f} dB"


def equal(prepared: Any, case: Case) -> float:
    """Share in % of the file's integers that are the module's, on at most 64 samples that are judged."""
    net, x = nmpconv.torch.convert(prepared).load(), case.test[:64]
    with torch.no_grad():
        wanted = case.run(prepared, x).numpy()
    if len(net.inputs) == 1 and case.keywords.get("state"):
        found = []
        for clip in x:
            net.reset()
            found.append([net(frame[None].numpy())[0] for frame in clip][-1])
        return 100 * float(np.mean(np.reshape(found, wanted.shape) == wanted))
    return 100 * float(np.mean(net.run_float(x.numpy())[0].reshape(wanted.shape) == wanted))


def rows(case: Case, epochs: int | None) -> Iterator[str]:
    """One line for each way to quantize."""
    torch.manual_seed(0)
    wanted = case.answer(case.test).detach().numpy().reshape(len(case.test), -1)
    yield f"float: {judged(wanted, wanted, case.labels)} of {len(wanted)}"

    def prepare(**keywords: Any) -> Any:
        return nmpconv.torch.prepare(case.model, case.example, case.calib, **case.keywords, **keywords).eval()

    yield f"PTQ, default widths: {judged(logits(prepare(), case), wanted, case.labels)}"
    strict = prepare(strict=True, learn_exponents=True)
    yield f"PTQ: {judged(logits(strict, case), wanted, case.labels)}"
    answers, count = case.answer(case.train).detach(), case.epochs if epochs is None else epochs
    for learn in (False, True):
        prepared, start = copy.deepcopy(strict), time.process_time()
        torch.manual_seed(0)  # both ways see the same batches
        fit(prepared, case, answers, count, learn=learn)
        minutes = (time.process_time() - start) / 60
        how = "exponents learned" if learn else "exponents frozen"
        same = f"{equal(prepared, case):.3f} % of integers the file's"
        of = f"{count} epochs of {len(case.train)}, {minutes:.1f} CPU minutes"
        yield f"QAT, {how}: {judged(logits(prepared, case), wanted, case.labels)}; {of}; {same}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="nets whose name has this in it")
    parser.add_argument("--epochs", type=int, help="instead of each net's own number")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, make in CASES.items():
        if args.only in name:
            torch.manual_seed(0)
            for row in rows(make(), args.epochs):
                print(f"{name}: {row}", flush=True)


if __name__ == "__main__":
    main()
