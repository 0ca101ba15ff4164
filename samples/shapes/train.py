"""Trains the shapes model and writes model.onnx, labels.txt, calib/ and test/ next to this file.

Only needed to make the sample anew:  pip install torch onnx onnxscript Pillow  &&  python train.py
"""

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

HERE = Path(__file__).parent
SHAPES = ("circle", "square", "triangle", "cross", "star", "ring", "crescent", "heart")
SIZE, TRAIN, CALIB, TEST, EPOCHS = 32, 6000, 80, 120, 14
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def separable(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU6(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )


def network() -> nn.Module:
    """float32 [n,3,32,32], (RGB pixels - MEAN) / STD, to logits [n,8]."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        separable(16, 32, 1),
        separable(32, 48, 2),
        separable(48, 64, 1),
        separable(64, 96, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, len(SHAPES)),
    )


def polygon(points: int, inner: float, phase: float) -> list[tuple[float, float]]:
    """A regular polygon in the unit circle; below 1, ``inner`` is the radius of every second corner."""
    corners = points if inner == 1 else 2 * points
    radii = [1.0 if inner == 1 or i % 2 == 0 else inner for i in range(corners)]
    angles = [phase + 2 * math.pi * i / corners for i in range(corners)]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


def outline(shape: str, phase: float) -> list[list[tuple[float, float]]]:
    """Polygons in the unit circle, painted in turn with 1, 0, 1, ..."""
    if shape == "square":
        return [polygon(4, 1, phase)]
    if shape == "triangle":
        return [polygon(3, 1, phase)]
    if shape == "star":
        return [polygon(5, 0.4, phase)]
    if shape == "cross":
        arms = [(1, 0.3), (0.3, 0.3), (0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3)]
        return [turned(arms + [(-x, -y) for x, y in arms], phase)]
    if shape == "heart":
        ts = [2 * math.pi * i / 48 for i in range(48)]
        heart = [(math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t)) / 17) for t in ts]
        return [turned(heart, phase)]
    disc = polygon(48, 1, 0)
    if shape == "ring":
        return [disc, [(0.55 * x, 0.55 * y) for x, y in disc]]
    if shape == "crescent":
        return [disc, turned([(0.8 * x + 0.45, 0.8 * y) for x, y in disc], phase)]
    return [disc]


def turned(points: list[tuple[float, float]], angle: float) -> list[tuple[float, float]]:
    c, s = math.cos(angle), math.sin(angle)
    return [(c * x - s * y, s * x + c * y) for x, y in points]


def draw(shape: str, rng: np.random.Generator) -> np.ndarray:
    """uint8 [32,32,3]: the shape in one colour on a background that runs from one colour to another."""
    fine = 4 * SIZE
    radius = rng.uniform(0.2, 0.42) * fine
    x, y = rng.uniform(radius, fine - radius, 2)
    mask = Image.new("L", (fine, fine), 0)
    pen = ImageDraw.Draw(mask)
    for i, points in enumerate(outline(shape, rng.uniform(0, 2 * math.pi))):
        pen.polygon([(x + radius * px, y + radius * py) for px, py in points], fill=0 if i % 2 else 255)
    alpha = np.asarray(mask.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.float64)[..., None] / 255
    near, far, ink = rng.uniform(0, 255, (3, 3))
    while abs(ink - (near + far) / 2).max() < 50:
        ink = rng.uniform(0, 255, 3)
    steps = np.linspace(0, 1, SIZE)
    ground = near + (far - near) * (steps[:, None, None] if rng.random() < 0.5 else steps[None, :, None])
    return np.round(ground * (1 - alpha) + ink * alpha).astype(np.uint8)


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n,32,32,3] and labels, the classes in turn."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % len(SHAPES)
    return np.stack([draw(SHAPES[label], rng) for label in labels]), labels


def tensor(pixels: np.ndarray) -> torch.Tensor:
    x = (pixels.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()


def fit(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        model.train()
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def save(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    """PNG files and labels.csv (file,label)."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with (folder / "labels.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["file", "label"])
        for i, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            name = f"{i:03d}_{SHAPES[label]}.png"
            Image.fromarray(image).save(folder / name, optimize=True)
            rows.writerow([name, label])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pixels, labels = images(TRAIN, seed=1)
    model = network()
    fit(model, tensor(pixels), torch.from_numpy(labels))
    model.eval()
    held, wanted = images(1000, seed=2)
    with torch.no_grad():
        right = model(tensor(held)).argmax(1).numpy() == wanted
    print(
        f"float top-1: {right.mean():.2%} of {len(held)} new images, {right[:TEST].mean():.2%} of the {TEST} in test/"
    )
    save(HERE / "test", held[:TEST], wanted[:TEST])
    save(HERE / "calib", pixels[:CALIB], labels[:CALIB])
    (HERE / "labels.txt").write_text("\n".join(SHAPES) + "\n")
    torch.onnx.export(
        model,
        (tensor(pixels[:1]),),
        HERE / "model.onnx",
        input_names=["image"],
        output_names=["logits"],
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main()
