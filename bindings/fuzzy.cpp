#include "fuzzy/fuzzy.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <string>
#include <vector>

#include "calls.h"
#include "fuzzy/edit.h"
#include "fuzzy_arguments.h"
#include "module.h"

namespace py = pybind11;

namespace pytrace::bindings {
namespace {

// A pair this small costs less than letting go of the GIL and taking it back (about 100 ns when
// nobody waits).
constexpr int64_t kFewCells = 1 << 14;

// Whole distances are below 2^31, so that their products fit 64 bits.
constexpr int64_t kMostMultiplier = int64_t{1} << 31;

// arguments: scorer, s1, s2, score_cutoff.
PyObject* bind_score(PyObject* const* arguments) {
  const FuzzyScorer scorer = scorer_of(arguments[0]);
  const Text a = text_of(arguments[1], "s1", -1);
  const Text b = text_of(arguments[2], "s2", -1);
  const double cutoff = cutoff_of(arguments[3]);
  if (a.size < kFewCells && a.size * b.size < kFewCells) {
    return PyFloat_FromDouble(fuzzy_score(scorer, a, b, cutoff));
  }
  double score = 0;
  {
    const ReleasedGil released;
    score = fuzzy_score(scorer, a, b, cutoff);
  }
  return PyFloat_FromDouble(score);
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

py::object owned(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

// The choices of extract as they were given: in order, with keys if they are a mapping's values.
class Choices {
 public:
  explicit Choices(py::handle object) : given_(py::reinterpret_borrow<py::object>(object)) {
    PyObject* pointer = object.ptr();
    if (PyUnicode_Check(pointer) || PyBytes_Check(pointer)) {
      throw py::type_error("one text was given where a list of texts belongs; put it in a list");
    }
    if (PyList_CheckExact(pointer) || PyTuple_CheckExact(pointer)) return;
    if (PyDict_CheckExact(pointer)) {
      keys_ = owned(PySequence_Tuple(pointer));
      given_ = owned(PyDict_Values(pointer));
      return;
    }
    if (!py::hasattr(object, "items")) {
      given_ = owned(PySequence_Tuple(pointer));
      return;
    }
    py::list keys;
    py::list values;
    for (py::handle pair : object.attr("items")()) {
      const auto both = py::reinterpret_steal<py::tuple>(PySequence_Tuple(pair.ptr()));
      if (!both) throw py::error_already_set();
      if (both.size() != 2) throw py::value_error("items() of choices must give pairs");
      keys.append(both[0]);
      values.append(both[1]);
    }
    keys_ = std::move(keys);
    given_ = std::move(values);
  }

  Py_ssize_t size() const { return Py_SIZE(given_.ptr()); }

  // A borrowed reference.
  PyObject* text(Py_ssize_t i) const {
    PyObject* pointer = given_.ptr();
    return PyList_Check(pointer) ? PyList_GET_ITEM(pointer, i) : PyTuple_GET_ITEM(pointer, i);
  }

  // A new reference to the key, or to the index where there are no keys.
  PyObject* key(Py_ssize_t i) const {
    PyObject* pointer = keys_.ptr();
    if (pointer == nullptr) return PyLong_FromSsize_t(i);
    PyObject* found =
        PyList_Check(pointer) ? PyList_GET_ITEM(pointer, i) : PyTuple_GET_ITEM(pointer, i);
    Py_INCREF(found);
    return found;
  }

  // Another thread can change a list while the GIL is released but never a tuple: its texts stay
  // alive.
  void freeze() {
    if (PyList_Check(given_.ptr())) given_ = owned(PyList_AsTuple(given_.ptr()));
  }

 private:
  py::object given_;
  py::object keys_;
};

// Characters that are compared before the GIL is released: a perfect answer often stands among the
// first choices, and then the list is neither copied nor read to its end.
constexpr int64_t kFirstCharacters = 1 << 13;
// The product of the query's characters and theirs is bounded as well: about a quarter of a
// millisecond of partial_ratio.
constexpr int64_t kFirstCells = 1 << 20;
// Choices that are read and searched at once behind them, twice as many each time.
constexpr Py_ssize_t kFirstBlock = 1024;

// arguments: scorer, query, choices, limit (None for all), score_cutoff. Returns a list of tuples
// (choice, score, key or index).
PyObject* bind_extract(PyObject* const* arguments) {
  const FuzzyScorer scorer = scorer_of(arguments[0]);
  int64_t limit = -1;
  if (arguments[3] != Py_None) {
    const auto number = owned(PyNumber_Index(arguments[3]));
    limit = PyLong_AsLongLong(number.ptr());
    if (limit == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (limit < 0) {
      throw py::value_error("limit is " + std::to_string(limit) +
                            "; give 0 or more, or None for all");
    }
  }
  const double cutoff = cutoff_of(arguments[4]);
  const Text query = text_of(arguments[1], "query", -1);
  Choices choices(arguments[2]);
  FuzzySearch search(scorer, query, cutoff, limit);
  std::vector<Text> texts;
  Py_ssize_t next = 0;
  const auto read = [&](Py_ssize_t end) {
    texts.clear();
    for (; next < end; ++next) texts.push_back(text_of(choices.text(next), "choices", next));
  };
  int64_t characters = 0;
  // One at first, because a perfect answer often is the very first.
  for (Py_ssize_t some = 1; !search.settled() && next < choices.size(); some *= 2) {
    if (characters + query.size > kFirstCharacters) break;
    read(std::min(next + some, choices.size()));
    for (const Text& text : texts) characters += text.size;
    if (characters > 2 * kFirstCharacters || query.size * characters > kFirstCells) {
      next -= static_cast<Py_ssize_t>(texts.size());
      break;
    }
    search.add({texts.data(), static_cast<int64_t>(texts.size())}, 1);
  }
  if (!search.settled() && next < choices.size()) {
    choices.freeze();
    for (Py_ssize_t some = kFirstBlock; !search.settled() && next < choices.size(); some *= 2) {
      read(std::min(next + some, choices.size()));
      const ReleasedGil released;
      search.add({texts.data(), static_cast<int64_t>(texts.size())}, 0);
    }
  }
  const std::vector<FuzzySearch::Found> found = search.found();
  // Held before anything is made: that may run a finaliser, which may change a list.
  std::vector<py::object> texts_found;
  texts_found.reserve(found.size());
  for (const FuzzySearch::Found& one : found) {
    if (one.index >= choices.size()) throw std::runtime_error("choices changed during the search");
    texts_found.push_back(
        py::reinterpret_borrow<py::object>(choices.text(static_cast<Py_ssize_t>(one.index))));
  }
  py::object list = owned(PyList_New(static_cast<Py_ssize_t>(found.size())));
  for (size_t k = 0; k < found.size(); ++k) {
    const auto index = static_cast<Py_ssize_t>(found[k].index);
    PyObject* tuple = owned(PyTuple_New(3)).release().ptr();
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(k), tuple);
    PyTuple_SET_ITEM(tuple, 0, texts_found[k].release().ptr());
    PyTuple_SET_ITEM(tuple, 1, owned(PyFloat_FromDouble(found[k].score)).release().ptr());
    PyTuple_SET_ITEM(tuple, 2, owned(choices.key(index)).release().ptr());
  }
  return list.release().ptr();
}

PyObject* bind_cdist(PyObject* const* arguments) {
  ManyPairs given(arguments);
  void* data = given.matrix();
  {
    const ReleasedGil released;
    fuzzy_cdist({given.queries.data(), given.query_count()},
                {given.choices.data(), given.choice_count()}, given.options, given.type, data);
  }
  Py_RETURN_NONE;
}

PyObject* bind_cpdist(PyObject* const* arguments) {
  ManyPairs given(arguments);
  void* data = given.vector();
  {
    const ReleasedGil released;
    fuzzy_cpdist({given.queries.data(), given.query_count()},
                 {given.choices.data(), given.choice_count()}, given.options, given.type, data);
  }
  Py_RETURN_NONE;
}

// What fills a new array takes, whose texts may stand in any iterable: a call of one pair takes two
// microseconds, a third of which would be tuples and an array made in Python.
struct NewScores {
  explicit NewScores(PyObject* const* arguments)
      : query_tuple(tuple_of_texts(arguments[0])),
        choice_tuple(arguments[1] == arguments[0] ? query_tuple : tuple_of_texts(arguments[1])),
        queries(texts_of(query_tuple, "queries")),
        choices(texts_of(choice_tuple, "choices")) {}

  Span<const Text> rows() const { return {queries.data(), static_cast<int64_t>(queries.size())}; }
  Span<const Text> columns() const {
    return {choices.data(), static_cast<int64_t>(choices.size())};
  }

  template <typename Value>
  py::array_t<Value> matrix() const {
    return py::array_t<Value>(
        {static_cast<py::ssize_t>(queries.size()), static_cast<py::ssize_t>(choices.size())});
  }

  py::object query_tuple;
  py::object choice_tuple;
  std::vector<Text> queries;
  std::vector<Text> choices;
};

// arguments: queries, choices, scorer, multiplier, threads.
PyObject* bind_matrix(PyObject* const* arguments) {
  const NewScores given(arguments);
  FuzzyCdist options;
  options.scorer = scorer_of(arguments[2]);
  options.multiplier = number_of(arguments[3]);
  options.threads = threads_of(arguments[4]);
  auto out = given.matrix<float>();
  float* data = out.mutable_data();
  {
    const ReleasedGil released;
    fuzzy_cdist(given.rows(), given.columns(), options, FuzzyType::kFloat32, data);
  }
  return out.release().ptr();
}

// arguments: queries, choices, scorer, multiplier, threads.
PyObject* bind_vector(PyObject* const* arguments) {
  const NewScores given(arguments);
  FuzzyCdist options;
  options.scorer = scorer_of(arguments[2]);
  options.multiplier = number_of(arguments[3]);
  options.threads = threads_of(arguments[4]);
  require_pairs(given.queries.size(), given.choices.size());
  py::array_t<float> out(static_cast<py::ssize_t>(given.queries.size()));
  float* data = out.mutable_data();
  {
    const ReleasedGil released;
    fuzzy_cpdist(given.rows(), given.columns(), options, FuzzyType::kFloat32, data);
  }
  return out.release().ptr();
}

EditCdist edit_options(PyObject* metric, PyObject* form, PyObject* threads) {
  EditCdist options;
  options.metric = static_cast<EditMetric>(number_below(metric, "metric", kEditMetrics));
  options.form = static_cast<EditForm>(number_below(form, "form", kEditForms));
  options.threads = threads_of(threads);
  return options;
}

// Of normalized forms a missing text has the worst value, but a whole distance may be any number.
void require_none_missing(const std::vector<Text>& texts, const char* name) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].missing) continue;
    throw py::value_error(std::string(name) + "[" + std::to_string(i) +
                          "] is missing, which has no whole distance or similarity; give a text, "
                          "or ask for the normalized form");
  }
}

