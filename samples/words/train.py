"""Trains the words model and writes model.onnx and labels.txt next to this file.

Only needed to make the sample anew:  pip install torch onnx  &&  python train.py
"""

from pathlib import Path

import torch
from torch import nn
from words import BANDS, KINDS, drawn

HERE = Path(__file__).parent
TRAIN, TEST, EPOCHS, HIDDEN = 6000, 1400, 15, 24


class Words(nn.Module):
    """Frames [n,batch,BANDS] and a hidden vector [1,batch,HIDDEN] to logits [n,batch,kinds] and the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(BANDS, HIDDEN)
        self.out = nn.Linear(HIDDEN, len(KINDS))

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, h = self.gru(x, h)
        return self.out(y), h


class Step(nn.Module):
    """One frame [1,1,BANDS]: logits [1,kinds] and the next hidden vector [1,1,HIDDEN]."""

    def __init__(self, words: Words) -> None:
        super().__init__()
        self.words = words

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, h = self.words(x, h)
        return y[0], h


def fit(model: Words, x: torch.Tensor, y: torch.Tensor) -> None:
    """x: [clips, frames, BANDS]. What counts is what the model says in the end."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(logits(model, x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()


def logits(model: Words, x: torch.Tensor) -> torch.Tensor:
    return model(x.transpose(0, 1), torch.zeros(1, len(x), HIDDEN))[0][-1]


def take_up(model: Words, mean: torch.Tensor, std: torch.Tensor) -> None:
    """Weights and biases as they are for frames that nobody normalizes."""
    with torch.no_grad():
        weight, bias = model.gru.weight_ih_l0, model.gru.bias_ih_l0
        weight /= std
        bias -= weight @ mean


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(array) for array in drawn(TRAIN, seed=1))
    x = x[:, :, 0]
    mean, std = x.mean((0, 1)), x.std((0, 1))
    model = Words()
    fit(model, (x - mean) / std, y)
    take_up(model, mean, std)
    held, wanted = (torch.from_numpy(array) for array in drawn(TEST, seed=2))
    with torch.no_grad():
        right = (logits(model, held[:, :, 0]).argmax(1) == wanted).float()
    print(f"float top-1: {right.mean():.2%} of {TEST} new clips")
    (HERE / "labels.txt").write_text("\n".join(KINDS) + "\n")
    torch.onnx.export(
        Step(model.eval()),
        (torch.zeros(1, 1, BANDS), torch.zeros(1, 1, HIDDEN)),
        HERE / "model.onnx",
        input_names=["x", "h"],
        output_names=["logits", "h_next"],
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main()
