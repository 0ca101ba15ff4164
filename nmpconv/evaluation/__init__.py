"""Accuracy of a converted model: against labels, boxes and the float model."""