// arguments: queries, choices, metric, form, threads.
PyObject* bind_edit_matrix(PyObject* const* arguments) {
  const NewScores given(arguments);
  EditCdist options = edit_options(arguments[2], arguments[3], arguments[4]);
  py::array out;
  FuzzyType type = FuzzyType::kFloat32;
  if (edit_whole(options.metric, options.form)) {
    require_none_missing(given.queries, "queries");
    require_none_missing(given.choices, "choices");
    out = given.matrix<uint32_t>();
    type = FuzzyType::kUint32;
  } else {
    const bool distance =
        options.form == EditForm::kDistance || options.form == EditForm::kNormalizedDistance;
    options.missing = distance ? 1.0 : 0.0;
    out = given.matrix<float>();
  }
  void* data = out.mutable_data();
  {
    const ReleasedGil released;
    edit_cdist(given.rows(), given.columns(), options, type, data);
  }
  return out.release().ptr();
}

// arguments: queries, choices, metric, form, cutoff (None for none), multiplier, missing, threads,
// prefix_weight, out.
PyObject* bind_edit_cdist(PyObject* const* arguments) {
  const std::vector<Text> queries = texts_of(arguments[0], "queries");
  const std::vector<Text> choices = texts_of(arguments[1], "choices");
  EditCdist options = edit_options(arguments[2], arguments[3], arguments[7]);
  options.has_cutoff = arguments[4] != Py_None;
  options.cutoff = cutoff_of(arguments[4]);
  options.multiplier = number_of(arguments[5]);
  options.missing = number_of(arguments[6]);
  options.prefix_weight = number_of(arguments[8]);
  const bool whole = edit_whole(options.metric, options.form);
  if (whole && !(options.multiplier >= 0 && options.multiplier <= kMostMultiplier)) {
    throw py::value_error("multiplier is " + number_text(options.multiplier) +
                          "; it must be from 0 to " + std::to_string(kMostMultiplier));
  }
  if (whole) {
    require_none_missing(queries, "queries");
    require_none_missing(choices, "choices");
  }
  const MatrixOut out(arguments[9]);
  void* data = out.matrix(queries.size(), choices.size());
  {
    const ReleasedGil released;
    edit_cdist({queries.data(), static_cast<int64_t>(queries.size())},
               {choices.data(), static_cast<int64_t>(choices.size())}, options, out.type, data);
  }
  Py_RETURN_NONE;
}

}  // namespace

