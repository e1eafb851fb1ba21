#include "topk/topk.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "arrays.h"
#include "calls.h"
#include "module.h"
#include "topk/topk_rows.h"
#include "topk_arguments.h"

namespace pytrace::bindings {
namespace {

// Arrays that must outlive a call, and the views of them.
struct Operands {
  py::object owners[3];
  Matrix<const float> queries;
  Items items;
  bool single = false;  // the query was a vector
};

Operands operands_of(py::handle queries, py::handle items, py::handle scale) {
  Operands out;
  py::array query_array = real_array(queries, "queries");
  out.single = query_array.ndim() == 1;
  if (!out.single) require_rank(query_array, 2, "queries");
  query_array = rows_of<float>(query_array);
  out.queries = matrix_view<float>(query_array);

  ItemArrays item_arrays = read_items(items, scale, "items");
  out.items = item_arrays.view;
  out.owners[0] = std::move(query_array);
  out.owners[1] = std::move(item_arrays.values);
  out.owners[2] = std::move(item_arrays.scale);
  return out;
}

// The results' shape: without its first axis where the query was a vector.
template <typename T>
py::array results_for(const Operands& operands, int64_t columns) {
  if (operands.single) return new_array<T>({columns});
  return new_array<T>({operands.queries.rows, columns});
}

PyObject* pair_of(py::array first, py::array second) {
  PyObject* pair = PyTuple_New(2);
  if (pair == nullptr) throw py::error_already_set();
  PyTuple_SET_ITEM(pair, 0, first.release().ptr());
  PyTuple_SET_ITEM(pair, 1, second.release().ptr());
  return pair;
}

PyObject* bind_top_k(PyObject* const* arguments) {
  const py::handle queries = arguments[0], items = arguments[1], k = arguments[2],
                   metric = arguments[3], offsets = arguments[4], query_offsets = arguments[5],
                   exclude = arguments[6], scale = arguments[7], threads = arguments[8];
  const Metric kind = metric_of(metric);
  const int64_t count = whole_number(k, "k", 0);
  const int team = thread_count(threads);
  const Operands operands = operands_of(queries, items, scale);
  TopKInput input;
  input.queries = operands.queries;
  input.items = operands.items;
  const RaggedArrays owners = read_ragged(offsets, query_offsets, exclude, &input);
  require_room(count, input.queries.rows);
  py::array scores = results_for<float>(operands, count);
  py::array indices = results_for<int64_t>(operands, count);
  float* score_data = values_of<float>(scores);
  int64_t* index_data = values_of<int64_t>(indices);
  {
    const ReleasedGil released;
    top_k(input, count, kind, team, score_data, index_data);
  }
  return pair_of(std::move(scores), std::move(indices));
}

py::array bind_similarity(py::handle queries, py::handle items, py::handle metric, py::handle scale,
                          py::handle threads) {
  const Metric kind = metric_of(metric);
  const int team = thread_count(threads);
  const Operands operands = operands_of(queries, items, scale);
  py::array out = results_for<float>(operands, operands.items.rows);
  float* data = values_of<float>(out);
  {
    const ReleasedGil released;
    similarity(operands.queries, operands.items, kind, team, data);
  }
  return out;
}

py::array bind_normalize(py::handle vectors, py::handle threads) {
  const int team = thread_count(threads);
  py::array array = real_array(vectors, "vectors");
  if (array.ndim() != 1) require_rank(array, 2, "vectors");
  array = rows_of<float>(array);
  const Matrix<const float> rows = matrix_view<float>(array);
  py::array out =
      array.ndim() == 1 ? new_array<float>({rows.cols}) : new_array<float>({rows.rows, rows.cols});
  float* data = values_of<float>(out);
  {
    const ReleasedGil released;
    normalize(rows, team, data);
  }
  return out;
}

PyObject* bind_scaled_rows(PyObject* const* arguments) {
  const std::vector<py::tuple> given = tuples_of(arguments[0], "parts", 2);
  const py::array owners = int64_vector(arguments[1], "owners");
  const py::array rows = int64_vector(arguments[2], "rows");
  const int64_t dimension = whole_number(arguments[3], "dimension", 0);
  const int threads = thread_count(arguments[4]);
  std::vector<py::array> arrays;
  std::vector<ScaledItems> parts;
  for (const py::tuple& part : given) {
    const auto first = arrays.size();
    const py::array items = real_array(part[0], "items");
    require_rank(items, 2, "items");
    arrays.push_back(rows_of<int8_t>(items));
    arrays.push_back(exact_vector<float>(part[1], "scales"));
    parts.push_back({matrix_view<int8_t>(arrays[first]), span_view<float>(arrays[first + 1])});
  }
  py::array out = new_array<float>({rows.size(), dimension});
  const Matrix<float> filled{values_of<float>(out), rows.size(), dimension, dimension};
  {
    const ReleasedGil released;
    scaled_rows(parts, span_view<int64_t>(owners), span_view<int64_t>(rows), filled, threads);
  }
  return out.release().ptr();
}

}  // namespace

void register_topk(py::module_& module) {
  define_fast<&bind_scaled_rows, 5>(
      module, "scaled_rows", "scaled_rows(parts, owners, rows, dimension, threads, /)\n--\n\n");
  define_fast<&bind_top_k, 9>(module, "top_k",
                              "top_k(queries, items, k, metric, offsets, query_offsets, exclude, "
                              "scale, threads, /)\n--\n\n");
  module.def("similarity", &bind_similarity, py::arg("queries"), py::arg("items"),
             py::arg("metric"), py::arg("scale"), py::arg("threads"), py::pos_only());
  module.def("normalize", &bind_normalize, py::arg("vectors"), py::arg("threads"), py::pos_only());
}

}  // namespace pytrace::bindings
