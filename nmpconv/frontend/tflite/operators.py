"""The TFLite operators that are read: one row each, by name."""

from __future__ import annotations

from collections.abc import Mapping

from nmpconv.frontend.tflite import (
    arithmetic,
    blocks,
    complex_numbers,
    convolutions_3d,
    products,
    rearranging,
    recurrent_layers,
    windows,
)
from nmpconv.frontend.tflite.rows import Write

WRITERS: Mapping[str, Write] = {
    **arithmetic.ROWS,
    **blocks.ROWS,
    **products.ROWS,
    **rearranging.ROWS,
    **recurrent_layers.ROWS,
    **complex_numbers.ROWS,
    **convolutions_3d.ROWS,
    **windows.ROWS,
}
