#include "align/align.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "align/align_check.h"
#include "align/symbols.h"
#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace py = pybind11;

namespace pytrace::bindings {
namespace {

using DoubleMatrix = py::array_t<double, py::array::c_style | py::array::forcecast |
                                             py::detail::npy_api::NPY_ARRAY_ALIGNED_>;
using Int32Array = py::array_t<int32_t, py::array::c_style>;
using Int64Array = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

template <typename T>
Span<const T> span(const std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

template <typename T, int kFlags>
Span<const T> span(const py::array_t<T, kFlags>& values, const char* name) {
  if (values.ndim() != 1) {
    fail(std::string(name) + " has " + to_text(values.ndim()) + " dimensions, not 1");
  }
  return {values.data(), values.size()};
}

template <typename T, int kFlags>
std::vector<T> copy_of(const py::array_t<T, kFlags>& values, const char* name) {
  const Span<const T> view = span(values, name);
  return {view.begin(), view.end()};
}

// uint64 does not fit in int64, so it takes the way of any other object.
bool is_integer_array(py::handle value) {
  if (!py::isinstance<py::array>(value)) return false;
  const py::dtype type = py::reinterpret_borrow<py::array>(value).dtype();
  return type.kind() == 'i' || (type.kind() == 'u' && type.itemsize() < 8);
}

// The symbols of a sequence as a tuple of its own, so that a hostile __hash__ cannot change it
// under our hands.
py::tuple items_of(py::handle value, const char* name) {
  if (py::isinstance<py::array>(value)) {
    const auto array = py::reinterpret_borrow<py::array>(value);
    if (array.ndim() != 1) {
      fail(std::string(name) + " has " + to_text(array.ndim()) + " dimensions, not 1");
    }
    return py::tuple(array.attr("tolist")());
  }
  if (PySequence_Check(value.ptr()) == 0) {
    throw py::type_error(std::string(name) +
                         " must be a sequence of hashable symbols (list, tuple, str, array), not " +
                         Py_TYPE(value.ptr())->tp_name);
  }
  PyObject* const items = PySequence_Tuple(value.ptr());
  if (items == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::tuple>(items);
}

// Numbers symbols from 0 in order of first appearance; equal symbols (hash and ==) get equal
// numbers.
class Interner {
 public:
  explicit Interner(py::dict table) : table_(std::move(table)) {}

  void add(const py::tuple& items, const char* name, std::vector<int32_t>* out) {
    const Py_ssize_t size = PyTuple_GET_SIZE(items.ptr());
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* const symbol = PyTuple_GET_ITEM(items.ptr(), i);
      PyObject* number = PyDict_GetItemWithError(table_.ptr(), symbol);
      if (number == nullptr) {
        if (PyErr_Occurred() != nullptr) explain(symbol, i, name);
        const auto fresh = py::int_(PyDict_Size(table_.ptr()));
        if (PyDict_SetItem(table_.ptr(), symbol, fresh.ptr()) != 0) explain(symbol, i, name);
        out->push_back(static_cast<int32_t>(PyLong_AsLong(fresh.ptr())));
      } else {
        out->push_back(static_cast<int32_t>(PyLong_AsLong(number)));
      }
    }
  }

 private:
  [[noreturn]] static void explain(PyObject* symbol, Py_ssize_t i, const char* name) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) != 0 && PyObject_HashNotImplemented(symbol) == -1) {
      PyErr_Clear();
      throw py::type_error("symbol " + to_text(i) + " of " + name + " is a " +
                           Py_TYPE(symbol)->tp_name +
                           ", which is not hashable; use a tuple, a string or a number");
    }
    throw py::error_already_set();
  }

  py::dict table_;
};

// Numbers the symbols of sequences that hold nothing but strings, without running any code of
// Python's: so no list changes and no string dies meanwhile.
class StringInterner {
 public:
  // `slots` (a power of two) is how many addresses of strings are kept. Python's own hash differs
  // from process to process.
  explicit StringInterner(size_t slots)
      : table_(static_cast<uint64_t>(py::hash(py::str("symbols")))), known_(slots) {}

  // How many symbols a string, list or tuple has; -1 for anything else.
  static int64_t size_of(PyObject* sequence) {
    if (PyUnicode_CheckExact(sequence)) return PyUnicode_GET_LENGTH(sequence);
    return is_fast(sequence) ? PySequence_Fast_GET_SIZE(sequence) : -1;
  }

