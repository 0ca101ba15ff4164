"""Trains the digits model and writes model.onnx, calib/ and test/ next to this file.

Only needed to make the sample anew:  pip install torch onnx onnxscript scikit-learn Pillow  &&  python train.py
"""

import csv
import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).parent
SIZE, CALIB, TEST, EPOCHS = 16, 80, 120, 40


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def network() -> nn.Module:
    """float32 [n,1,16,16], pixels / 255, to logits [n,10]."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Residual(16),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        Residual(24),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * 4 * 4, 10),
    )


def images() -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n,16,16] and labels, shuffled: the 8x8 digits of scikit-learn (levels 0 to 16), enlarged."""
    digits = load_digits()
    small = np.round(digits.images * 255 / 16).astype(np.uint8)
    large = np.stack([np.asarray(Image.fromarray(d).resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for d in small])
    order = np.random.default_rng(0).permutation(len(large))
    return large[order], digits.target[order]


def tensor(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels.astype(np.float32) / 255)[:, None]


def fit(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        model.train()
        for batch in torch.randperm(len(x)).split(64):
            shift = tuple(int(v) for v in torch.randint(-1, 2, (2,)))
            loss = nn.functional.cross_entropy(model(torch.roll(x[batch], shift, (2, 3))), y[batch])
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
            name = f"{i:03d}_{label}.png"
            Image.fromarray(image).save(folder / name, optimize=True)
            rows.writerow([name, label])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pixels, labels = images()
    held = len(pixels) // 4
    x, y = tensor(pixels), torch.from_numpy(labels)
    model = network()
    fit(model, x[held:], y[held:])
    model.eval()
    with torch.no_grad():
        right = (model(x[:held]).argmax(1) == y[:held]).numpy()
    print(f"float top-1: {right.mean():.2%} of {held} held out, {right[:TEST].mean():.2%} of the {TEST} in test/")
    save(HERE / "test", pixels[:TEST], labels[:TEST])
    save(HERE / "calib", pixels[held : held + CALIB], labels[held : held + CALIB])
    torch.onnx.export(
        model,
        (x[:1],),
        HERE / "model.onnx",
        input_names=["image"],
        output_names=["logits"],
        opset_version=17,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,  # keeps the BatchNormalization nodes, for the converter to fold
        dynamo=False,
    )


if __name__ == "__main__":
    main()
