// What the fuzzy functions read of their Python arguments, on the processor and on a card alike.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arrays.h"
#include "fuzzy/fuzzy.h"

namespace pytrace::bindings {

namespace py = pybind11;

// The characters of a str or bytes object where they lie. None, and a float that is not a number as
// tables have it for an empty cell, are a missing text.
inline Text text_of(py::handle object, const char* name, py::ssize_t index) {
  Text text;
  PyObject* pointer = object.ptr();
  if (PyUnicode_Check(pointer)) {
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(pointer) != 0) throw py::error_already_set();
#endif
    text.data = PyUnicode_DATA(pointer);
    text.size = PyUnicode_GET_LENGTH(pointer);
    text.kind = static_cast<int>(PyUnicode_KIND(pointer));
  } else if (PyBytes_Check(pointer)) {
    text.data = PyBytes_AS_STRING(pointer);
    text.size = PyBytes_GET_SIZE(pointer);
  } else if (pointer == Py_None ||
             (PyFloat_Check(pointer) && std::isnan(PyFloat_AS_DOUBLE(pointer)))) {
    text.missing = true;
  } else {
    std::string place = name;
    if (index >= 0) place += "[" + std::to_string(index) + "]";
    throw py::type_error(place + " is of type " + Py_TYPE(pointer)->tp_name +
                         "; give str, bytes or None");
  }
  if (text.size > kFuzzyMaxSize) {
    throw py::value_error(std::string(name) + " holds a text of " + std::to_string(text.size) +
                          " characters; at most " + std::to_string(kFuzzyMaxSize) +
                          " can be compared");
  }
  return text;
}

inline std::vector<Text> texts_of(py::handle objects, const char* name) {
  if (!PyTuple_Check(objects.ptr())) {
    throw py::type_error(std::string(name) + " must be a tuple of texts");
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(objects.ptr());
  std::vector<Text> texts(static_cast<size_t>(count));
  const PyObject* before = nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* object = PyTuple_GET_ITEM(objects.ptr(), i);
    Text& text = texts[static_cast<size_t>(i)];
    if (object == before) {
      text = texts[static_cast<size_t>(i - 1)];
    } else if (PyUnicode_CheckExact(object) && PyUnicode_IS_COMPACT_ASCII(object) &&
               PyUnicode_GET_LENGTH(object) <= kFuzzyMaxSize) {
      // Most texts: a few loads each, where a matrix of one row takes some ten nanoseconds a text.
      text.data = PyUnicode_DATA(object);
      text.size = PyUnicode_GET_LENGTH(object);
      text.kind = 1;
    } else {
      text = text_of(object, name, i);
    }
    before = object;
  }
  return texts;
}

