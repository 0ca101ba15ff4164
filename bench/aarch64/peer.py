"""peer.py MODEL N: a .tflite or .onnx on an input of zeros, under an emulated Python: once, mark, N times, mark, 2 N
times, mark (run_times.c does the same). The last line of the output is the engine's version."""

import contextlib
import os
import sys
from collections.abc import Callable

import numpy as np

MARK = 0x6E6D70  # of count_insns.c


def litert(path: str) -> tuple[str, Callable[[], object]]:
    from importlib.metadata import version

    from ai_edge_litert.interpreter import Interpreter

    net = Interpreter(path, num_threads=1)
    net.allocate_tensors()
    about = net.get_input_details()[0]
    net.set_tensor(about["index"], np.zeros(about["shape"], about["dtype"]))
    return version("ai-edge-litert"), net._interpreter.Invoke


def ort(path: str) -> tuple[str, Callable[[], object]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    binding, port = session.io_binding(), session.get_inputs()[0]
    held = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(port.shape, np.float32))
    binding.bind_ortvalue_input(port.name, held)
    binding.bind_output(session.get_outputs()[0].name, "cpu")
    run = session._sess.run_with_iobinding
    return onnxruntime.__version__, lambda: run(binding._iobinding, None)


def mark() -> None:
    with contextlib.suppress(ProcessLookupError):
        os.getpgid(MARK)


def main(path: str, times: int) -> None:
    version, call = (litert if path.endswith(".tflite") else ort)(path)
    call()
    mark()
    for n in (times, 2 * times):
        for _ in range(n):
            call()
        mark()
    print(version)


main(sys.argv[1], int(sys.argv[2]))
