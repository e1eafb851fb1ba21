"""Other libraries' interfaces on pytrace's kernels: change an import and keep the code."""
