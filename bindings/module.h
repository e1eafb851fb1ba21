// What each binding file registers; module.cpp calls them and does nothing else.
#pragma once

#include <pybind11/pybind11.h>

namespace pytrace::bindings {

void register_beam(pybind11::module_& module);
void register_fuzzy(pybind11::module_& module);
void register_runtime(pybind11::module_& module);
void register_callbacks(pybind11::module_& module);
void register_topk(pybind11::module_& module);
void register_align(pybind11::module_& module);
void register_cover(pybind11::module_& module);
void register_walk(pybind11::module_& module);
void register_words(pybind11::module_& module);
void register_names(pybind11::module_& module);
void register_pairs(pybind11::module_& module);
void register_late_interaction(pybind11::module_& module);
void register_bags(pybind11::module_& module);
void register_spans(pybind11::module_& module);

}  // namespace pytrace::bindings
