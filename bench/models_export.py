"""Builds published architectures with seeded weights and exports them to ONNX; runs where PyTorch is installed.

Arguments: the folder, GiB of memory, and maybe a list instead of models.txt. For each line "EXPORTER NAME" on stdin it
writes NAME_EXPORTER.onnx and, once a name, NAME.calib.npy and NAME.test.npy (float32 samples [16, ...]) into the
folder, and prints one JSON object: {"seconds": float, "error": str or null}. Nothing is downloaded. EXPORTER: "old"
traces the model (torch.onnx.export(dynamo=False); for ultralytics its own export), "new" goes by torch.export.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from models_list import Row, read

SAMPLES = 16  # that calibrate, and as many others
FIT = 8  # of those, for the statistics of BatchNorm
GIB = 1 << 30
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RAW = ((0.0,) * 3, (1.0,) * 3)


def images(count: int, frames: int, side: int, seed: int) -> Any:
    """Smooth random fields as 8-bit images in [0, 1], [count, 3, side, side], or [count, 3, frames, side, side]."""
    import torch

    source = torch.Generator().manual_seed(seed)
    total = torch.zeros(count, 3 * max(frames, 1), side, side)
    for cells in (2, 3, 5, 9, 17, 33):
        grey = torch.randn(count, 1, cells, cells, generator=source)
        noise = grey + 0.5 * torch.randn(count, total.shape[1], cells, cells, generator=source)
        total += torch.nn.functional.interpolate(noise, (side, side), mode="bicubic") / cells**0.7
    contrast = 0.5 + 1.5 * torch.rand(count, 1, 1, 1, generator=source)
    shift = 0.5 * torch.randn(count, 1, 1, 1, generator=source)
    pixels = (255 * torch.sigmoid(total * contrast + shift)).round() / 255
    return pixels.reshape(count, 3, frames, side, side) if frames else pixels


def settle(model: Any, x: Any, floor: int) -> None:
    """Makes a fresh model one that depends on all of its parameters and amplifies errors little.

    What initialization leaves constant (norms, gates that are 0 or 1e-6) gets seeded noise. The statistics of
    BatchNorm are those of ``x``. Its shifts are about 1: centred at 0, a ReLU cuts half of a random signal's values,
    which takes away 1.7 dB more of the variance than of an error's (1.47 = (1/2) / (1/2 - 1/(2 pi))), in every layer.
    floor: see `Row`. A BatchNorm after a ReLU amplifies a channel that is nearly 0 in ``x`` by up to 316.
    """
    import torch

    source = torch.Generator().manual_seed(1)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point() and p.numel() and bool((p == p.flatten()[0]).all()):
                p += (0.2 if p.ndim < 2 else 0.02) * torch.randn(p.shape, generator=source)
        model.eval()
        for norm in norms:
            if norm.bias is not None:
                norm.bias += 1
            norm.reset_running_stats()
            norm.momentum = None  # the mean over calls
            norm.train()
        if norms:
            model(x)
        for norm in norms:
            norm.running_var.clamp_(min=float(norm.running_var.mean()) * floor / 100)
        model.eval()


def with_values(model: Any) -> Any:
    """The model with the values of its result where that is a dict."""
    import torch

    class Values(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            outputs = self.model(x)
            return tuple(outputs.values()) if isinstance(outputs, dict) else outputs

    return Values()


def build(row: Row) -> tuple[Any, tuple[Any, Any]]:
    """The model (for ultralytics its YOLO), and mean and standard deviation of its preprocessing."""
    if row.package == "timm":
        import timm

        model = timm.create_model(row.model, pretrained=False, **row.options)
        return model, (model.pretrained_cfg["mean"], model.pretrained_cfg["std"])
    if row.package == "torchvision":
        from torchvision.models import get_model, get_model_builder

        parts = inspect.signature(get_model_builder(row.model)).parameters
        weights = {key: None for key in ("weights", "weights_backbone") if key in parts}
        return get_model(row.model, **weights, **row.options), IMAGENET
    if row.package == "smp":
        import segmentation_models_pytorch as smp

        arch, encoder = row.model.split("-", 1)
        return smp.create_model(arch, encoder_name=encoder, encoder_weights=None, **row.options), IMAGENET
    from ultralytics import RTDETR, YOLO

    return (RTDETR if "rtdetr" in row.model else YOLO)(f"{row.model}.yaml"), RAW


def export(row: Row, exporter: str, folder: Path) -> None:
    """Writes the model and, where they are missing, its samples."""
    import numpy as np
    import torch

    torch.manual_seed(0)
    model, (mean, std) = build(row)
    ndim = (3, 1, 1, 1) if row.frames else (3, 1, 1)
    mean, std = (torch.tensor(v).reshape(ndim) for v in (mean, std))
    calib, test = ((images(SAMPLES, row.frames, row.side, seed) - mean) / std for seed in (10, 11))
    for part, data in (("calib", calib), ("test", test)):
        np.save(folder / f"{row.name}.{part}.npy", data.numpy())
    path = folder / f"{row.name}_{exporter}.onnx"
    yolo, model = model, model.model if row.package == "ultralytics" else with_values(model)
    settle(model, calib[:FIT], row.floor)
    if row.package == "ultralytics" and exporter == "old":
        shutil.move(yolo.export(format="onnx", imgsz=row.side, simplify=False), path)
        return
    if row.package == "ultralytics":
        model = model.fuse()
        for module in model.modules():
            if hasattr(module, "export"):
                module.export, module.format = True, "onnx"
    kind: dict[str, Any] = {"dynamo": True, "external_data": False} if exporter == "new" else {"dynamo": False}
    torch.onnx.export(model, (calib[:1],), "model.onnx", **kind)
    shutil.move("model.onnx", path)  # whole, or not there


def imports() -> None:
    """Imports what is slow, with settings under which nothing is downloaded or installed."""
    os.environ.update(YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true", HF_HUB_OFFLINE="1")
    import torch
    from torch import library

    torch.set_num_threads(1)
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # built for CUDA, beside a torch for CPUs: it wants the names of two operators that it lacks
        for name in ("nms", "qnms"):
            library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")


def described(fault: BaseException) -> str:
    """Returns the first exception, not the one that exporters raise when they give up."""
    while fault.__cause__ is not None:
        fault = fault.__cause__
    text = str(fault).strip().splitlines()
    return f"{type(fault).__name__}: {text[0] if text else ''}"[:300]


def answer(rows: Mapping[str, Row], folder: Path, answers: TextIO) -> None:
    """One line for each line of stdin."""
    for line in sys.stdin:
        exporter, name = line.split()
        start, error = time.perf_counter(), None
        try:
            export(rows[name], exporter, folder)
        except BaseException as fault:  # whatever a package raises is the row's result
            error = described(fault)
        print(json.dumps({"seconds": round(time.perf_counter() - start, 1), "error": error}), file=answers, flush=True)


def main() -> None:
    folder, gib = Path(sys.argv[1]).resolve(), float(sys.argv[2])
    lists = [Path(name).resolve() for name in sys.argv[3:]]
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * GIB),) * 2)
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is no answer
    imports()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # where packages leave files
        answer({row.name: row for row in read(*lists)}, folder, answers)


if __name__ == "__main__":
    main()
