"""Boxes: what a detector's outputs say, and how good that is. No I/O.

Boxes are float64 [n, 6], one a row: left, top, right, bottom in pixels of the model's input, then score and class.
"""
