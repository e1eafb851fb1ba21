"""The test suite; `tests.oracles` holds a naive twin of every kernel."""
