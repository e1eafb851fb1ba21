#include "cuda/beam.h"

#include <vector>

#include "arrays.h"
#include "calls.h"
#include "cuda/mixed_arrays.h"
#include "cuda/module.h"

namespace pytrace::bindings {
namespace {

template <typename T>
void run(cuda::BeamStep<T>& step, const Operand& logits, ResultArrays& results) {
  const auto* data = static_cast<const T*>(logits.data);
  if (logits.rank() == 1) {
    step.options.flat = {data, logits.shape[0]};
  } else {
    step.options.matrix = {data, logits.shape[0], logits.shape[1], logits.strides[0]};
  }
  step.logits_on_card = logits.on_device;
  const int64_t questions = step.input.question_offsets.size - 1;
  const ReleasedGil released;
  const cuda::Borrowed context(results.device());
  cuda::expand<T>(*context, step, [&](int64_t count) {
    const py::gil_scoped_acquire acquired;
    cuda::ExtensionArrays arrays;
    arrays.parents = results.add<int64_t>(count);
    arrays.options = results.add<int64_t>(count);
    arrays.scores = results.add<double>(count);
    arrays.steps = results.add<double>(count);
    arrays.finished = results.add<bool>(count);
    arrays.stuck = results.add<bool>(count);
    arrays.offsets = results.add<int64_t>(questions + 1);
    arrays.on_card = results.on_card();
    return arrays;
  });
}

py::tuple expand(py::handle chain_scores, py::handle option_logits, py::handle finished,
                 py::handle beams, py::handle chains, double min_prob, py::handle terminate,
                 py::handle question_offsets, py::handle option_offsets, py::handle lengths,
                 double length_penalty, int asked) {
  BeamOptions how;
  how.beams = whole_number(beams, "beams", 1);
  how.chains = whole_number(chains, "chains", 1);
  how.min_prob = min_prob;
  how.terminate = terminate.is_none() ? -1 : whole_number(terminate, "terminate", 0);
  how.length_penalty = length_penalty;

  const Operand scores = rows_operand<double>(chain_scores, "chain_scores");
  require_rank(scores, 1);
  Operand ended = operand_of(finished, "finished");
  require_rank(ended, 1);
  if (ended.element != Element::kBool) {
    if (ended.size() > 0) {
      throw py::type_error("finished holds " + std::string(element_name(ended.element)) +
                           "; it must hold booleans");
    }
    ended = operand_of(py::array_t<bool>(0), "finished");
  }
  const bool ragged = !option_offsets.is_none();
  Operand logits;
  if (on_card(option_logits)) {
    logits = operand_of(option_logits, "option_logits");
    if (logits.element != Element::kFloat32 && logits.element != Element::kFloat64) {
      throw py::type_error(std::string("option_logits on a card must hold float32 or float64, ") +
                           "not " + element_name(logits.element));
    }
  }
  const py::array given =
      logits.on_device ? py::array() : real_array(option_logits, "option_logits");
  const int64_t rank = logits.on_device ? logits.rank() : given.ndim();
  if (rank != (ragged ? 1 : 2)) {
    throw py::value_error("option_logits has " + std::to_string(rank) +
                          " dimensions; it must have " +
                          (ragged ? "1 with option_offsets" : "2 without option_offsets"));
  }
  if (!logits.on_device) {
    const bool single = given.dtype().num() == py::dtype::num_of<float>();
    logits = operand_of(single ? rows_of<float>(given) : rows_of<double>(given), "option_logits");
  }

  BeamInput input;
  input.scores = {static_cast<const double*>(scores.data), scores.shape[0]};
  input.finished = {static_cast<const uint8_t*>(ended.data), ended.shape[0]};
  std::vector<int64_t> questions{0, scores.shape[0]};
  if (!question_offsets.is_none()) questions = whole_vector(question_offsets, "question_offsets");
  input.question_offsets = span(questions);
  std::vector<int64_t> taken;
  if (!lengths.is_none()) taken = whole_vector(lengths, "lengths");
  input.lengths = span(taken);
  std::vector<int64_t> rows;
  if (ragged) {
    rows = whole_vector(option_offsets, "option_offsets");
    if (rows.empty()) fail("option_offsets is empty; it needs at least the value 0");
  }

  ResultArrays results({&scores, &ended, &logits}, asked);
  if (logits.element == Element::kFloat32) {
    cuda::BeamStep<float> step{input, {}, how, scores.on_device, ended.on_device, false};
    step.options.offsets = span(rows);
    run(step, logits, results);
  } else {
    cuda::BeamStep<double> step{input, {}, how, scores.on_device, ended.on_device, false};
    step.options.offsets = span(rows);
    run(step, logits, results);
  }
  return results.tuple();
}

}  // namespace

void register_cuda_beam(py::module_& module) {
  module.def("expand", &expand, py::arg("chain_scores"), py::arg("option_logits"),
             py::arg("finished"), py::arg("beams"), py::arg("chains"), py::arg("min_prob"),
             py::arg("terminate"), py::arg("question_offsets"), py::arg("option_offsets"),
             py::arg("lengths"), py::arg("length_penalty"), py::arg("device"), py::pos_only());
}

}  // namespace pytrace::bindings
