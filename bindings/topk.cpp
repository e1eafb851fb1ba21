#include "topk.h"

#include <limits>
#include <string_view>

#include "arrays.h"
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
  py::array query_array;
  py::array item_array;
  py::array scale_array;
  Matrix<const float> queries;
  Items items;
  bool single = false;  // the query was a vector
};

py::array scale_of(py::handle object, int64_t rows) {
  py::array scale = convert<float>(real_array(object, "scale"));
  if (scale.ndim() == 0) {
    const float value = *static_cast<const float*>(scale.data());
    py::array_t<float> filled(rows);
    for (int64_t i = 0; i < rows; ++i) filled.mutable_data()[i] = value;
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
  out.query_array = real_array(queries, "queries");
  out.single = out.query_array.ndim() == 1;
  if (!out.single) require_rank(out.query_array, 2, "queries");
  out.query_array = rows_of<float>(out.query_array);
  out.queries = matrix_view<float>(out.query_array);

  out.item_array = real_array(items, "items");
  require_rank(out.item_array, 2, "items");
  const int number = out.item_array.dtype().num();
  if (number == kFloat16Number || number == kInt8Number) {
    out.items.type = number == kInt8Number ? ItemType::kInt8 : ItemType::kFloat16;
    if (!readable_rows(out.item_array)) {
      // The same type, contiguous and in this machine's byte order.
      out.item_array = py::module_::import("numpy").attr("ascontiguousarray")(
          out.item_array, out.item_array.dtype().attr("newbyteorder")("="));
    }
  } else {
    out.item_array = rows_of<float>(out.item_array);
  }
  out.items.data = out.item_array.data();
  out.items.rows = out.item_array.shape(0);
  out.items.cols = out.item_array.shape(1);
  out.items.stride = out.item_array.strides(0) / out.item_array.itemsize();
  if (!scale.is_none()) {
    if (out.items.type != ItemType::kInt8) {
      throw py::value_error("scale is for int8 items, but items holds " +
                            std::string(py::str(out.item_array.dtype())));
    }
    out.scale_array = scale_of(scale, out.items.rows);
    out.items.scale = static_cast<const float*>(out.scale_array.data());
  }
  return out;
}

// exclude as (indices, offsets), as a matrix with a row a query, or as a sequence of vectors.
struct Excluded {
  py::array indices;
  py::array offsets;
};

Excluded excluded_of(py::handle object, int64_t queries) {
  Excluded out;
  if (py::isinstance<py::tuple>(object)) {
    const auto pair = py::reinterpret_borrow<py::tuple>(object);
    if (pair.size() != 2) {
      throw py::value_error("exclude is a tuple of " + std::to_string(pair.size()) +
                            "; it must be (indices, offsets)");
    }
    out.indices = int64_vector(pair[0], "exclude's indices");
    out.offsets = int64_vector(pair[1], "exclude's offsets");
    return out;
  }
  py::array_t<int64_t> offsets(queries + 1);
  int64_t* ends = offsets.mutable_data();
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
    out.indices = int64_vector(matrix.attr("reshape")(-1), "exclude");
    for (int64_t q = 0; q < queries; ++q) ends[q + 1] = (q + 1) * matrix.shape(1);
  } else {
    if (!PySequence_Check(object.ptr()) || PyUnicode_Check(object.ptr())) {
      throw py::type_error("exclude must be a matrix, a sequence of vectors or (indices, offsets)");
    }
    const auto rows = py::reinterpret_borrow<py::sequence>(object);
    require_count(static_cast<int64_t>(rows.size()));
    std::vector<py::array> parts;
    for (int64_t q = 0; q < queries; ++q) {
      const std::string name = "exclude[" + std::to_string(q) + "]";
      parts.push_back(int64_vector(py::object(rows[size_t(q)]), name.c_str()));
      ends[q + 1] = ends[q] + parts.back().size();
    }
    py::array_t<int64_t> indices(ends[queries]);
    for (int64_t q = 0; q < queries; ++q) {
      const Span<const int64_t> part = span_view<int64_t>(parts[size_t(q)]);
      std::copy(part.begin(), part.end(), indices.mutable_data() + ends[q]);
    }
    out.indices = indices;
  }
  out.offsets = offsets;
  return out;
}

