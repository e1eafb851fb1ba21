// What each binding file of pytrace._cuda registers.
#pragma once

#include <pybind11/pybind11.h>

namespace pytrace::bindings {

void register_cuda_align(pybind11::module_& module);
void register_cuda_arrays(pybind11::module_& module);
void register_cuda_beam(pybind11::module_& module);
void register_cuda_fuzzy(pybind11::module_& module);
void register_cuda_rows(pybind11::module_& module);
void register_cuda_runtime(pybind11::module_& module);
void register_cuda_topk(pybind11::module_& module);

}  // namespace pytrace::bindings
