#include "cuda/align.h"

#include <utility>
#include <vector>

#include "align_check.h"
#include "calls.h"
#include "cuda/mixed_arrays.h"
#include "cuda/module.h"

namespace pytrace::bindings {
namespace {

// The result's arrays, on the card or on the host.
struct Arrays {
  bool stay;
  int device;
  std::vector<DeviceArray> on_card;
  std::vector<py::array> on_host;

  void* add(int64_t count, Element element) {
    if (stay) {
      on_card.emplace_back(std::vector<int64_t>{count}, element, device);
      return on_card.back().data();
    }
    on_host.emplace_back(py::dtype(element_name(element)), std::vector<py::ssize_t>{count});
    return on_host.back().mutable_data();
  }
  int64_t* add_whole(int64_t count) { return static_cast<int64_t*>(add(count, Element::kInt64)); }

  py::tuple tuple() {
    const size_t count = stay ? on_card.size() : on_host.size();
    py::tuple out(count);
    for (size_t i = 0; i < count; ++i) {
      out[i] = stay ? py::cast(std::move(on_card[i])) : py::object(std::move(on_host[i]));
    }
    return out;
  }
};

// Symbols, where they lie; with `own`, a copy on the host that nobody else can change.
struct Symbols {
  Operand operand;
  std::vector<int32_t> copy;
  bool on_card = false;
  Span<const int32_t> values;

  Symbols(py::handle object, const char* name, bool own)
      : operand(rows_operand<int32_t>(object, name)) {
    require_rank(operand, 1);
    on_card = operand.on_device && !own;
    if (own) {
      copy = host_values<int32_t>(operand);
      values = {copy.data(), static_cast<int64_t>(copy.size())};
    } else {
      values = {static_cast<const int32_t*>(operand.data), operand.shape[0]};
    }
  }
};

py::tuple align_batch(py::handle candidate_values, py::handle candidate_offsets,
                      py::handle reference_values, py::handle reference_offsets, py::handle groups,
                      double match, double mismatch, double gap, double gap_open, py::handle matrix,
                      bool want_steps, int asked) {
  cuda::AlignBatch batch;
  Scoring& scoring = batch.scoring;
  scoring.match = match;
  scoring.mismatch = mismatch;
  scoring.gap = gap;
  scoring.gap_open = gap_open;
  require_scoring(scoring);
  Operand scores;
  std::vector<double> score_values{0.0};  // an empty matrix is a matrix too
  if (!matrix.is_none()) {
    scores = operand_of(matrix, "score");
    if (scores.rank() != 2) fail("score has " + to_text(scores.rank()) + " dimensions, not 2");
    const std::vector<double> values = host_values<double>(scores);
    if (!values.empty()) score_values = values;
    scoring.matrix = {score_values.data(), scores.shape[0], scores.shape[1], scores.shape[1]};
    require_score_matrix(scoring.matrix);
  }
  const Symbols first(candidate_values, "candidates' values", !matrix.is_none());
  const Symbols second(reference_values, "references' values", !matrix.is_none());
  const auto first_offsets = whole_vector(candidate_offsets, "candidates' offsets");
  const auto second_offsets = whole_vector(reference_offsets, "references' offsets");
  const auto group_offsets = whole_vector(groups, "groups");
  batch.candidates = {first.values, span(first_offsets)};
  batch.references = {second.values, span(second_offsets)};
  batch.groups = span(group_offsets);
  batch.candidates_on_card = first.on_card;
  batch.references_on_card = second.on_card;
  require_offsets(batch.candidates.offsets, batch.candidates.values.size, "candidates' offsets");
  require_offsets(batch.references.offsets, batch.references.values.size, "references' offsets");
  const int64_t count = batch.candidates.size();
  if (batch.groups.size != count + 1) {
    fail("groups has " + to_text(batch.groups.size) + " values, but " + to_text(count) +
         " candidates need " + to_text(count + 1));
  }
  require_offsets(batch.groups, batch.references.size(), "groups");
  if (!matrix.is_none()) {
    require_symbols_in_matrix(scoring, batch.candidates.values, batch.references.values);
  }

  Arrays arrays{any_on_device({&first.operand, &second.operand, &scores}),
                device_of({&first.operand, &second.operand, &scores}, asked),
                {},
                {}};
  cuda::AlignedArrays out;
  out.best = arrays.add_whole(count);
  out.scores = static_cast<double*>(arrays.add(count, Element::kFloat64));
  out.matches = arrays.add_whole(count);
  out.lengths = arrays.add_whole(count);
  out.on_card = arrays.stay;
  const std::function<cuda::StepArrays(int64_t)> room = [&](int64_t columns) {
    const py::gil_scoped_acquire acquired;
    int64_t* const of_candidates = arrays.add_whole(columns);
    int64_t* const of_references = arrays.add_whole(columns);
    return cuda::StepArrays{of_candidates, of_references, arrays.add_whole(count + 1)};
  };
  {
    const ReleasedGil released;
    const cuda::Borrowed context(arrays.device);
    cuda::align_batch(*context, batch, out, want_steps ? &room : nullptr);
  }
  return arrays.tuple();
}

}  // namespace

void register_cuda_align(py::module_& module) {
  module.def("align_batch", &align_batch, py::arg("candidate_values"), py::arg("candidate_offsets"),
             py::arg("reference_values"), py::arg("reference_offsets"), py::arg("groups"),
             py::arg("match"), py::arg("mismatch"), py::arg("gap"), py::arg("gap_open"),
             py::arg("matrix"), py::arg("want_steps"), py::arg("device"), py::pos_only());
}

}  // namespace pytrace::bindings
