"""All ops, in the order of the schema's union Params."""

from __future__ import annotations

from nmpconv.ops.add import Add
from nmpconv.ops.arg_max import ArgMax
from nmpconv.ops.average_pool import AveragePool
from nmpconv.ops.batch_matmul import BatchMatmul
from nmpconv.ops.concat import Concat
from nmpconv.ops.conv2d import Conv2D
from nmpconv.ops.conv_transpose import ConvTranspose
from nmpconv.ops.divide import Divide
from nmpconv.ops.equal import Equal
from nmpconv.ops.fully_connected import FullyConnected
from nmpconv.ops.gather import Gather
from nmpconv.ops.greater import Greater
from nmpconv.ops.lookup import Lookup
from nmpconv.ops.lrn import Lrn
from nmpconv.ops.max_pool import MaxPool
from nmpconv.ops.maximum import Maximum
from nmpconv.ops.minimum import Minimum
from nmpconv.ops.mul import Mul
from nmpconv.ops.normalize import Normalize
from nmpconv.ops.op import Case, Op, QArray
from nmpconv.ops.pad import Pad
from nmpconv.ops.requantize import Requantize
from nmpconv.ops.reshape import Reshape
from nmpconv.ops.resize import Resize
from nmpconv.ops.slice import Slice
from nmpconv.ops.softmax import Softmax
from nmpconv.ops.sub import Sub
from nmpconv.ops.transpose import Transpose

_ALL: list[Op] = [
    Conv2D(),
    FullyConnected(),
    Add(),
    Mul(),
    AveragePool(),
    MaxPool(),
    Requantize(),
    Lookup(),
    Softmax(),
    Concat(),
    Pad(),
    Slice(),
    Reshape(),
    Transpose(),
    Gather(),
    Resize(),
    Sub(),
    Minimum(),
    Maximum(),
    ConvTranspose(),
    Normalize(),
    BatchMatmul(),
    Divide(),
    Greater(),
    Equal(),
    ArgMax(),
    Lrn(),
]

OPS: dict[str, Op] = {op.name: op for op in _ALL}

# Ops whose inputs are x, weights and bias; the passes fit them to the quantized layers before them.
WEIGHTED = ("conv2d", "fully_connected", "conv_transpose")

__all__ = ["OPS", "WEIGHTED", "Case", "Op", "QArray"]
