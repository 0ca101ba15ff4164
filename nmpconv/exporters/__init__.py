"""A .nmp file in other forms: C sources, QDQ ONNX, an HTML report."""
