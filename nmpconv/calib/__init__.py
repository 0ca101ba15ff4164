"""Calibration: what feeds the float model, what its tensors look like then, and the exponents that follow."""