  // Numbers the symbols of what has a size; false, and anything in `out`, if one is no string.
  bool number(PyObject* sequence, int32_t* out) {
    if (PyUnicode_CheckExact(sequence)) {
      number_characters(sequence, out);
      return true;
    }
    PyObject* const* items = PySequence_Fast_ITEMS(sequence);
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* const item = items[i];
      const auto address = reinterpret_cast<uintptr_t>(item);
      Known& known = known_[(address >> 4 ^ address >> 14) & (known_.size() - 1)];
      if (known.item != item) {
        if (!PyUnicode_CheckExact(item)) return false;
        make_ready(item);
        const auto width = static_cast<int>(PyUnicode_KIND(item));
        known.number =
            table_.number(PyUnicode_DATA(item), PyUnicode_GET_LENGTH(item) * width, width);
        known.item = item;
      }
      out[i] = known.number;
    }
    return true;
  }

  // Whether a list or a tuple can be read without running any code.
  static bool is_fast(PyObject* sequence) {
    return PyList_CheckExact(sequence) || PyTuple_CheckExact(sequence);
  }

 private:
  static void make_ready([[maybe_unused]] PyObject* text) {
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(text) != 0) throw py::error_already_set();
#endif
  }

  // Each is a symbol as a string of its own would be: as wide as it needs to be.
  void number_characters(PyObject* text, int32_t* out) {
    make_ready(text);
    const int kind = PyUnicode_KIND(text);
    const void* const data = PyUnicode_DATA(text);
    const Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    for (Py_ssize_t i = 0; i < size; ++i) {
      const Py_UCS4 point = PyUnicode_READ(kind, data, i);
      characters_.push_back(point);
      const int width = point < 0x100 ? 1 : point < 0x10000 ? 2 : 4;
      out[i] = table_.number(&characters_.back(), width, width);
    }
  }

  // A string that was numbered, by its address: labels are few, and often the same objects.
  struct Known {
    const PyObject* item = nullptr;
    int32_t number = 0;
  };

  SymbolTable table_;
  std::vector<Known> known_;
  std::deque<Py_UCS4> characters_;  // stay where they are
};

std::vector<int32_t> integers_of(py::handle value, const char* name, bool* fit,
                                 std::vector<int64_t>* wide) {
  const Int64Array array(py::reinterpret_borrow<py::object>(value));
  const Span<const int64_t> values = span(array, name);
  wide->assign(values.begin(), values.end());
  std::vector<int32_t> narrow(wide->size());
  for (size_t i = 0; i < wide->size(); ++i) {
    narrow[i] = static_cast<int32_t>((*wide)[i]);
    if (narrow[i] != (*wide)[i]) *fit = false;
  }
  return narrow;
}

// Characters are equal when their code points are; lone surrogates are code points too.
std::vector<int32_t> code_points_of(py::handle text) {
  const Py_ssize_t size = PyUnicode_GET_LENGTH(text.ptr());
  const int kind = PyUnicode_KIND(text.ptr());
  const void* const data = PyUnicode_DATA(text.ptr());
  std::vector<int32_t> points(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    points[static_cast<size_t>(i)] = static_cast<int32_t>(PyUnicode_READ(kind, data, i));
  }
  return points;
}

struct SymbolPair {
  std::vector<int32_t> a;
  std::vector<int32_t> b;
};

