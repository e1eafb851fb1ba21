"""Triples: extraction from documents, parsing of model output, and the triple store."""
