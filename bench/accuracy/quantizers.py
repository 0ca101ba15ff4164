"""The peers: each quantizes a float ONNX model after training, with given samples, and runs what came of it.

What is judged is the quantized model as its file defines it, not a CPU's way to compute it. So the peers' graphs run in
float32, with their roundings in it, where the engine can do that: ONNX Runtime without graph optimization, OpenVINO
without low-precision transformations. int8 kernels of x86 without VNNI saturate sums in between. LiteRT has integer
kernels that are exact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import version as installed
from pathlib import Path

import numpy as np

Run = Callable[[np.ndarray], list[np.ndarray]]  # the outputs of one sample


def onnx_runtime(model: Path, samples: np.ndarray, folder: Path, calibrate: str) -> tuple[Run, str]:
    """quantize_static, QDQ: uint8 activations, int8 weights per channel. calibrate: a CalibrationMethod."""
    import onnx
    import onnxruntime
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from peers.engines.ort import Reader

    target, whole = folder / "int8.onnx", onnx_folded(model, folder)
    quantize_static(
        str(whole),
        str(target),
        Reader(onnx.load(str(whole)).graph.input[0].name, samples),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod[calibrate],
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda sample: session.run(None, {name: sample}), f"onnxruntime {onnxruntime.__version__}"


def nncf(model: Path, samples: np.ndarray, folder: Path, setting: str) -> tuple[Run, str]:
    """nncf.quantize of the OpenVINO model. setting: "default", or "min-max": with activations asymmetric (preset mixed)
    and the least and greatest of all samples as their ranges, in place of averages over samples."""
    import nncf as package
    import openvino
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    package.set_log_level(logging.ERROR)
    # The fix is for x86 without VNNI and costs accuracy.
    advanced = AdvancedQuantizationParameters(overflow_fix=OverflowFix.DISABLE)
    preset = package.QuantizationPreset.PERFORMANCE
    if setting == "min-max":
        advanced.activations_range_estimator_params = RangeEstimatorParametersSet.MINMAX
        preset = package.QuantizationPreset.MIXED
    core, dataset = openvino.Core(), package.Dataset(list(samples))
    quantized = package.quantize(
        core.read_model(model), dataset, subset_size=len(samples), preset=preset, advanced_parameters=advanced
    )
    config = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": "NO", "INFERENCE_NUM_THREADS": 1}
    request = core.compile_model(quantized, "CPU", config).create_infer_request()

    def run(sample: np.ndarray) -> list[np.ndarray]:
        request.infer([sample])
        return [np.array(tensor.data) for tensor in request.output_tensors]

    return run, f"nncf {installed('nncf')}, openvino {installed('openvino')}"


def litert(model: Path, samples: np.ndarray, folder: Path, setting: str) -> tuple[Run, str]:
    """By way of PyTorch and litert-torch to a .tflite, then ai-edge-quantizer: activations int8 with zero points.

    setting: "default", whose ranges are moving averages over samples, or "min-max": the least and greatest of all.
    """
    from peers.engines import litert as engine
    from peers.job import Job

    np.save(folder / "samples.npy", samples)
    whole = onnx_folded(model, folder)
    job = Job("litert", str(whole), str(folder / "samples.npy"), str(folder), "int8", 1)
    engine.prepare(job, engine.averages if setting == "default" else engine.extremes)
    session = engine.open(job)
    versions = [f"{name} {installed(name)}" for name in ("ai-edge-quantizer", "ai-edge-litert", "litert-torch")]
    return lambda sample: [session.result(sample)], ", ".join(versions)


def onnx_folded(model: Path, folder: Path) -> Path:
    """The model after ONNX Runtime's own preparation: constants folded, BatchNormalization in the convolutions."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    target = folder / "folded.onnx"
    logging.disable(logging.WARNING)
    quant_pre_process(str(model), str(target), skip_symbolic_shape=True)
    return target


QUANTIZERS = {"onnxruntime": onnx_runtime, "nncf": nncf, "litert": litert}