// Two sequences as int32. Integers keep their values if all fit (they must if `keep_values`: a
// score function or matrix reads them); anything else is interned.
SymbolPair symbols_of(py::handle a, py::handle b, bool keep_values) {
  SymbolPair pair;
  if (is_integer_array(a) && is_integer_array(b)) {
    bool fit = true;
    std::vector<int64_t> wide_a;
    std::vector<int64_t> wide_b;
    pair.a = integers_of(a, "a", &fit, &wide_a);
    pair.b = integers_of(b, "b", &fit, &wide_b);
    if (fit) return pair;
    if (keep_values) fail("symbols that a score function reads must fit in 32 bits");
    std::unordered_map<int64_t, int32_t> numbers;
    const auto renumber = [&](const std::vector<int64_t>& wide, std::vector<int32_t>* narrow) {
      for (size_t i = 0; i < wide.size(); ++i) {
        (*narrow)[i] =
            numbers.try_emplace(wide[i], static_cast<int32_t>(numbers.size())).first->second;
      }
    };
    renumber(wide_a, &pair.a);
    renumber(wide_b, &pair.b);
    return pair;
  }
  if (!keep_values && PyUnicode_Check(a.ptr()) && PyUnicode_Check(b.ptr())) {
    pair.a = code_points_of(a);
    pair.b = code_points_of(b);
    return pair;
  }
  if (!keep_values) {
    // To fill more slots with nothing would be felt in a short pair.
    StringInterner strings(1);
    const auto add = [&](py::handle sequence, std::vector<int32_t>* out) {
      const int64_t size = StringInterner::size_of(sequence.ptr());
      if (size < 0) return false;
      out->resize(static_cast<size_t>(size));
      return strings.number(sequence.ptr(), out->data());
    };
    if (add(a, &pair.a) && add(b, &pair.b)) return pair;
    pair = {};
  }
  const py::tuple items_a = items_of(a, "a");
  const py::tuple items_b = items_of(b, "b");
  if (keep_values) {
    const auto read = [](const py::tuple& items, const char* name, std::vector<int32_t>* out) {
      for (size_t i = 0; i < items.size(); ++i) {
        const py::object index =
            py::reinterpret_steal<py::object>(PyNumber_Index(py::object(items[i]).ptr()));
        int overflow = 0;
        const long long value = index ? PyLong_AsLongLongAndOverflow(index.ptr(), &overflow) : 0;
        PyErr_Clear();
        if (!index || overflow != 0 || value != static_cast<int32_t>(value)) {
          throw py::type_error("symbol " + to_text(static_cast<int64_t>(i)) + " of " + name +
                               " is no 32-bit integer, which a score function needs; number the "
                               "symbols or give a score matrix");
        }
        out->push_back(static_cast<int32_t>(value));
      }
    };
    read(items_a, "a", &pair.a);
    read(items_b, "b", &pair.b);
    return pair;
  }
  Interner interner{py::dict()};
  interner.add(items_a, "a", &pair.a);
  interner.add(items_b, "b", &pair.b);
  return pair;
}

Scoring scoring_of(double match, double mismatch, double gap, double gap_open,
                   const std::optional<DoubleMatrix>& matrix, bool by_position,
                   uintptr_t function) {
  Scoring scoring;
  scoring.match = match;
  scoring.mismatch = mismatch;
  scoring.gap = gap;
  scoring.gap_open = gap_open;
  scoring.by_position = by_position;
  scoring.function = reinterpret_cast<PairFunction>(function);
  require_scoring(scoring);
  if (matrix) {
    if (matrix->ndim() != 2) {
      fail("score has " + to_text(matrix->ndim()) + " dimensions, not 2");
    }
    scoring.matrix = {matrix->data(), matrix->shape(0), matrix->shape(1), matrix->shape(1)};
    require_score_matrix(scoring.matrix);
    // An empty matrix is a matrix too.
    static const double nothing = 0.0;
    if (scoring.matrix.data == nullptr) scoring.matrix.data = &nothing;
  }
  return scoring;
}

double score_pair(const py::object& a, const py::object& b, double match, double mismatch,
                  double gap, double gap_open, const std::optional<DoubleMatrix>& matrix,
                  uintptr_t function) {
  const Scoring scoring = scoring_of(match, mismatch, gap, gap_open, matrix, true, function);
  const SymbolPair symbols = symbols_of(a, b, function != 0);
  if (matrix) require_symbols_in_matrix(scoring, span(symbols.a), span(symbols.b));
  const ReleasedGil released;
  return alignment_score(span(symbols.a), span(symbols.b), scoring);
}

