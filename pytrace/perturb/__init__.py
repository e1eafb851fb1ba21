"""Perturbed contexts: chains of evidence that are broken on purpose, and text that is put beside them."""
