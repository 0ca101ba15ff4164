"""Writes a Keras net of seeded weights as TFLite files, with inputs to calibrate and to measure with.

    tf/bin/python bench/tflite_keras.py "U-Net" FOLDER     # an environment with tensorflow and onnx

The files are those of `bench/tflite_export.py`, int16 where TensorFlow's converter does not refuse it; calib.npy and
measure.npy hold random fields, [n, 1, ...]. Scales and biases of batch norms are about 1, their means and variances
those of the inputs, so that no signal vanishes and errors hardly grow (`models_export.py` says why). `bench/tflite.py`
calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from keras import layers
from tflite_export import files

INPUTS = 48  # that calibrate, and as many that measure
CELL = 8  # pixels or steps that are alike but for noise


def mobilenet_v2() -> keras.Model:
    return keras.applications.MobileNetV2((96, 96, 3), alpha=0.35, weights=None, classes=10, classifier_activation=None)


def mobilenet_v3() -> keras.Model:
    return keras.applications.MobileNetV3Small(
        (96, 96, 3), alpha=0.75, weights=None, classes=10, classifier_activation=None, include_preprocessing=False
    )


def unet() -> keras.Model:
    x = ports = keras.Input((48, 48, 3))
    kept = []
    for width in (8, 16):
        x = _block(x, width)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    x = _block(x, 32)
    for width, beside in zip((16, 8), reversed(kept), strict=True):
        x = layers.Concatenate()([layers.Conv2DTranspose(width, 2, 2)(x), beside])
        x = _block(x, width)
    return keras.Model(ports, layers.Conv2D(3, 1)(x))


def _block(x: keras.KerasTensor, width: int) -> keras.KerasTensor:
    for _ in range(2):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same", use_bias=False)(x)))
    return x


def attention() -> keras.Model:
    x = ports = keras.Input((24, 16))
    x = layers.Dense(32)(x)
    for _ in range(2):
        beside = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 8)(beside, beside)])
        beside = layers.Dense(64, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(32)(beside)])
    return keras.Model(ports, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def tcn() -> keras.Model:
    x = ports = keras.Input((64, 8))
    x = layers.Conv1D(16, 1)(x)
    for dilation in (1, 2, 4):
        y = layers.Conv1D(16, 3, padding="causal", dilation_rate=dilation, use_bias=False)(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        x = layers.Add()([x, layers.Conv1D(16, 1)(y)])
    return keras.Model(ports, layers.Dense(6)(layers.GlobalAveragePooling1D()(x)))


def odd() -> keras.Model:
    x = ports = keras.Input((32, 32, 4))
    x = layers.PReLU(shared_axes=[1, 2], alpha_initializer="random_normal")(layers.Conv2D(16, 3, dilation_rate=2)(x))
    x = layers.ELU()(layers.BatchNormalization()(layers.Conv2D(16, 3, groups=4, padding="same")(x)))
    x = layers.Conv2DTranspose(12, 3, 2, padding="same")(x[:, 2:-2, 2:-2])
    x = layers.BatchNormalization()(layers.DepthwiseConv2D(3, 2)(x))
    x = layers.Add()([x[:, :-2, :, :8], layers.LeakyReLU()(x[:, 2:, :, 4:])])
    return keras.Model(ports, layers.Dense(10)(layers.GlobalMaxPooling2D()(x)))


NETS: dict[str, Callable[[], keras.Model]] = {
    "MobileNetV2 0.35": mobilenet_v2,
    "MobileNetV3 small 0.75": mobilenet_v3,
    "U-Net": unet,
    "attention, 2 blocks": attention,
    "TCN": tcn,
    "odd layers": odd,
}


def seeded(make: Callable[[], keras.Model]) -> tuple[keras.Model, np.ndarray]:
    """The net and inputs, [n, ...]."""
    keras.utils.set_random_seed(0)
    model, rng = make(), np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.0
            layer.gamma.assign(rng.normal(1, 0.2, layer.gamma.shape))
            layer.beta.assign(rng.normal(1, 0.2, layer.beta.shape))
    *sizes, channels = model.input_shape[1:]
    inputs = rng.normal(size=(2 * INPUTS, *(size // CELL for size in sizes), channels))
    for axis in range(1, 1 + len(sizes)):
        inputs = np.repeat(inputs, CELL, axis)
    inputs = (inputs + 0.3 * rng.normal(size=inputs.shape)).astype(np.float32)
    model(inputs[:INPUTS], training=True)
    return model, inputs


def main() -> None:
    folder, (model, inputs) = Path(sys.argv[2]), seeded(NETS[sys.argv[1]])
    calib, measure = inputs[:INPUTS, None], inputs[INPUTS:, None]
    np.save(folder / "calib.npy", calib)
    np.save(folder / "measure.npy", measure)
    try:
        for kind, data in files(lambda x: model(x, training=False), calib):
            (folder / f"{kind}.tflite").write_bytes(data)
    except Exception as error:  # of int16, which comes last
        if not (folder / "int8.tflite").exists():
            raise
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
