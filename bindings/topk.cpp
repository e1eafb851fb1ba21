#include "topk.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

Metric metric_of(py::handle object) {
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (text == nullptr) PyErr_Clear();
    const std::string_view name =
        text == nullptr ? std::string_view{} : std::string_view{text, size_t(size)};
    if (name == "ip") return Metric::kInnerProduct;
    if (name == "cosine") return Metric::kCosine;
    if (name == "l2") return Metric::kEuclidean;
  }
  throw py::value_error("metric is " + std::string(py::repr(object)) +
                        "; it must be 'ip', 'cosine' or 'l2'");
}

// Arrays that must outlive a call, and the views of them.
struct Operands {
  py::object owners[3];
  Matrix<const float> queries;
  Items items;
  bool single = false;  // the query was a vector
};

py::array scale_of(py::handle object, int64_t rows) {
  py::array scale = convert<float>(real_array(object, "scale"));
  if (scale.ndim() == 0) {
    const float value = *static_cast<const float*>(scale.data());
    py::array filled = new_array<float>({rows});
    std::fill_n(values_of<float>(filled), rows, value);
    scale = filled;
  }
  if (scale.ndim() != 1 || scale.shape(0) != rows) {
    throw py::value_error("scale has " + std::to_string(scale.size()) + " values, but items has " +
                          std::to_string(rows) + " rows; give one number or one a row");
  }
  const auto* values = static_cast<const float*>(scale.data());
  for (int64_t i = 0; i < rows; ++i) {
    if (!(values[i] > 0.0f && values[i] <= std::numeric_limits<float>::max())) {
      throw py::value_error("scale[" + std::to_string(i) + "] is " + std::to_string(values[i]) +
                            "; it must be above 0 and finite");
    }
  }
  return scale;
}

Operands operands_of(py::handle queries, py::handle items, py::handle scale) {
  Operands out;
  py::array query_array = real_array(queries, "queries");
  out.single = query_array.ndim() == 1;
  if (!out.single) require_rank(query_array, 2, "queries");
  query_array = rows_of<float>(query_array);
  out.queries = matrix_view<float>(query_array);

  py::array item_array = real_array(items, "items");
  require_rank(item_array, 2, "items");
  const int number = item_array.dtype().num();
  if (number == kFloat16Number || number == kInt8Number) {
    out.items.type = number == kInt8Number ? ItemType::kInt8 : ItemType::kFloat16;
    if (!readable_rows(item_array)) {
      // The same type, contiguous, aligned and in this machine's byte order.
      item_array = py::module_::import("numpy").attr("require")(
          item_array, item_array.dtype().attr("newbyteorder")("="), "CA");
    }
  } else {
    item_array = rows_of<float>(item_array);
  }
  out.items.data = item_array.data();
  out.items.rows = item_array.shape(0);
  out.items.cols = item_array.shape(1);
  out.items.stride = item_array.strides(0) / item_array.itemsize();
  if (!scale.is_none()) {
    if (out.items.type != ItemType::kInt8) {
      throw py::value_error("scale is for int8 items, but items holds " +
                            std::string(py::str(item_array.dtype())));
    }
    const py::array factors = scale_of(scale, out.items.rows);
    out.items.scale = static_cast<const float*>(factors.data());
    out.owners[2] = factors;
  }
  out.owners[0] = std::move(query_array);
  out.owners[1] = std::move(item_array);
  return out;
}

// The results' shape: without its first axis where the query was a vector.
template <typename T>
py::array results_for(const Operands& operands, int64_t columns) {
  if (operands.single) return new_array<T>({columns});
  return new_array<T>({operands.queries.rows, columns});
}

