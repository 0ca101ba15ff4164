"""Trains the boxes model and writes model.onnx, calib/, test/ and their instances.json next to this file.

Only needed to make the sample anew:  pip install torch onnx Pillow  &&  python train.py
"""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

HERE = Path(__file__).parent
KINDS = ("disc", "square", "triangle")
SIZE, STRIDES, TRAIN, CALIB, TEST, EPOCHS = 64, (8, 16, 32), 8000, 60, 60, 30
LARGEST = (20, 34, SIZE)  # side of the largest box that a stride is responsible for
Box = tuple[int, float, float, float, float]  # kind, left, top, width, height in pixels


def separable(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU6(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )


class Detector(nn.Module):
    """float32 [n,3,64,64], RGB pixels / 255, to [n,84,8]: a row for each cell of the strides 8, 16 and 32, as YOLOX has
    them: centre from the cell's corner and logarithms of the sides, in strides; an object; its kind."""

    def __init__(self) -> None:
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        fine = nn.Sequential(stem, separable(16, 32, 2), separable(32, 48, 2), separable(48, 48, 1))
        middle = nn.Sequential(separable(48, 64, 2), separable(64, 64, 1))
        coarse = nn.Sequential(separable(64, 96, 2), separable(96, 96, 1))
        self.stages = nn.ModuleList([fine, middle, coarse])
        self.heads = nn.ModuleList([nn.Conv2d(c, 5 + len(KINDS), 1) for c in (48, 64, 96)])

    def logits(self, x: torch.Tensor) -> list[torch.Tensor]:
        outputs = []
        for stage, head in zip(self.stages, self.heads, strict=True):
            x = stage(x)
            outputs.append(head(x))
        return outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [torch.cat([y[:, :4], y[:, 4:].sigmoid()], 1).flatten(2) for y in self.logits(x)]
        return torch.cat(heads, 2).permute(0, 2, 1)


def corners(kind: str, x: float, y: float, radius: float, turn: float) -> list[tuple[float, float]]:
    count = {"disc": 40, "square": 4, "triangle": 3}[kind]
    angles = [turn + 2 * math.pi * i / count for i in range(count)]
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles]


def draw(rng: np.random.Generator) -> tuple[np.ndarray, list[Box]]:
    """uint8 [64,64,3] with one to three shapes that do not overlap, and their boxes."""
    low, high = rng.uniform(0, 255, (2, 3))
    ramp = np.linspace(0, 1, SIZE)[:, None, None]
    ground = np.broadcast_to(low + (high - low) * ramp, (SIZE, SIZE, 3)).astype(np.uint8)
    fine = Image.fromarray(ground).resize((4 * SIZE, 4 * SIZE), Image.Resampling.NEAREST)
    pen, boxes, taken = ImageDraw.Draw(fine), [], []
    for _ in range(rng.integers(1, 4)):
        radius = rng.uniform(6, 22)
        x, y = rng.uniform(radius, SIZE - radius, 2)
        if any(math.dist((x, y), other[:2]) < radius + other[2] + 2 for other in taken):
            continue
        taken.append((x, y, radius))
        kind = int(rng.integers(len(KINDS)))
        ink = rng.uniform(0, 255, 3)
        while abs(ink - (low + high) / 2).max() < 70:
            ink = rng.uniform(0, 255, 3)
        points = corners(KINDS[kind], x, y, radius, rng.uniform(0, 2 * math.pi))
        pen.polygon([(4 * px, 4 * py) for px, py in points], fill=tuple(int(v) for v in ink))
        left, top = (min(axis) for axis in zip(*points, strict=True))
        right, bottom = (max(axis) for axis in zip(*points, strict=True))
        boxes.append((kind, left, top, right - left, bottom - top))
    return np.asarray(fine.resize((SIZE, SIZE), Image.Resampling.BOX)), boxes


def wanted(boxes: list[Box]) -> list[np.ndarray]:
    """For each stride [6, cells, cells]: whether a box has its centre there, its 4 numbers, its kind."""
    maps = [np.zeros((6, SIZE // s, SIZE // s), np.float32) for s in STRIDES]
    for kind, left, top, width, height in boxes:
        level = next(i for i, largest in enumerate(LARGEST) if max(width, height) <= largest)
        stride = STRIDES[level]
        x, y = (left + width / 2) / stride, (top + height / 2) / stride
        sides = math.log(width / stride), math.log(height / stride)
        maps[level][:, int(y), int(x)] = (1, x - int(x), y - int(y), *sides, kind)
    return maps


def loss(outputs: list[torch.Tensor], truth: list[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros(())
    for y, t in zip(outputs, truth, strict=True):
        there = t[:, 0] > 0
        objects = nn.functional.binary_cross_entropy_with_logits(y[:, 4], t[:, 0], reduction="sum")
        place = nn.functional.smooth_l1_loss(
            y[:, :4].movedim(1, -1)[there], t[:, 1:5].movedim(1, -1)[there], reduction="sum", beta=0.1
        )
        kinds = nn.functional.one_hot(t[:, 5][there].long(), len(KINDS)).float()
        kind = nn.functional.binary_cross_entropy_with_logits(y[:, 5:].movedim(1, -1)[there], kinds, reduction="sum")
        total = total + objects + 4 * place + kind
    return total / len(outputs[0])


def fit(model: Detector, x: torch.Tensor, truth: list[torch.Tensor]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        model.train()
        sums = 0.0
        for batch in torch.randperm(len(x)).split(64):
            error = loss(model.logits(x[batch]), [t[batch] for t in truth])
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            sums += error.item()
        schedule.step()
        print(f"epoch {epoch + 1}: loss {sums * 64 / len(x):.3f}", flush=True)


def save(folder: Path, drawn: list[tuple[np.ndarray, list[Box]]]) -> None:
    """PNG files, and their boxes in COCO's form."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    images, rows = [], []
    for i, (pixels, boxes) in enumerate(drawn):
        name = f"{i:03d}.png"
        Image.fromarray(pixels).save(folder / name, optimize=True)
        images.append({"id": i, "file_name": name, "width": SIZE, "height": SIZE})
        for kind, *box in boxes:
            corners = [round(v, 1) for v in box]
            rows.append(
                {
                    "id": len(rows) + 1,
                    "image_id": i,
                    "category_id": kind,
                    "bbox": corners,
                    "area": round(box[2] * box[3], 1),
                    "iscrowd": 0,
                }
            )
    kinds = [{"id": i, "name": name} for i, name in enumerate(KINDS)]
    text = json.dumps({"images": images, "annotations": rows, "categories": kinds}).replace("}, {", "},\n{")
    (folder / "instances.json").write_text(text + "\n")


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    drawn = [draw(rng) for _ in range(TRAIN)]
    x = torch.from_numpy(np.stack([pixels for pixels, _ in drawn])).permute(0, 3, 1, 2).float() / 255
    maps = [wanted(boxes) for _, boxes in drawn]
    truth = [torch.from_numpy(np.stack([m[level] for m in maps])) for level in range(len(STRIDES))]
    model = Detector()
    fit(model, x, truth)
    model.eval()
    held = np.random.default_rng(2)
    save(HERE / "test", [draw(held) for _ in range(TEST)])
    save(HERE / "calib", drawn[:CALIB])
    torch.onnx.export(
        model,
        (x[:1],),
        HERE / "model.onnx",
        input_names=["image"],
        output_names=["points"],
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main()