// A tuple of what a list or any other iterable of texts holds.
inline py::object tuple_of_texts(PyObject* texts) {
  if (PyUnicode_Check(texts) || PyBytes_Check(texts)) {
    throw py::type_error("one text was given where a list of texts belongs; put it in a list");
  }
  PyObject* tuple = PyList_CheckExact(texts) ? PyList_AsTuple(texts) : PySequence_Tuple(texts);
  if (tuple == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(tuple);
}

inline double number_of(py::handle object) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

// None means no cutoff.
inline double cutoff_of(py::handle object) {
  if (object.is_none()) return 0.0;
  const double cutoff = number_of(object);
  if (std::isnan(cutoff)) {
    throw py::value_error("score_cutoff is not a number; give 0 to 100, or None");
  }
  return cutoff;
}

// A whole number from 0 to `end` - 1.
inline int64_t number_below(py::handle object, const char* name, int64_t end) {
  const int64_t number = whole_number(object, name, 0);
  if (number >= end) {
    throw py::value_error(std::string(name) + " is " + std::to_string(number) +
                          "; it must be from 0 to " + std::to_string(end - 1));
  }
  return number;
}

inline FuzzyScorer scorer_of(py::handle object) {
  return static_cast<FuzzyScorer>(number_below(object, "scorer", kFuzzyScorers));
}

inline int threads_of(py::handle object) {
  return static_cast<int>(std::min<int64_t>(whole_number(object, "threads", 1), 4096));
}

inline FuzzyType type_of(const py::array& array) {
  const char kind = array.dtype().kind();
  const py::ssize_t bytes = array.itemsize();
  if (kind == 'f' && bytes == 4) return FuzzyType::kFloat32;
  if (kind == 'f' && bytes == 8) return FuzzyType::kFloat64;
  if (kind == 'i' && bytes == 1) return FuzzyType::kInt8;
  if (kind == 'i' && bytes == 2) return FuzzyType::kInt16;
  if (kind == 'i' && bytes == 4) return FuzzyType::kInt32;
  if (kind == 'i' && bytes == 8) return FuzzyType::kInt64;
  if (kind == 'u' && bytes == 1) return FuzzyType::kUint8;
  if (kind == 'u' && bytes == 2) return FuzzyType::kUint16;
  if (kind == 'u' && bytes == 4) return FuzzyType::kUint32;
  if (kind == 'u' && bytes == 8) return FuzzyType::kUint64;
  throw py::type_error("dtype is " + std::string(py::str(array.dtype())) +
                       "; give float32, float64 or an integer type");
}

inline void require_pairs(size_t queries, size_t choices) {
  if (choices == queries) return;
  throw py::value_error("there are " + std::to_string(queries) + " queries but " +
                        std::to_string(choices) +
                        " choices; pairs need as many of one as of the other");
}

// The array that scores go to.
struct MatrixOut {
  explicit MatrixOut(py::handle object) {
    if (!py::isinstance<py::array>(object)) throw py::type_error("out must be an array");
    array = py::reinterpret_borrow<py::array>(object);
    type = type_of(array);
  }

  // Where a matrix goes.
  void* matrix(size_t rows, size_t columns) const {
    const bool fits = array.ndim() == 2 && array.shape(0) == static_cast<py::ssize_t>(rows) &&
                      array.shape(1) == static_cast<py::ssize_t>(columns);
    return checked(fits, std::to_string(rows) + ", " + std::to_string(columns));
  }

  // Where the scores of pairs go.
  void* vector(size_t pairs) const {
    const bool fits = array.ndim() == 1 && array.shape(0) == static_cast<py::ssize_t>(pairs);
    return checked(fits, std::to_string(pairs) + ",");
  }

  py::array array;
  FuzzyType type = FuzzyType::kFloat32;

 private:
  // Throws unless `fits`, which `shape` says in words.
  void* checked(bool fits, const std::string& shape) const {
    if (!fits) throw py::value_error("out must be of shape (" + shape + ")");
    const char order = array.dtype().byteorder();
    if ((array.flags() & py::array::c_style) == 0 || (order != '=' && order != '|')) {
      throw py::value_error("out must be contiguous and of the machine's own byte order");
    }
    if (!array.writeable()) throw py::value_error("out is not writeable");
    return const_cast<void*>(array.data());
  }
};

// The arguments of fuzzy_cdist and fuzzy_cpdist.
//
// Tuples, because the caller can change a list while the GIL is released but never a tuple: its
// texts stay alive.
struct ManyPairs {
  // arguments: queries, choices, scorer, cutoff, multiplier, missing, threads, out.
  explicit ManyPairs(PyObject* const* arguments)
      : queries(texts_of(arguments[0], "queries")),
        choices(texts_of(arguments[1], "choices")),
        out(arguments[7]),
        type(out.type) {
    options.scorer = scorer_of(arguments[2]);
    options.cutoff = cutoff_of(arguments[3]);
    options.multiplier = number_of(arguments[4]);
    options.missing = number_of(arguments[5]);
    options.threads = threads_of(arguments[6]);
  }

  // Where cdist's scores go.
  void* matrix() const { return out.matrix(queries.size(), choices.size()); }

  // Where cpdist's scores go; throws unless there are as many queries as choices.
  void* vector() const {
    require_pairs(queries.size(), choices.size());
    return out.vector(queries.size());
  }

  int64_t query_count() const { return static_cast<int64_t>(queries.size()); }
  int64_t choice_count() const { return static_cast<int64_t>(choices.size()); }

  std::vector<Text> queries;
  std::vector<Text> choices;
  FuzzyCdist options;
  MatrixOut out;
  FuzzyType type;
};

}  // namespace pytrace::bindings
