#include <algorithm>
#include <optional>

#include "calls.h"
#include "cuda/fuzzy_cdist.h"
#include "cuda/module.h"
#include "fuzzy_arguments.h"

namespace pytrace::bindings {
namespace {

// Keeps the arguments alive: texts are read while the GIL is released.
struct CardCall {
  CardCall(const py::tuple& queries, const py::tuple& choices, int scorer, const py::object& cutoff,
           const py::object& multiplier, const py::object& missing, const py::array& out, int asked)
      : device(std::max(asked, 0)) {
    const py::int_ number(scorer);
    const py::int_ threads(1);
    PyObject* const arguments[] = {queries.ptr(),    choices.ptr(), number.ptr(),  cutoff.ptr(),
                                   multiplier.ptr(), missing.ptr(), threads.ptr(), out.ptr()};
    given.emplace(arguments);
    if (given->options.scorer > FuzzyScorer::kTokenSetRatio) {
      throw py::value_error("scorer is " + std::to_string(scorer) + "; a card has 0, 1 and 2");
    }
    cuda::require_device(device);
  }

  int device;
  std::optional<ManyPairs> given;
};

template <typename Function>
void run(CardCall& call, void* data, const Function& function) {
  const ReleasedGil released;
  const cuda::Borrowed context(call.device);
  const ManyPairs& given = *call.given;
  function(*context, Span<const Text>{given.queries.data(), given.query_count()},
           Span<const Text>{given.choices.data(), given.choice_count()}, given.options, given.type,
           data);
}

void cdist(const py::tuple& queries, const py::tuple& choices, int scorer, const py::object& cutoff,
           const py::object& multiplier, const py::object& missing, const py::array& out,
           int device) {
  CardCall call(queries, choices, scorer, cutoff, multiplier, missing, out, device);
  run(call, call.given->matrix(), cuda::fuzzy_cdist);
}

void cpdist(const py::tuple& queries, const py::tuple& choices, int scorer,
            const py::object& cutoff, const py::object& multiplier, const py::object& missing,
            const py::array& out, int device) {
  CardCall call(queries, choices, scorer, cutoff, multiplier, missing, out, device);
  run(call, call.given->vector(), cuda::fuzzy_cpdist);
}

}  // namespace

void register_cuda_fuzzy(py::module_& module) {
  module.def("fuzzy_cdist", &cdist, py::arg("queries"), py::arg("choices"), py::arg("scorer"),
             py::arg("score_cutoff"), py::arg("multiplier"), py::arg("missing"), py::arg("out"),
             py::arg("device"), py::pos_only());
  module.def("fuzzy_cpdist", &cpdist, py::arg("queries"), py::arg("choices"), py::arg("scorer"),
             py::arg("score_cutoff"), py::arg("multiplier"), py::arg("missing"), py::arg("out"),
             py::arg("device"), py::pos_only());
}

}  // namespace pytrace::bindings
