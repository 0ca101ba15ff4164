"""Samples that reach much farther than the others throughout a net, so that grids which hold them are coarse for all.

Single tensors vary from sample to sample, so a sample counts where many tensors do. The bounds are measured: of the
zoo's nets and samples no one reaches beyond FAR times the usual in more than 3 % of the tensors; decision 053.
"""

from __future__ import annotations

import numpy as np

from nmpconv.calib.observers import SamplePeaks

FAR = 4.0  # times the usual peak of a tensor, its median over samples
TENSORS = 0.15  # least share of the tensors that reach so far
SAMPLES = 0.1  # most samples that are outliers beside the others
PEAKS_MOST = 10_000  # samples, up to which outliers are looked for: peaks of each in all tensors are in memory


def find_outliers(peaks: SamplePeaks) -> dict[int, float]:
    """Returns the index of each outlier, and how many times the usual peak it reaches, in the median of the tensors in
    which it is beyond FAR. None where they are more than SAMPLES of all."""
    rows = [row / usual for row in peaks.by_tensor.values() if row.size and (usual := float(np.median(row))) > 0]
    if not rows:
        return {}
    beyond = np.array(rows)
    far = beyond > FAR
    outliers = np.flatnonzero(far.mean(axis=0) > TENSORS)
    if len(outliers) > SAMPLES * far.shape[1]:
        return {}
    return {int(i): float(np.median(beyond[far[:, i], i])) for i in outliers}
