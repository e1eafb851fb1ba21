#include <utility>

#include "arrays.h"
#include "calls.h"
#include "late_interaction/max_sim.h"
#include "module.h"
#include "topk_arguments.h"

namespace pytrace::bindings {
namespace {

PyObject* bind_max_sim(PyObject* const* arguments) {
  const py::handle candidates = arguments[4], k = arguments[5];
  const int64_t count = k.is_none() ? 0 : whole_number(k, "k", 0);
  const int team = thread_count(arguments[7]);
  py::array queries = real_array(arguments[0], "queries");
  require_rank(queries, 2, "queries");
  queries = rows_of<float>(queries);
  const ItemArrays documents = read_items(arguments[1], arguments[6], "documents");
  py::array query_offsets = new_array<int64_t>({2});
  if (py::handle(arguments[2]).is_none()) {  // all are one question's
    values_of<int64_t>(query_offsets)[0] = 0;
    values_of<int64_t>(query_offsets)[1] = queries.shape(0);
  } else {
    query_offsets = int64_vector(arguments[2], "query_offsets");
  }
  const py::array document_offsets = int64_vector(arguments[3], "document_offsets");
  MaxSimInput input;
  input.queries = matrix_view<float>(queries);
  input.documents = documents.view;
  input.query_offsets = span_view<int64_t>(query_offsets);
  input.document_offsets = span_view<int64_t>(document_offsets);
  py::object owner;
  if (!candidates.is_none()) {
    owner = read_ragged_indices(candidates, "candidates", query_offsets.size() - 1,
                                &input.candidates, &input.candidate_offsets);
  }
  check_max_sim(input);
  const int64_t questions = input.question_count();
  if (!k.is_none()) {
    require_room(count, questions);
    py::array scores = new_array<float>({questions, count});
    py::array indices = new_array<int64_t>({questions, count});
    float* const score_data = values_of<float>(scores);
    int64_t* const index_data = values_of<int64_t>(indices);
    {
      const ReleasedGil released;
      max_sim_top_k(input, count, team, score_data, index_data);
    }
    return py::make_tuple(scores, indices).release().ptr();
  }
  if (input.candidate_offsets.size == 0) require_room(input.document_count(), questions);
  py::array scores = candidates.is_none() ? new_array<float>({questions, input.document_count()})
                                          : new_array<float>({input.candidates.size});
  float* const data = values_of<float>(scores);
  {
    const ReleasedGil released;
    max_sim(input, team, data);
  }
  return scores.release().ptr();
}

}  // namespace

void register_late_interaction(py::module_& module) {
  define_fast<&bind_max_sim, 8>(module, "max_sim",
                                "max_sim(queries, documents, query_offsets, document_offsets, "
                                "candidates, k, scale, threads, /)\n--\n\n");
}

}  // namespace pytrace::bindings
