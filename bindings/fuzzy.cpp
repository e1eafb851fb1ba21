#include "fuzzy.h"

#include <pybind11/numpy.h>

#include <cmath>
#include <string>
#include <vector>

#include "calls.h"
#include "module.h"

namespace py = pybind11;

namespace pytrace::bindings {
namespace {

// The characters of a str or bytes object where they lie. None, and a float that is not a number as
// tables have it for an empty cell, are a missing text.
Text text_of(py::handle object, const char* name, py::ssize_t index) {
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

std::vector<Text> texts_of(const py::tuple& objects, const char* name) {
  std::vector<Text> texts;
  texts.reserve(objects.size());
  py::ssize_t index = 0;
  for (py::handle object : objects) texts.push_back(text_of(object, name, index++));
  return texts;
}

FuzzyScorer scorer_of(int number) {
  if (number < 0 || number > static_cast<int>(FuzzyScorer::kTokenSetRatio)) {
    throw py::value_error("scorer is " + std::to_string(number) + "; it must be 0, 1 or 2");
  }
  return static_cast<FuzzyScorer>(number);
}

// A pair this small costs less than letting go of the GIL and taking it back (about 100 ns when
// nobody waits).
constexpr int64_t kFewCells = 1 << 14;

double score(int scorer, const py::object& s1, const py::object& s2, double cutoff) {
  const Text a = text_of(s1, "s1", -1);
  const Text b = text_of(s2, "s2", -1);
  const FuzzyScorer which = scorer_of(scorer);
  if (a.size < kFewCells && a.size * b.size < kFewCells) return fuzzy_score(which, a, b, cutoff);
  const ReleasedGil released;
  return fuzzy_score(which, a, b, cutoff);
}

py::object alignment(const py::object& s1, const py::object& s2, double cutoff) {
  const Text a = text_of(s1, "s1", -1);
  const Text b = text_of(s2, "s2", -1);
  FuzzyAlignment result;
  {
    const ReleasedGil released;
    result = fuzzy_partial_alignment(a, b, cutoff);
  }
  if (!result.found) return py::none();
  return py::make_tuple(result.score, result.a_start, result.a_end, result.b_start, result.b_end);
}

FuzzyType type_of(const py::array& array) {
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

// Tuples, because the caller can change a list while the GIL is released but never a tuple: its
// texts stay alive.
void cdist(const py::tuple& queries, const py::tuple& choices, int scorer, double cutoff,
           double multiplier, double missing, int threads, py::array& out) {
  const std::vector<Text> rows = texts_of(queries, "queries");
  const std::vector<Text> columns = texts_of(choices, "choices");
  const FuzzyType type = type_of(out);
  const auto row_count = static_cast<int64_t>(rows.size());
  const auto column_count = static_cast<int64_t>(columns.size());
  if (out.ndim() != 2 || out.shape(0) != row_count || out.shape(1) != column_count) {
    throw py::value_error("out must be of shape (" + std::to_string(row_count) + ", " +
                          std::to_string(column_count) + ")");
  }
  const char order = out.dtype().byteorder();
  if ((out.flags() & py::array::c_style) == 0 || (order != '=' && order != '|')) {
    throw py::value_error("out must be contiguous and of the machine's own byte order");
  }
  FuzzyCdist options;
  options.scorer = scorer_of(scorer);
  options.cutoff = cutoff;
  options.multiplier = multiplier;
  options.missing = missing;
  options.threads = threads;
  void* data = out.mutable_data();
  const ReleasedGil released;
  fuzzy_cdist({rows.data(), row_count}, {columns.data(), column_count}, options, type, data);
}

}  // namespace

void register_fuzzy(py::module_& module) {
  module.def("fuzzy_score", &score, py::arg("scorer"), py::arg("s1"), py::arg("s2"),
             py::arg("cutoff"), py::pos_only());
  module.def("fuzzy_alignment", &alignment, py::arg("s1"), py::arg("s2"), py::arg("cutoff"),
             py::pos_only());
  module.def("fuzzy_cdist", &cdist, py::arg("queries"), py::arg("choices"), py::arg("scorer"),
             py::arg("cutoff"), py::arg("multiplier"), py::arg("missing"), py::arg("threads"),
             py::arg("out"), py::pos_only());
}

}  // namespace pytrace::bindings
