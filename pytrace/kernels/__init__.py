"""The five kernels: typed fronts of the compiled core."""
