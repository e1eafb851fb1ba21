"""Measurements that need models, labelled data or a disk; the kernels' benches are `pytrace bench`."""