// exclude as (indices, offsets), as a matrix with a row a query, or as a sequence of vectors.
// Returns what owns the two spans.
py::tuple read_excluded(py::handle object, int64_t queries, TopKInput* input) {
  const auto use = [input](const py::array& indices, const py::array& offsets) {
    input->excluded = span_view<int64_t>(indices);
    input->exclude_offsets = span_view<int64_t>(offsets);
    if (input->exclude_offsets.size == 0) {
      fail("exclude's offsets are empty; they need at least the value 0");
    }
    return py::make_tuple(indices, offsets);
  };
  if (py::isinstance<py::tuple>(object)) {
    const auto pair = py::reinterpret_borrow<py::tuple>(object);
    if (pair.size() != 2) {
      throw py::value_error("exclude is a tuple of " + std::to_string(pair.size()) +
                            "; it must be (indices, offsets)");
    }
    return use(int64_vector(pair[0], "exclude's indices"),
               int64_vector(pair[1], "exclude's offsets"));
  }
  py::array offsets = new_array<int64_t>({queries + 1});
  int64_t* ends = values_of<int64_t>(offsets);
  ends[0] = 0;
  const auto require_count = [queries](int64_t count) {
    if (count != queries) {
      throw py::value_error("exclude has " + std::to_string(count) + " rows, but there are " +
                            std::to_string(queries) + " queries");
    }
  };
  if (py::isinstance<py::array>(object)) {
    const auto matrix = py::reinterpret_borrow<py::array>(object);
    require_rank(matrix, 2, "exclude");
    require_count(matrix.shape(0));
    for (int64_t q = 0; q < queries; ++q) ends[q + 1] = (q + 1) * matrix.shape(1);
    return use(int64_vector(matrix.attr("reshape")(-1), "exclude"), offsets);
  }
  if (!PySequence_Check(object.ptr()) || PyUnicode_Check(object.ptr())) {
    throw py::type_error("exclude must be a matrix, a sequence of vectors or (indices, offsets)");
  }
  const auto rows = py::reinterpret_borrow<py::sequence>(object);
  require_count(static_cast<int64_t>(rows.size()));
  std::vector<py::array> parts;
  for (int64_t q = 0; q < queries; ++q) {
    const std::string name = "exclude[" + std::to_string(q) + "]";
    parts.push_back(int64_vector(py::object(rows[static_cast<size_t>(q)]), name.c_str()));
    ends[q + 1] = ends[q] + parts.back().size();
  }
  py::array indices = new_array<int64_t>({ends[queries]});
  for (int64_t q = 0; q < queries; ++q) {
    const Span<const int64_t> part = span_view<int64_t>(parts[static_cast<size_t>(q)]);
    std::copy(part.begin(), part.end(), values_of<int64_t>(indices) + ends[q]);
  }
  return use(indices, offsets);
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
  py::object owners[3];
  if (!offsets.is_none()) {
    const py::array values = int64_vector(offsets, "offsets");
    input.item_offsets = span_view<int64_t>(values);
    owners[0] = values;
    if (input.item_offsets.size == 0) fail("offsets is empty; it needs at least the value 0");
  }
  if (!query_offsets.is_none()) {
    if (offsets.is_none()) throw py::value_error("query_offsets was given without offsets");
    const py::array values = int64_vector(query_offsets, "query_offsets");
    input.query_offsets = span_view<int64_t>(values);
    owners[1] = values;
    if (input.query_offsets.size == 0)
      fail("query_offsets is empty; it needs at least the value 0");
  }
  if (!exclude.is_none()) owners[2] = read_excluded(exclude, input.queries.rows, &input);
  if (count > 0 && input.queries.rows > std::numeric_limits<int64_t>::max() / 8 / count) {
    throw py::value_error("k is " + std::to_string(count) + " for " +
                          std::to_string(input.queries.rows) +
                          " queries; that many results have no room in memory");
  }
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

}  // namespace

void register_topk(py::module_& module) {
  define_fast<&bind_top_k, 9>(module, "top_k",
                              "top_k(queries, items, k, metric, offsets, query_offsets, exclude, "
                              "scale, threads, /)\n--\n\n");
  module.def("similarity", &bind_similarity, py::arg("queries"), py::arg("items"),
             py::arg("metric"), py::arg("scale"), py::arg("threads"), py::pos_only());
  module.def("normalize", &bind_normalize, py::arg("vectors"), py::arg("threads"), py::pos_only());
}

}  // namespace pytrace::bindings