py::tuple bind_top_k(py::handle queries, py::handle items, py::handle k, py::handle metric,
                     py::handle offsets, py::handle query_offsets, py::handle exclude,
                     py::handle scale, py::handle threads) {
  const Metric kind = metric_of(metric);
  const int64_t count = whole_number(k, "k", 0);
  const int team = thread_count(threads);
  const Operands operands = operands_of(queries, items, scale);
  TopKInput input;
  input.queries = operands.queries;
  input.items = operands.items;
  py::array item_offsets;
  py::array question_offsets;
  Excluded excluded;
  if (!offsets.is_none()) {
    item_offsets = int64_vector(offsets, "offsets");
    input.item_offsets = span_view<int64_t>(item_offsets);
    if (input.item_offsets.size == 0) fail("offsets is empty; it needs at least the value 0");
  }
  if (!query_offsets.is_none()) {
    if (offsets.is_none()) throw py::value_error("query_offsets was given without offsets");
    question_offsets = int64_vector(query_offsets, "query_offsets");
    input.query_offsets = span_view<int64_t>(question_offsets);
    if (input.query_offsets.size == 0)
      fail("query_offsets is empty; it needs at least the value 0");
  }
  if (!exclude.is_none()) {
    excluded = excluded_of(exclude, input.queries.rows);
    input.excluded = span_view<int64_t>(excluded.indices);
    input.exclude_offsets = span_view<int64_t>(excluded.offsets);
    if (input.exclude_offsets.size == 0)
      fail("exclude's offsets are empty; they need at least the value 0");
  }
  if (count > 0 && input.queries.rows > std::numeric_limits<int64_t>::max() / 8 / count) {
    throw py::value_error("k is " + std::to_string(count) + " for " +
                          std::to_string(input.queries.rows) +
                          " queries; that many results have no room in memory");
  }
  std::vector<py::ssize_t> shape{input.queries.rows, count};
  if (operands.single) shape.erase(shape.begin());
  py::array_t<float> scores(shape);
  py::array_t<int64_t> indices(shape);
  float* score_data = scores.mutable_data();
  int64_t* index_data = indices.mutable_data();
  {
    const py::gil_scoped_release release;
    top_k(input, count, kind, team, score_data, index_data);
  }
  return py::make_tuple(std::move(scores), std::move(indices));
}

py::array bind_similarity(py::handle queries, py::handle items, py::handle metric, py::handle scale,
                          py::handle threads) {
  const Metric kind = metric_of(metric);
  const int team = thread_count(threads);
  const Operands operands = operands_of(queries, items, scale);
  std::vector<py::ssize_t> shape{operands.queries.rows, operands.items.rows};
  if (operands.single) shape.erase(shape.begin());
  py::array_t<float> out(shape);
  float* data = out.mutable_data();
  {
    const py::gil_scoped_release release;
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
  py::array_t<float> out(std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()));
  float* data = out.mutable_data();
  {
    const py::gil_scoped_release release;
    normalize(rows, team, data);
  }
  return out;
}

}  // namespace

void register_topk(py::module_& module) {
  module.def("top_k", &bind_top_k, py::arg("queries"), py::arg("items"), py::arg("k"),
             py::arg("metric"), py::arg("offsets"), py::arg("query_offsets"), py::arg("exclude"),
             py::arg("scale"), py::arg("threads"), py::pos_only());
  module.def("similarity", &bind_similarity, py::arg("queries"), py::arg("items"),
             py::arg("metric"), py::arg("scale"), py::arg("threads"), py::pos_only());
  module.def("normalize", &bind_normalize, py::arg("vectors"), py::arg("threads"), py::pos_only());
}

}  // namespace pytrace::bindings
