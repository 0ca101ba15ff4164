"""Element-wise maximum of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

import numpy as np

from nmpconv.ops.common.aligned import Aligned, AlignedParams


class Maximum(Aligned):
    name = "maximum"
    Params = AlignedParams
    kind = "Max"
    source = "Max, Or of two tensors, PRelu with a slope for each channel"
    combine = np.maximum
    monotone = True
