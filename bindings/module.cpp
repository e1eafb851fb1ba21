#include "module.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "pytrace's compiled core; use the typed fronts in pytrace.kernels.";
  pytrace::bindings::register_beam(module);
  pytrace::bindings::register_fuzzy(module);
  pytrace::bindings::register_runtime(module);
  pytrace::bindings::register_callbacks(module);
  pytrace::bindings::register_topk(module);
  pytrace::bindings::register_align(module);
  pytrace::bindings::register_cover(module);
  pytrace::bindings::register_walk(module);
  pytrace::bindings::register_words(module);
  pytrace::bindings::register_names(module);
  pytrace::bindings::register_pairs(module);
  pytrace::bindings::register_late_interaction(module);
  pytrace::bindings::register_bags(module);
  pytrace::bindings::register_spans(module);
}
