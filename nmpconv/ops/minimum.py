"""Element-wise minimum of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

import numpy as np

from nmpconv.ops.common.aligned import Aligned, AlignedParams


class Minimum(Aligned):
    name = "minimum"
    Params = AlignedParams
    kind = "Min"
    source = "Min, And of two tensors"
    combine = np.minimum
    monotone = True
