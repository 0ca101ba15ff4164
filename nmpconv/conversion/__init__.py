"""A conversion from an ONNX model and samples to a .nmp file: the pipeline and its stages."""
