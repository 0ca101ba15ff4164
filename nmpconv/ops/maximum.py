"""Element-wise maximum of two tensors with numpy broadcasting; one may be constant."""

from __future__ import annotations

import numpy as np

from nmpconv.ops.aligned import Aligned, AlignedParams


class Maximum(Aligned):
    name = "maximum"
    Params = AlignedParams
    kind = "Max"
    combine = np.maximum
    monotone = True