void register_fuzzy(py::module_& module) {
  define_fast<&bind_score, 4>(module, "fuzzy_score",
                              "fuzzy_score(scorer, s1, s2, score_cutoff, /)\n--\n\n");
  define_fast<&bind_extract, 5>(
      module, "fuzzy_extract",
      "fuzzy_extract(scorer, query, choices, limit, score_cutoff, /)\n--\n\n");
  define_fast<&bind_cdist, 8>(module, "fuzzy_cdist",
                              "fuzzy_cdist(queries, choices, scorer, score_cutoff, multiplier, "
                              "missing, threads, out, /)\n--\n\n");
  define_fast<&bind_cpdist, 8>(module, "fuzzy_cpdist",
                               "fuzzy_cpdist(queries, choices, scorer, score_cutoff, multiplier, "
                               "missing, threads, out, /)\n--\n\n");
  define_fast<&bind_matrix, 5>(
      module, "fuzzy_matrix",
      "fuzzy_matrix(queries, choices, scorer, multiplier, threads, /)\n--\n\n");
  define_fast<&bind_vector, 5>(
      module, "fuzzy_vector",
      "fuzzy_vector(queries, choices, scorer, multiplier, threads, /)\n--\n\n");
  define_fast<&bind_edit_matrix, 5>(
      module, "edit_matrix", "edit_matrix(queries, choices, metric, form, threads, /)\n--\n\n");
  define_fast<&bind_edit_cdist, 10>(
      module, "edit_cdist",
      "edit_cdist(queries, choices, metric, form, score_cutoff, multiplier, missing, threads, "
      "prefix_weight, out, /)\n--\n\n");
  module.def("fuzzy_alignment", &alignment, py::arg("s1"), py::arg("s2"), py::arg("cutoff"),
             py::pos_only());
}

}  // namespace pytrace::bindings
