// What the searches of the processor and of cards read the same way: metric, scale, offsets, rows
// to exclude.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.h"
#include "topk/topk.h"

namespace pytrace::bindings {

inline Metric metric_of(py::handle object) {
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

// The factors of int8 items: one for all (a vector of one value) or one a row.
inline py::array scale_of(py::handle object, int64_t rows, const char* name = "items") {
  py::array scale = convert<float>(real_array(object, "scale"));
  if (scale.ndim() == 0) {
    scale = scale.attr("reshape")(1).cast<py::array>();
  } else if (scale.ndim() != 1 || scale.shape(0) != rows) {
    throw py::value_error("scale has " + std::to_string(scale.size()) + " values, but " + name +
                          " has " + std::to_string(rows) + " rows; give one number or one a row");
  }
  const auto* values = static_cast<const float*>(scale.data());
  for (int64_t i = 0; i < scale.size(); ++i) {
    if (!(values[i] > 0.0f && values[i] <= std::numeric_limits<float>::max())) {
      throw py::value_error("scale[" + std::to_string(i) + "] is " + std::to_string(values[i]) +
                            "; it must be above 0 and finite");
    }
  }
  return scale;
}

// Rows of items, and the arrays that own them: float16 and int8 where they lie if rows can be read
// there, other types as float32.
struct ItemArrays {
  Items view;
  py::array values;
  py::object scale;
};

inline ItemArrays read_items(py::handle items, py::handle scale, const char* name) {
  ItemArrays out;
  py::array array = real_array(items, name);
  require_rank(array, 2, name);
  const int number = array.dtype().num();
  if (number == kFloat16Number || number == kInt8Number) {
    out.view.type = number == kInt8Number ? ItemType::kInt8 : ItemType::kFloat16;
    if (!readable_rows(array)) {
      // The same type, contiguous, aligned and in this machine's byte order.
      array = py::module_::import("numpy").attr("require")(
          array, array.dtype().attr("newbyteorder")("="), "CA");
    }
  } else {
    array = rows_of<float>(array);
  }
  out.view.data = array.data();
  out.view.rows = array.shape(0);
  out.view.cols = array.shape(1);
  out.view.stride = array.strides(0) / array.itemsize();
  if (!scale.is_none()) {
    if (out.view.type != ItemType::kInt8) {
      throw py::value_error(std::string("scale is for int8 ") + name + ", but " + name + " holds " +
                            std::string(py::str(array.dtype())));
    }
    py::array factors = scale_of(scale, out.view.rows, name);
    if (factors.size() != out.view.rows) {
      const float all = *static_cast<const float*>(factors.data());
      factors = new_array<float>({out.view.rows});
      std::fill_n(values_of<float>(factors), out.view.rows, all);
    }
    out.view.scale = static_cast<const float*>(factors.data());
    out.scale = std::move(factors);
  }
  out.values = std::move(array);
  return out;
}

// Ragged indices, a list a query, as (indices, offsets), as a matrix with a row a query, or as a
// sequence of vectors. Returns what owns the two spans.
inline py::tuple read_ragged_indices(py::handle object, const std::string& name, int64_t queries,
                                     Span<const int64_t>* indices_view,
                                     Span<const int64_t>* offsets_view) {
  const auto use = [&](const py::array& indices, const py::array& offsets) {
    *indices_view = span_view<int64_t>(indices);
    *offsets_view = span_view<int64_t>(offsets);
    if (offsets_view->size == 0) {
      fail(name + "'s offsets are empty; they need at least the value 0");
    }
    return py::make_tuple(indices, offsets);
  };
  if (py::isinstance<py::tuple>(object)) {
    const auto pair = py::reinterpret_borrow<py::tuple>(object);
    if (pair.size() != 2) {
      throw py::value_error(name + " is a tuple of " + std::to_string(pair.size()) +
                            "; it must be (indices, offsets)");
    }
    return use(int64_vector(pair[0], (name + "'s indices").c_str()),
               int64_vector(pair[1], (name + "'s offsets").c_str()));
  }
  py::array offsets = new_array<int64_t>({queries + 1});
  int64_t* ends = values_of<int64_t>(offsets);
  ends[0] = 0;
  const auto require_count = [&](int64_t count) {
    if (count != queries) {
      throw py::value_error(name + " has " + std::to_string(count) + " rows, but there are " +
                            std::to_string(queries) + " queries");
    }
  };
  if (py::isinstance<py::array>(object)) {
    const auto matrix = py::reinterpret_borrow<py::array>(object);
    require_rank(matrix, 2, name.c_str());
    require_count(matrix.shape(0));
    for (int64_t q = 0; q < queries; ++q) ends[q + 1] = (q + 1) * matrix.shape(1);
    return use(int64_vector(matrix.attr("reshape")(-1), name.c_str()), offsets);
  }
  if (!PySequence_Check(object.ptr()) || PyUnicode_Check(object.ptr())) {
    throw py::type_error(name + " must be a matrix, a sequence of vectors or (indices, offsets)");
  }
  const auto rows = py::reinterpret_borrow<py::sequence>(object);
  require_count(static_cast<int64_t>(rows.size()));
  std::vector<py::array> parts;
  for (int64_t q = 0; q < queries; ++q) {
    const std::string part = name + "[" + std::to_string(q) + "]";
    parts.push_back(int64_vector(py::object(rows[static_cast<size_t>(q)]), part.c_str()));
    ends[q + 1] = ends[q] + parts.back().size();
  }
  py::array indices = new_array<int64_t>({ends[queries]});
  for (int64_t q = 0; q < queries; ++q) {
    const Span<const int64_t> part = span_view<int64_t>(parts[static_cast<size_t>(q)]);
    std::copy(part.begin(), part.end(), values_of<int64_t>(indices) + ends[q]);
  }
  return use(indices, offsets);
}

// The arrays that a ragged input's spans view.
struct RaggedArrays {
  py::object owners[3];
};

// Reads offsets, query_offsets and exclude (None: there are none) for a search whose queries are
// known already.
inline RaggedArrays read_ragged(py::handle offsets, py::handle query_offsets, py::handle exclude,
                                TopKInput* input) {
  RaggedArrays arrays;
  if (!offsets.is_none()) {
    const py::array values = int64_vector(offsets, "offsets");
    input->item_offsets = span_view<int64_t>(values);
    arrays.owners[0] = values;
    if (input->item_offsets.size == 0) fail("offsets is empty; it needs at least the value 0");
  }
  if (!query_offsets.is_none()) {
    if (offsets.is_none()) throw py::value_error("query_offsets was given without offsets");
    const py::array values = int64_vector(query_offsets, "query_offsets");
    input->query_offsets = span_view<int64_t>(values);
    arrays.owners[1] = values;
    if (input->query_offsets.size == 0)
      fail("query_offsets is empty; it needs at least the value 0");
  }
  if (!exclude.is_none()) {
    arrays.owners[2] = read_ragged_indices(exclude, "exclude", input->queries.rows,
                                           &input->excluded, &input->exclude_offsets);
  }
  return arrays;
}

inline void require_room(int64_t k, int64_t queries) {
  if (k > 0 && queries > std::numeric_limits<int64_t>::max() / 8 / k) {
    throw py::value_error("k is " + std::to_string(k) + " for " + std::to_string(queries) +
                          " queries; that many results have no room in memory");
  }
}

}  // namespace pytrace::bindings
