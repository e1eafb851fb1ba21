"""Benches: each verifies its answer first, then times it beside its peers on the same data and threads."""
