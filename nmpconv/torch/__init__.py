"""Training with the arithmetic of the file: `prepare` a torch module, train it in any loop, `convert` it.

    prepared = nmpconv.torch.prepare(module, images[:1], data=images)
    ...                                        # train it as any module
    nmpconv.torch.convert(prepared).save("model.nmp")

Needs torch: pip install 'nmpconv[torch]'.
"""

from __future__ import annotations

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError("nmpconv.torch needs torch, which is not installed: pip install 'nmpconv[torch]'") from None

from nmpconv.torch.bridge import convert, prepare
from nmpconv.torch.module import TrainableNet

del torch
__all__ = ["TrainableNet", "convert", "prepare"]