py::tuple align_pair(const py::object& a, const py::object& b, double match, double mismatch,
                     double gap, double gap_open, const std::optional<DoubleMatrix>& matrix,
                     uintptr_t function, const py::object& blank, int64_t trace_bytes) {
  const Scoring scoring = scoring_of(match, mismatch, gap, gap_open, matrix, true, function);
  const SymbolPair symbols = symbols_of(a, b, function != 0);
  if (matrix) require_symbols_in_matrix(scoring, span(symbols.a), span(symbols.b));
  if (trace_bytes < 0) fail("trace_bytes is " + to_text(trace_bytes) + "; it must be at least 0");
  AlignmentPath path;
  {
    const ReleasedGil released;
    path = align(span(symbols.a), span(symbols.b), scoring, trace_bytes);
  }
  const py::tuple items_a = items_of(a, "a");
  const py::tuple items_b = items_of(b, "b");
  if (items_a.size() != symbols.a.size() || items_b.size() != symbols.b.size()) {
    fail("a sequence changed its length while it was aligned");
  }
  const auto columns = static_cast<Py_ssize_t>(path.steps.size());
  py::list aligned_a(columns);
  py::list aligned_b(columns);
  py::array_t<int64_t> indices_a(columns);
  py::array_t<int64_t> indices_b(columns);
  int64_t* const to_a = indices_a.mutable_data();
  int64_t* const to_b = indices_b.mutable_data();
  Py_ssize_t i = 0;
  Py_ssize_t j = 0;
  for (Py_ssize_t column = 0; column < columns; ++column) {
    const Step step = path.steps[static_cast<size_t>(column)];
    to_a[column] = step == kLeft ? -1 : i;
    to_b[column] = step == kUp ? -1 : j;
    PyObject* const from_a = step == kLeft ? blank.ptr() : PyTuple_GET_ITEM(items_a.ptr(), i++);
    PyObject* const from_b = step == kUp ? blank.ptr() : PyTuple_GET_ITEM(items_b.ptr(), j++);
    Py_INCREF(from_a);
    Py_INCREF(from_b);
    PyList_SET_ITEM(aligned_a.ptr(), column, from_a);
    PyList_SET_ITEM(aligned_b.ptr(), column, from_b);
  }
  return py::make_tuple(path.score, std::move(aligned_a), std::move(aligned_b), path.matches,
                        std::move(indices_a), std::move(indices_b));
}

int64_t distance_of(const py::object& a, const py::object& b) {
  const SymbolPair symbols = symbols_of(a, b, false);
  const ReleasedGil released;
  return edit_distance(span(symbols.a), span(symbols.b));
}

// The symbols of all sequences and where each begins, if all are strings; else none.
py::object strings_of(PyObject* sequences, StringInterner* strings) {
  if (!StringInterner::is_fast(sequences)) return {};
  PyObject* const* items = PySequence_Fast_ITEMS(sequences);
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequences);
  py::array offsets = new_array<int64_t>({count + 1});
  int64_t* const ends = values_of<int64_t>(offsets);
  ends[0] = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const int64_t size = StringInterner::size_of(items[i]);
    if (size < 0) return {};
    ends[i + 1] = ends[i] + size;
  }
  py::array values = new_array<int32_t>({static_cast<py::ssize_t>(ends[count])});
  int32_t* const numbers = values_of<int32_t>(values);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!strings->number(items[i], numbers + ends[i])) return {};
  }
  return py::make_tuple(values, offsets);
}

py::object symbols_of_all(const py::tuple& sequences, Interner* interner) {
  std::vector<int32_t> values;
  std::vector<int64_t> offsets{0};
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::string name = "path " + std::to_string(i);
    const py::object path = sequences[i];
    interner->add(items_of(path, name.c_str()), name.c_str(), &values);
    offsets.push_back(static_cast<int64_t>(values.size()));
  }
  return py::make_tuple(py::reinterpret_steal<py::object>(array_of(values)),
                        py::reinterpret_steal<py::object>(array_of(offsets)));
}

// Two sequences of sequences, each as (values, offsets): equal symbols of both get equal numbers.
py::tuple intern_paths(const py::object& first, const py::object& second) {
  {
    StringInterner strings(1024);  // 16 KiB of the first-level cache
    const py::object a = strings_of(first.ptr(), &strings);
    const py::object b = a ? strings_of(second.ptr(), &strings) : py::object();
    if (b) return py::make_tuple(a, b);
  }
  const py::tuple sequences[2] = {items_of(first, "paths"), items_of(second, "paths")};
  Interner interner{py::dict()};
  const py::object a = symbols_of_all(sequences[0], &interner);
  return py::make_tuple(a, symbols_of_all(sequences[1], &interner));
}

