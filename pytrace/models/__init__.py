"""Encoders, language models, and the registry that names and pins their files."""
