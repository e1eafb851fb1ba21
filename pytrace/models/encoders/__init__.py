"""Encoders and cross-encoders on onnxruntime, and their vectors on disk."""