py::tuple batch(const Int32Array& candidate_values, const Int64Array& candidate_offsets,
                const Int32Array& reference_values, const Int64Array& reference_offsets,
                const Int64Array& groups, double match, double mismatch, double gap,
                double gap_open, const std::optional<DoubleMatrix>& matrix, uintptr_t function,
                int threads, bool want_steps) {
  const Scoring scoring = scoring_of(match, mismatch, gap, gap_open, matrix, false, function);
  // Own copies: another thread may write to the caller's arrays once the GIL is released, and what
  // was checked must stay as it was. They cost a small part of the alignments.
  const auto first_values = copy_of(candidate_values, "candidates' values");
  const auto first_offsets = copy_of(candidate_offsets, "candidates' offsets");
  const auto second_values = copy_of(reference_values, "references' values");
  const auto second_offsets = copy_of(reference_offsets, "references' offsets");
  const auto own_groups = copy_of(groups, "groups");
  const RaggedSymbols candidates{span(first_values), span(first_offsets)};
  const RaggedSymbols references{span(second_values), span(second_offsets)};
  require_offsets(candidates.offsets, candidates.values.size, "candidates' offsets");
  require_offsets(references.offsets, references.values.size, "references' offsets");
  const Span<const int64_t> group_offsets = span(own_groups);
  if (group_offsets.size != candidates.size() + 1) {
    fail("groups has " + to_text(group_offsets.size) + " values, but " +
         to_text(candidates.size()) + " candidates need " + to_text(candidates.size() + 1));
  }
  require_offsets(group_offsets, references.size(), "groups");
  if (matrix) require_symbols_in_matrix(scoring, candidates.values, references.values);

  const auto count = static_cast<Py_ssize_t>(candidates.size());
  py::array_t<int64_t> best(count);
  py::array_t<double> scores(count);
  py::array_t<int64_t> matches(count);
  py::array_t<int64_t> lengths(count);
  std::vector<std::vector<Step>> steps(want_steps ? static_cast<size_t>(count) : 0);
  const BatchAlignment out{{best.mutable_data(), count},
                           {scores.mutable_data(), count},
                           {matches.mutable_data(), count},
                           {lengths.mutable_data(), count},
                           want_steps ? &steps : nullptr};
  {
    const ReleasedGil released;
    align_batch(candidates, references, group_offsets, scoring, threads, out);
  }
  if (!want_steps) return py::make_tuple(best, scores, matches, lengths);

  py::array_t<int64_t> offsets(count + 1);
  int64_t* const ends = offsets.mutable_data();
  ends[0] = 0;
  for (Py_ssize_t c = 0; c < count; ++c) {
    ends[c + 1] = ends[c] + static_cast<int64_t>(steps[static_cast<size_t>(c)].size());
  }
  py::array_t<int64_t> from_candidate(ends[count]);
  py::array_t<int64_t> from_reference(ends[count]);
  int64_t* to_a = from_candidate.mutable_data();
  int64_t* to_b = from_reference.mutable_data();
  for (const std::vector<Step>& path : steps) {
    int64_t i = 0;
    int64_t j = 0;
    for (Step step : path) {
      *to_a++ = step == kLeft ? -1 : i++;
      *to_b++ = step == kUp ? -1 : j++;
    }
  }
  return py::make_tuple(best, scores, matches, lengths, from_candidate, from_reference, offsets);
}

}  // namespace

void register_align(py::module_& module) {
  module.def("alignment_score", &score_pair, py::arg("a"), py::arg("b"), py::arg("match"),
             py::arg("mismatch"), py::arg("gap"), py::arg("gap_open"), py::arg("matrix"),
             py::arg("function"), py::pos_only());
  module.def("align_pair", &align_pair, py::arg("a"), py::arg("b"), py::arg("match"),
             py::arg("mismatch"), py::arg("gap"), py::arg("gap_open"), py::arg("matrix"),
             py::arg("function"), py::arg("blank"), py::arg("trace_bytes"), py::pos_only());
  module.def("edit_distance", &distance_of, py::arg("a"), py::arg("b"), py::pos_only());
  module.def("intern_paths", &intern_paths, py::arg("first"), py::arg("second"), py::pos_only());
  module.def("align_batch", &batch, py::arg("candidate_values"), py::arg("candidate_offsets"),
             py::arg("reference_values"), py::arg("reference_offsets"), py::arg("groups"),
             py::arg("match"), py::arg("mismatch"), py::arg("gap"), py::arg("gap_open"),
             py::arg("matrix"), py::arg("function"), py::arg("threads"), py::arg("want_steps"),
             py::pos_only());
}

}  // namespace pytrace::bindings
