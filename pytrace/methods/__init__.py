"""The published methods, each a short composition of the stages."""
