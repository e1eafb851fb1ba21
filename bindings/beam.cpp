#include "beam.h"

#include "arrays.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

py::array finished_of(py::handle object) {
  const py::array array = real_array(object, "finished");
  require_rank(array, 1, "finished");
  if (array.size() > 0 && array.dtype().num() != kBoolNumber) {
    throw py::type_error("finished holds " + std::string(py::str(array.dtype())) +
                         "; it must hold booleans");
  }
  return rows_of<bool>(array);
}

template <typename T>
BeamResult run(const BeamInput& input, const py::array& logits, Span<const int64_t> offsets,
               const BeamOptions& how, int threads) {
  Options<T> options;
  options.offsets = offsets;
  if (logits.ndim() == 1) {
    options.flat = span_view<T>(logits);
  } else {
    options.matrix = matrix_view<T>(logits);
  }
  const py::gil_scoped_release release;
  return expand(input, options, how, threads);
}

py::tuple bind_expand(py::handle chain_scores, py::handle option_logits, py::handle finished,
                      py::handle beams, py::handle chains, double min_prob, py::handle terminate,
                      py::handle question_offsets, py::handle option_offsets, py::handle lengths,
                      double length_penalty, py::handle threads) {
  BeamOptions how;
  how.beams = whole_number(beams, "beams", 1);
  how.chains = whole_number(chains, "chains", 1);
  how.min_prob = min_prob;
  how.terminate = terminate.is_none() ? -1 : whole_number(terminate, "terminate", 0);
  how.length_penalty = length_penalty;
  const int team = thread_count(threads);

  BeamInput input;
  const py::array score_array = rows_of<double>(real_array(chain_scores, "chain_scores"));
  require_rank(score_array, 1, "chain_scores");
  input.scores = span_view<double>(score_array);
  const py::array finished_array = finished_of(finished);
  input.finished = span_view<bool>(finished_array);
  const int64_t one_question[2] = {0, input.scores.size};
  input.question_offsets = {one_question, 2};
  py::array question_array;
  if (!question_offsets.is_none()) {
    question_array = int64_vector(question_offsets, "question_offsets");
    input.question_offsets = span_view<int64_t>(question_array);
  }
  py::array length_array;
  if (!lengths.is_none()) {
    length_array = int64_vector(lengths, "lengths");
    input.lengths = span_view<int64_t>(length_array);
  }

  py::array logits = real_array(option_logits, "option_logits");
  const bool ragged = !option_offsets.is_none();
  if (logits.ndim() != (ragged ? 1 : 2)) {
    throw py::value_error("option_logits has " + std::to_string(logits.ndim()) +
                          " dimensions; it must have " +
                          (ragged ? "1 with option_offsets" : "2 without option_offsets"));
  }
  py::array offset_array;
  Span<const int64_t> offsets;
  if (ragged) {
    offset_array = int64_vector(option_offsets, "option_offsets");
    offsets = span_view<int64_t>(offset_array);
    if (offsets.size == 0) fail("option_offsets is empty; it needs at least the value 0");
  }
  const bool single = logits.dtype().num() == py::dtype::num_of<float>();
  logits = single ? rows_of<float>(logits) : rows_of<double>(logits);
  const BeamResult result = single ? run<float>(input, logits, offsets, how, team)
                                   : run<double>(input, logits, offsets, how, team);

  const auto count = static_cast<py::ssize_t>(result.extensions.size());
  py::array_t<int64_t> parents(count);
  py::array_t<int64_t> options(count);
  py::array_t<double> scores(count);
  py::array_t<double> steps(count);
  py::array_t<bool> ended(count);
  py::array_t<bool> stuck(count);
  int64_t* parent_data = parents.mutable_data();
  int64_t* option_data = options.mutable_data();
  double* score_data = scores.mutable_data();
  double* step_data = steps.mutable_data();
  bool* ended_data = ended.mutable_data();
  bool* stuck_data = stuck.mutable_data();
  for (const Extension& extension : result.extensions) {
    *parent_data++ = extension.parent;
    *option_data++ = extension.option;
    *score_data++ = extension.score;
    *step_data++ = extension.step;
    *ended_data++ = extension.finished;
    *stuck_data++ = extension.stuck;
  }
  py::array_t<int64_t> ends(static_cast<py::ssize_t>(result.offsets.size()), result.offsets.data());
  return py::make_tuple(std::move(parents), std::move(options), std::move(scores), std::move(steps),
                        std::move(ended), std::move(stuck), std::move(ends));
}

}  // namespace

void register_beam(py::module_& module) {
  module.def("expand", &bind_expand, py::arg("chain_scores"), py::arg("option_logits"),
             py::arg("finished"), py::arg("beams"), py::arg("chains"), py::arg("min_prob"),
             py::arg("terminate"), py::arg("question_offsets"), py::arg("option_offsets"),
             py::arg("lengths"), py::arg("length_penalty"), py::arg("threads"), py::pos_only());
}

}  // namespace pytrace::bindings
