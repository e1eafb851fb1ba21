#include "cuda/align.h"

#include <vector>

#include "align/align_check.h"
#include "calls.h"
#include "cuda/mixed_arrays.h"
#include "cuda/module.h"

namespace pytrace::bindings {
namespace {

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

  ResultArrays results({&first.operand, &second.operand, &scores}, asked);
  cuda::AlignedArrays out;
  out.best = results.add<int64_t>(count);
  out.scores = results.add<double>(count);
  out.matches = results.add<int64_t>(count);
  out.lengths = results.add<int64_t>(count);
  out.on_card = results.on_card();
  const std::function<cuda::StepArrays(int64_t)> room = [&](int64_t columns) {
    const py::gil_scoped_acquire acquired;
    cuda::StepArrays steps;
    steps.candidate_steps = results.add<int64_t>(columns);
    steps.reference_steps = results.add<int64_t>(columns);
    steps.offsets = results.add<int64_t>(count + 1);
    return steps;
  };
  {
    const ReleasedGil released;
    const cuda::Borrowed context(results.device());
    cuda::align_batch(*context, batch, out, want_steps ? &room : nullptr);
  }
  return results.tuple();
}

}  // namespace

void register_cuda_align(py::module_& module) {
  module.def("align_batch", &align_batch, py::arg("candidate_values"), py::arg("candidate_offsets"),
             py::arg("reference_values"), py::arg("reference_offsets"), py::arg("groups"),
             py::arg("match"), py::arg("mismatch"), py::arg("gap"), py::arg("gap_open"),
             py::arg("matrix"), py::arg("want_steps"), py::arg("device"), py::pos_only());
}

}  // namespace pytrace::bindings
