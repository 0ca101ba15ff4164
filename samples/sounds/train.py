"""Trains the sounds model and writes model.onnx and labels.txt next to this file.

Only needed to make the sample anew:  pip install torch onnx  &&  python train.py
"""

from pathlib import Path

import torch
from sounds import KINDS, drawn
from torch import nn

HERE = Path(__file__).parent
TRAIN, TEST, EPOCHS = 6000, 1200, 10


class Layer(nn.Module):
    """[n,C,time,bands]. The convolution pads both ends of time; without the last frames it is as if it padded the front
    alone, so a frame depends on no later one."""

    def __init__(self, inputs: int, outputs: int, stride: tuple[int, int]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, (2, 1), bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.late = 2 // stride[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu6(self.norm(self.conv(x)))[:, :, : -self.late]


def network() -> nn.Module:
    """float32 [n,1,32,24], a spectrogram, to logits [n,6]."""
    return nn.Sequential(
        Layer(1, 12, (1, 2)),
        Layer(12, 24, (2, 2)),
        Layer(24, 32, (1, 2)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(KINDS)),
    )


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


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(array) for array in drawn(TRAIN, seed=1))
    model = network()
    fit(model, x, y)
    model.eval()
    held, wanted = (torch.from_numpy(array) for array in drawn(TEST, seed=2))
    with torch.no_grad():
        right = (model(held).argmax(1) == wanted).float()
    print(f"float top-1: {right.mean():.2%} of {TEST} new sounds")
    (HERE / "labels.txt").write_text("\n".join(KINDS) + "\n")
    torch.onnx.export(
        model,
        (x[:1],),
        HERE / "model.onnx",
        input_names=["sound"],
        output_names=["logits"],
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main()
