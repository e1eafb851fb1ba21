#include "beam/beam.h"

#include <algorithm>

#include "arrays.h"
#include "calls.h"
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
  const ReleasedGil released;
  return expand(input, options, how, threads);
}

double number_of(py::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

PyObject* bind_expand(PyObject* const* arguments) {
  const py::handle chain_scores = arguments[0], option_logits = arguments[1],
                   finished = arguments[2], beams = arguments[3], chains = arguments[4],
                   terminate = arguments[6], question_offsets = arguments[7],
                   option_offsets = arguments[8], lengths = arguments[9], threads = arguments[11];
  if (PyType_Check(arguments[12]) == 0 ||
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(arguments[12]), &PyTuple_Type) == 0) {
    throw py::type_error("the last argument must be a class of tuples");
  }
  BeamOptions how;
  how.beams = whole_number(beams, "beams", 1);
  how.chains = whole_number(chains, "chains", 1);
  how.min_prob = number_of(arguments[5]);
  how.terminate = terminate.is_none() ? -1 : whole_number(terminate, "terminate", 0);
  how.length_penalty = number_of(arguments[10]);
  const int team = thread_count(threads);

  BeamInput input;
  const py::array score_array = rows_of<double>(real_array(chain_scores, "chain_scores"));
  require_rank(score_array, 1, "chain_scores");
  input.scores = span_view<double>(score_array);
  const py::array finished_array = finished_of(finished);
  // As bytes: a view of other data may hold more than 0 and 1.
  input.finished = span_view<uint8_t>(finished_array);
  const int64_t one_question[2] = {0, input.scores.size};
  input.question_offsets = {one_question, 2};
  py::object owners[3];
  if (!question_offsets.is_none()) {
    const py::array values = int64_vector(question_offsets, "question_offsets");
    input.question_offsets = span_view<int64_t>(values);
    owners[0] = values;
  }
  if (!lengths.is_none()) {
    const py::array values = int64_vector(lengths, "lengths");
    input.lengths = span_view<int64_t>(values);
    owners[1] = values;
  }

  py::array logits = real_array(option_logits, "option_logits");
  const bool ragged = !option_offsets.is_none();
  if (logits.ndim() != (ragged ? 1 : 2)) {
    throw py::value_error("option_logits has " + std::to_string(logits.ndim()) +
                          " dimensions; it must have " +
                          (ragged ? "1 with option_offsets" : "2 without option_offsets"));
  }
  Span<const int64_t> offsets;
  if (ragged) {
    const py::array values = int64_vector(option_offsets, "option_offsets");
    offsets = span_view<int64_t>(values);
    owners[2] = values;
    if (offsets.size == 0) fail("option_offsets is empty; it needs at least the value 0");
  }
  const bool single = logits.dtype().num() == py::dtype::num_of<float>();
  logits = single ? rows_of<float>(logits) : rows_of<double>(logits);
  const BeamResult result = single ? run<float>(input, logits, offsets, how, team)
                                   : run<double>(input, logits, offsets, how, team);

  const auto count = static_cast<py::ssize_t>(result.extensions.size());
  py::array parents = new_array<int64_t>({count});
  py::array options = new_array<int64_t>({count});
  py::array scores = new_array<double>({count});
  py::array steps = new_array<double>({count});
  py::array ended = new_array<bool>({count});
  py::array stuck = new_array<bool>({count});
  int64_t* parent_data = values_of<int64_t>(parents);
  int64_t* option_data = values_of<int64_t>(options);
  double* score_data = values_of<double>(scores);
  double* step_data = values_of<double>(steps);
  bool* ended_data = values_of<bool>(ended);
  bool* stuck_data = values_of<bool>(stuck);
  for (const Extension& extension : result.extensions) {
    *parent_data++ = extension.parent;
    *option_data++ = extension.option;
    *score_data++ = extension.score;
    *step_data++ = extension.step;
    *ended_data++ = extension.finished;
    *stuck_data++ = extension.stuck;
  }
  py::array ends = new_array<int64_t>({static_cast<py::ssize_t>(result.offsets.size())});
  std::copy(result.offsets.begin(), result.offsets.end(), values_of<int64_t>(ends));
  py::array results[] = {std::move(parents), std::move(options), std::move(scores),
                         std::move(steps),   std::move(ended),   std::move(stuck),
                         std::move(ends)};
  // Of the class that the caller names, a NamedTuple: filled here, because its own constructor
  // costs as much as the step.
  auto* type = reinterpret_cast<PyTypeObject*>(arguments[12]);
  PyObject* tuple = type->tp_alloc(type, 7);
  if (tuple == nullptr) throw py::error_already_set();
  for (Py_ssize_t i = 0; i < 7; ++i) PyTuple_SET_ITEM(tuple, i, results[i].release().ptr());
  return tuple;
}

PyObject* bind_log_sum_exp(PyObject* const* arguments) {
  const py::array logits = rows_of<float>(real_array(arguments[0], "logits"));
  require_rank(logits, 1, "logits");
  return PyFloat_FromDouble(log_sum_exp(span_view<float>(logits)));
}

}  // namespace

void register_beam(py::module_& module) {
  define_fast<&bind_expand, 13>(
      module, "expand",
      "expand(chain_scores, option_logits, finished, beams, chains, min_prob, terminate, "
      "question_offsets, option_offsets, lengths, length_penalty, threads, result, /)\n--\n\n");
  define_fast<&bind_log_sum_exp, 1>(module, "log_sum_exp", "log_sum_exp(logits, /)\n--\n\n");
}

}  // namespace pytrace::bindings
