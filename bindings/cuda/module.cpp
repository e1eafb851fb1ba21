#include "cuda/module.h"

// _cuda, or _cuda_emulated for the emulated card: one process may hold both.
PYBIND11_MODULE(PYTRACE_CUDA_MODULE, module) {
  pytrace::bindings::register_cuda_runtime(module);
  pytrace::bindings::register_cuda_align(module);
  pytrace::bindings::register_cuda_arrays(module);
  pytrace::bindings::register_cuda_beam(module);
  pytrace::bindings::register_cuda_fuzzy(module);
  pytrace::bindings::register_cuda_rows(module);
  pytrace::bindings::register_cuda_topk(module);
}
