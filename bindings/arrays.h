// From Python objects to views: arrays are taken as they are where a kernel can read them, else
// converted once.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "common/views.h"

namespace pytrace::bindings {

namespace py = pybind11;

// NumPy's type numbers, which its ABI fixes.
inline constexpr int kBoolNumber = 0;
inline constexpr int kInt8Number = 1;
inline constexpr int kFloat16Number = 23;

// The object as an array of real numbers (booleans included) with `rank` dimensions (any of them if
// 0).
inline py::array real_array(py::handle object, const char* name) {
  const bool given = py::isinstance<py::array>(object);
  py::array array = given ? py::reinterpret_borrow<py::array>(object) : py::array::ensure(object);
  if (!array) {
    PyErr_Clear();
    throw py::value_error(std::string(name) +
                          " is no array of numbers: its rows may differ in length");
  }
  const char kind = array.dtype().kind();
  if (kind != 'f' && kind != 'i' && kind != 'u' && kind != 'b') {
    // An empty list has no type of its own.
    if (array.size() != 0 || kind != 'O') {
      throw py::type_error(std::string(name) + " holds " + std::string(py::str(array.dtype())) +
                           "; it must hold real numbers");
    }
  }
  return array;
}

inline void require_rank(const py::array& array, int rank, const char* name) {
  if (array.ndim() != rank) {
    throw py::value_error(std::string(name) + " has " + std::to_string(array.ndim()) +
                          " dimensions; it must have " + std::to_string(rank));
  }
}

// Whether a kernel can read the rows in place: native byte order, aligned, each row contiguous.
inline bool readable_rows(const py::array& array) {
  const py::ssize_t size = array.itemsize();
  const auto* raw = py::detail::array_proxy(array.ptr());
  if ((raw->flags & py::detail::npy_api::NPY_ARRAY_ALIGNED_) == 0) return false;
  const char order = array.dtype().byteorder();
  if (order != '=' && order != '|') return false;
  const py::ssize_t last = array.ndim() - 1;
  if (array.shape(last) > 1 && array.strides(last) != size) return false;
  return last == 0 || array.strides(0) % size == 0;
}

// A conversion; NumPy's own errors (a value that does not fit, no memory) pass through.
template <typename T>
py::array convert(const py::array& array) {
  constexpr int kFlags =
      py::array::c_style | py::array::forcecast | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  return py::array_t<T, kFlags>(py::reinterpret_borrow<py::object>(array));
}

// An array with contiguous rows of T, copied only if it is not one already.
template <typename T>
py::array rows_of(const py::array& array) {
  if (array.dtype().num() == py::dtype::num_of<T>() && array.ndim() > 0 && readable_rows(array))
    return array;
  return convert<T>(array);
}

// A new contiguous array of T, its values not set. (py::array's own constructors work out strides
// first, and its default constructor makes an array too: hold arrays that may not come in a
// py::object.)
template <typename T>
py::array new_array(std::initializer_list<py::ssize_t> shape) {
  const auto& numpy = py::detail::npy_api::get();
  auto array = py::reinterpret_steal<py::array>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, py::dtype::of<T>().release().ptr(), static_cast<int>(shape.size()),
      shape.begin(), nullptr, nullptr, 0, nullptr));
  if (!array) throw py::error_already_set();
  return array;
}

template <typename T>
T* values_of(py::array& array) {
  return static_cast<T*>(array.mutable_data());
}

// The view of a matrix, or of a vector as a matrix of one row.
template <typename T>
Matrix<const T> matrix_view(const py::array& array) {
  Matrix<const T> view;
  view.data = static_cast<const T*>(array.data());
  view.rows = array.ndim() == 2 ? array.shape(0) : 1;
  view.cols = array.shape(array.ndim() - 1);
  view.stride =
      array.ndim() == 2 ? array.strides(0) / static_cast<py::ssize_t>(sizeof(T)) : view.cols;
  return view;
}

// Whole numbers as contiguous int64, always a copy: offsets are checked before they are used, and
// another thread must not be able to change them in between.
inline py::array int64_vector(py::handle object, const char* name) {
  const py::array array = real_array(object, name);
  require_rank(array, 1, name);
  const char kind = array.dtype().kind();
  if (array.size() > 0 && kind != 'i' && kind != 'u') {
    throw py::type_error(std::string(name) + " holds " + std::string(py::str(array.dtype())) +
                         "; it must hold whole numbers");
  }
  py::array converted = convert<int64_t>(array);
  if (converted.ptr() != array.ptr()) return converted;
  py::array copy = new_array<int64_t>({converted.size()});
  std::memcpy(values_of<int64_t>(copy), converted.data(), static_cast<size_t>(converted.nbytes()));
  return copy;
}

template <typename T>
Span<const T> span_view(const py::array& array) {
  return {static_cast<const T*>(array.data()), array.size()};
}

// Whole numbers where they are, for they may be mapped from a file and are checked as they are
// read; converted if they are of another type.
template <typename T>
py::array whole_numbers(py::handle object, const char* name) {
  const py::array array = real_array(object, name);
  require_rank(array, 1, name);
  const char kind = array.dtype().kind();
  if (array.size() > 0 && kind != 'i' && kind != 'u') {
    throw py::type_error(std::string(name) + " holds " + std::string(py::str(array.dtype())) +
                         "; it must hold whole numbers");
  }
  return rows_of<T>(array);
}

// A vector of exactly T, read where it lies: it may be mapped from a file, and is never converted
// as a whole.
template <typename T>
py::array exact_vector(py::handle object, const char* name) {
  const py::array array = real_array(object, name);
  require_rank(array, 1, name);
  if (array.dtype().num() != py::dtype::num_of<T>()) {
    throw py::type_error(std::string(name) + " holds " + std::string(py::str(array.dtype())) +
                         "; it must hold " + std::string(py::str(py::dtype::of<T>())));
  }
  return rows_of<T>(array);
}

// A new reference to a copy of the values.
template <typename T>
PyObject* array_of(const std::vector<T>& values) {
  py::array array = new_array<T>({static_cast<py::ssize_t>(values.size())});
  std::copy(values.begin(), values.end(), values_of<T>(array));
  return array.release().ptr();
}

// A sequence of tuples of `size` each.
inline std::vector<py::tuple> tuples_of(py::handle object, const char* name, size_t size) {
  std::vector<py::tuple> tuples;
  for (const py::handle item : py::reinterpret_borrow<py::object>(object)) {
    if (!py::isinstance<py::tuple>(item) || py::len(item) != size) {
      throw py::type_error(std::string(name) + " must hold tuples of " + std::to_string(size));
    }
    tuples.push_back(py::reinterpret_borrow<py::tuple>(item));
  }
  return tuples;
}

// A whole number of at least `least`; True and 3.0 are refused as Python itself would.
inline int64_t whole_number(py::handle object, const char* name, int64_t least) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || value < least) {
    throw py::value_error(
        std::string(name) + " is " + std::string(py::str(number)) + "; it must be " +
        (overflow > 0 ? "below 9223372036854775808" : "at least " + std::to_string(least)));
  }
  return value;
}

// None means the default, which kernels know as 0.
inline int thread_count(py::handle object) {
  if (object.is_none()) return 0;
  const int64_t threads = whole_number(object, "threads", 1);
  return static_cast<int>(threads < 4096 ? threads : 4096);
}

}  // namespace pytrace::bindings
