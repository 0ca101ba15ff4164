"""Trains digits' network with a gate after each residual block and writes model.onnx next to this file.

Only needed to make the sample anew:  pip install torch onnx onnxscript scikit-learn Pillow  &&  python train.py
"""

import sys
from pathlib import Path

import onnx
import torch
from onnx import helper, parser
from torch import nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "digits"))

from train import TEST, Residual, fit, images, tensor  # noqa: E402

DOMAIN = "samples.gate"
SLOPE = 1.0
# What the node computes in floats, so that any runtime of ONNX can run the model.
FUNCTION = parser.parse_function(
    f"""
    <domain: "{DOMAIN}", opset_import: ["": 18]>
    Gate <slope> (x) => (y) {{
      axes = Constant <value = int64[2] {{2, 3}}> ()
      mean = ReduceMean (x, axes)
      factor = Constant <value_float: float = @slope> ()
      sloped = Mul (mean, factor)
      half = Constant <value = float {{0.5}}> ()
      raised = Add (sloped, half)
      zero = Constant <value = float {{0}}> ()
      one = Constant <value = float {{1}}> ()
      gate = Clip (raised, zero, one)
      y = Mul (x, gate)
    }}
    """
)


class OnnxGate(torch.autograd.Function):
    """Exported as one node."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * (0.5 + SLOPE * x.mean((2, 3), keepdim=True)).clamp(0, 1)

    @staticmethod
    def symbolic(g: object, x: object) -> object:
        return g.op(f"{DOMAIN}::Gate", x, slope_f=SLOPE).setType(x.type())


class Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.onnx.is_in_onnx_export():
            return OnnxGate.apply(x)
        return x * (0.5 + SLOPE * x.mean((2, 3), keepdim=True)).clamp(0, 1)


def network() -> nn.Module:
    """float32 [n,1,16,16], pixels / 255, to logits [n,10]."""
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        Residual(12),
        Gate(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Residual(16),
        Gate(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


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
    print(f"float top-1: {right.mean():.2%} of {held} held out, {right[:TEST].mean():.2%} of digits/test")
    path = HERE / "model.onnx"
    torch.onnx.export(
        model,
        (x[:1],),
        path,
        input_names=["image"],
        output_names=["logits"],
        opset_version=18,
        dynamo=False,
        custom_opsets={DOMAIN: 1},
    )
    proto = onnx.load(path)
    proto.functions.append(FUNCTION)
    if DOMAIN not in {entry.domain for entry in proto.opset_import}:
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    onnx.save(proto, path)


if __name__ == "__main__":
    main()
