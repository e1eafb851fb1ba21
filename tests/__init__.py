"""The test suite; `tests.oracles` holds a naive twin of every kernel, which benches use to verify too."""
