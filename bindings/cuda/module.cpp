#include "cuda/module.h"

PYBIND11_MODULE(_cuda, module) {
  pytrace::bindings::register_cuda_runtime(module);
  pytrace::bindings::register_cuda_arrays(module);
  pytrace::bindings::register_cuda_rows(module);
}
