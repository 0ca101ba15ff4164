"""MLPerf Tiny's four nets and six of Keras as TFLite files, in our interpreter and LiteRT's: dB and equal integers.

    python -m venv tf && tf/bin/pip install tensorflow onnx
    .venv/bin/pip install ai-edge-litert
    .venv/bin/python bench/tflite.py --tensorflow tf/bin/python          # NMP_ZOO: models and samples

Weights of MLPerf Tiny's nets are the zoo's, trained; `bench/tflite_export.py` writes the files. Samples are split as by
bench/zoo.py; at most MOST measure. dB is that of probabilities, or of the autoencoder's output. `bench/tflite_keras.py`
builds the others, of seeded weights. A file of integers also converts with --faithful, and with --faithful and finer
sums.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import zoo
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from nmpconv.base.sqnr import sqnr_db
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.data.samples import Samples, open_samples
from nmpconv.runtime.interpreter import load

NETS = {
    "KWS": "mlperf_kws_dscnn",
    "VWW": "mlperf_vww_mobilenet025_nchw",
    "IC": "mlperf_ic_resnet8_nchw",
    "AD": "mlperf_ad_autoencoder",
}
KERAS = ("MobileNetV2 0.35", "MobileNetV3 small 0.75", "U-Net", "attention, 2 blocks", "TCN", "odd layers")
MOST = 200
PARTS = ("calib.npy", "measure.npy")
WAYS: dict[str, dict[str, object]] = {
    "8": {"bits": "8"},
    "16": {"bits": "16"},
    "faithful": {"faithful": True},
    "faithful a16w8": {"faithful": True, "bits": "a16w8"},
}
OF_FILE = {"float32": ("8", "16"), "int8": ("8", "faithful", "faithful a16w8"), "int16": ("16", "faithful")}


class LiteRT:
    """A file in LiteRT's portable kernels. step, zero: of the output; 0 where it is float."""

    def __init__(self, path: Path) -> None:
        kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        self._net = Interpreter(str(path), experimental_op_resolver_type=kernels)
        self._net.allocate_tensors()
        self._input, self._output = self._net.get_input_details()[0], self._net.get_output_details()[0]
        self.step, self.zero = self._output["quantization"]

    def fed(self, x: np.ndarray) -> np.ndarray:
        """The sample as the file takes it."""
        step, zero = self._input["quantization"]
        if not step:
            return x
        ends = np.iinfo(self._input["dtype"])
        q: np.ndarray = np.clip(np.rint(x / step) + zero, ends.min, ends.max).astype(self._input["dtype"])
        return q

    def outputs(self, samples: np.ndarray) -> np.ndarray:
        """Reals, one row a sample."""
        rows = []
        for x in samples:
            self._net.set_tensor(self._input["index"], self.fed(x))
            self._net.invoke()
            rows.append(self._net.get_tensor(self._output["index"]).ravel().astype(np.float64))
        return (np.stack(rows) - self.zero) * self.step if self.step else np.stack(rows)


def rows(name: str, folder: Path, calib: np.ndarray, measure: np.ndarray) -> Iterator[str]:
    """One line a file and a way to convert it."""
    wanted = LiteRT(folder / "float32.tflite").outputs(measure)
    for kind, ways in OF_FILE.items():
        path = folder / f"{kind}.tflite"
        if not path.exists():
            yield f"{name} {kind}: TensorFlow's converter refuses"
            continue
        litert = LiteRT(path)
        theirs = litert.outputs(measure)
        if litert.step:
            yield f"{name} {kind}: LiteRT {_db(wanted, theirs)}, best {_best(wanted, theirs)}"
        for way in ways:
            options = Options(**WAYS[way])  # type: ignore[arg-type]
            fed = np.concatenate([litert.fed(x) for x in calib])
            result = convert(path, {"": fed}, options, lambda *_: None)
            net = load(result.data)
            feeds = (litert.fed(x).astype(np.float32) for x in measure)
            ours = np.stack([np.ravel(net.run_float(x)[0]).astype(np.float64) for x in feeds])
            if not litert.step:
                yield f"{name} {kind}, {way}: {_db(wanted, ours)}, best {_best(wanted, ours)}"
                continue
            if net.outputs[0].dtype.startswith("int") and np.array_equal(ours, np.rint(ours)):
                ours = (ours - litert.zero) * litert.step
            apart = np.abs(np.rint((ours - theirs) / litert.step))
            shares = ", ".join(f"{100 * np.mean(apart <= n):.2f} % within {n}" for n in (0, 1))
            against = f"against LiteRT {_db(theirs, ours)}, {shares}, most {apart.max():.0f}"
            yield f"{name} {kind}, {way}: {_db(wanted, ours)}, best {_best(wanted, ours)}; {against}"


def _db(wanted: np.ndarray, got: np.ndarray) -> str:
    return f"{sqnr_db(wanted, got):.1f} dB"


def _best(wanted: np.ndarray, got: np.ndarray) -> str:
    """Share of samples with the same best class."""
    return f"{100 * np.mean(wanted.argmax(1) == got.argmax(1)):.1f} %"


def samples_of(name: str, about: dict[str, object], folder: Path) -> Iterator[np.ndarray]:
    """Those that calibrate and those that measure, [n, 1, ...], channels last."""
    graph = onnx.load(folder / "models" / f"{name}.onnx").graph
    constants = {tensor.name for tensor in graph.initializer}
    port = next(port for port in graph.input if port.name not in constants)
    shape = tuple(max(1, size.dim_value) for size in port.type.tensor_type.shape.dim)
    with tempfile.TemporaryDirectory() as scratch:
        data = zoo.split(folder, name, about, Path(scratch))
        for source, most in ((data.calib, zoo.FIRST), (data.measure, MOST)):
            x = _stacked(open_samples(source, shape, data.preprocess), most).reshape(-1, *shape)
            yield np.moveaxis(x, 2, -1).copy() if shape[1] == 3 else x


def _stacked(samples: Samples, most: int) -> np.ndarray:
    places = np.linspace(0, len(samples) - 1, min(len(samples), most)).astype(int)
    return np.stack([samples.model_input(int(i)) for i in places]).astype(np.float32)


def main() -> None:
    folder = Path(os.environ.get("NMP_ZOO") or Path(__file__).resolve().parents[2] / "shared" / "zoo")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tensorflow", default="tf/bin/python", help="a Python that has tensorflow and onnx")
    parser.add_argument("--only", default="", help="nets whose name has this in it")
    args = parser.parse_args()
    about = json.loads((folder / "zoo.json").read_text())
    for name in (*NETS, *KERAS):
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            into = Path(scratch)
            script, *words = ("tflite_keras.py", name, scratch)
            if name in NETS:
                for part, x in zip(PARTS, samples_of(NETS[name], about[NETS[name]], folder), strict=True):
                    np.save(into / part, x)
                model = folder / "models" / f"{NETS[name]}.onnx"
                script, *words = ("tflite_export.py", model, into / PARTS[0], scratch)
            command = [args.tensorflow, Path(__file__).with_name(script), *words]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            calib, measure = (np.load(into / part) for part in PARTS)
            for row in rows(name, into, calib, measure):
                print(row, flush=True)


if __name__ == "__main__":
    main()
