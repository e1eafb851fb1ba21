#include "cover/cover.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "calls.h"
#include "common/parallel.h"
#include "module.h"

namespace py = pybind11;

namespace pytrace::bindings {
namespace {

using Weights = py::array_t<double, py::array::c_style | py::array::forcecast |
                                        py::detail::npy_api::NPY_ARRAY_ALIGNED_>;
using Judgements = py::array_t<bool, py::array::c_style>;

// The bits of one problem; beyond this they would be a mistake sooner than a problem that can be
// solved.
constexpr int64_t kMostBytes = int64_t{1} << 32;

// An empty matrix may claim any number of columns, and each would be reported as uncovered.
void require_few_features(int64_t features) {
  constexpr int64_t kMostFeatures = int64_t{1} << 24;
  if (features > kMostFeatures) {
    fail(to_text(features) + " features are more than the " + to_text(kMostFeatures) +
         " that one problem may have; split it");
  }
}

// A problem that owns its bits, and the names of its features (none: they are column numbers).
struct Packed {
  std::vector<uint64_t> bits;
  std::vector<double> weights;
  CoverProblem problem;
  std::optional<py::list> names;

  void allocate(int64_t sets, int64_t features) {
    require_few_features(features);
    const int64_t words = (features + 63) / 64;
    if (words > 0 && sets > kMostBytes / 8 / words) {
      fail(to_text(sets) + " sets over " + to_text(features) +
           " features need more than 4 GiB of bits; split the problem");
    }
    bits.assign(static_cast<size_t>(sets * words), 0);
    problem = {bits.data(), sets, features, words, nullptr};
  }

  void set(int64_t s, int64_t f) {
    bits[static_cast<size_t>(s * problem.words + f / 64)] |= uint64_t{1} << (f % 64);
  }
};

void pack_matrix(const Judgements& matrix, Packed* packed) {
  if (matrix.ndim() != 2) fail("sets has " + to_text(matrix.ndim()) + " dimensions, not 2");
  const int64_t sets = matrix.shape(0);
  const int64_t features = matrix.shape(1);
  packed->allocate(sets, features);
  // As bytes: a view of other numbers as booleans may hold more than 0 and 1.
  const auto* from = static_cast<const uint8_t*>(static_cast<const void*>(matrix.data()));
  uint64_t* to = packed->bits.data();
  for (int64_t s = 0; s < sets; ++s) {
    for (int64_t first = 0; first < features; first += 64) {
      const int64_t size = std::min<int64_t>(64, features - first);
      uint64_t word = 0;
      for (int64_t f = 0; f < size; ++f) word |= uint64_t{from[f] != 0} << f;
      *to++ = word;
      from += size;
    }
  }
}

[[noreturn]] void explain_feature(PyObject* feature, const std::string& place) {
  if (PyErr_ExceptionMatches(PyExc_TypeError) != 0 && PyObject_HashNotImplemented(feature) == -1) {
    PyErr_Clear();
    throw py::type_error("a feature of " + place + " is a " + Py_TYPE(feature)->tp_name +
                         ", which is not hashable; use a tuple, a string or a number");
  }
  throw py::error_already_set();
}

// The members of a collection as a tuple of our own, which a hostile __hash__ cannot change.
py::tuple members_of(py::handle collection, const std::string& place) {
  PyObject* const members = PyUnicode_Check(collection.ptr()) || PyBytes_Check(collection.ptr())
                                ? nullptr
                                : PySequence_Tuple(collection.ptr());
  if (members == nullptr) {
    if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_TypeError) == 0) {
      throw py::error_already_set();
    }
    PyErr_Clear();
    throw py::type_error(place + " must be a collection of hashable features, not " +
                         Py_TYPE(collection.ptr())->tp_name);
  }
  return py::reinterpret_steal<py::tuple>(members);
}

// `universe` fixes the features that count; None: all that stand in the sets, by first appearance.
void pack_collections(const py::object& sets, const py::object& universe, Packed* packed) {
  py::dict numbers;
  const auto number_of = [&](PyObject* feature, const std::string& place, bool add) -> int64_t {
    PyObject* const known = PyDict_GetItemWithError(numbers.ptr(), feature);
    if (known != nullptr) return PyLong_AsLongLong(known);
    if (PyErr_Occurred() != nullptr) explain_feature(feature, place);
    if (!add) return -1;
    const auto fresh = static_cast<int64_t>(PyDict_Size(numbers.ptr()));
    if (PyDict_SetItem(numbers.ptr(), feature, py::int_(fresh).ptr()) != 0) {
      explain_feature(feature, place);
    }
    return fresh;
  };
  if (!universe.is_none()) {
    const py::tuple features = members_of(universe, "universe");
    for (size_t i = 0; i < features.size(); ++i) {
      number_of(PyTuple_GET_ITEM(features.ptr(), static_cast<Py_ssize_t>(i)), "universe", true);
    }
  }
  const py::tuple collections = members_of(sets, "sets");
  std::vector<std::pair<int64_t, int64_t>> bits;
  std::string place;
  for (size_t s = 0; s < collections.size(); ++s) {
    place = "set " + std::to_string(s);
    const py::tuple members =
        members_of(PyTuple_GET_ITEM(collections.ptr(), static_cast<Py_ssize_t>(s)), place);
    for (size_t i = 0; i < members.size(); ++i) {
      const int64_t f = number_of(PyTuple_GET_ITEM(members.ptr(), static_cast<Py_ssize_t>(i)),
                                  place, universe.is_none());
      if (f >= 0) bits.emplace_back(static_cast<int64_t>(s), f);
    }
  }
  packed->allocate(static_cast<int64_t>(collections.size()),
                   static_cast<int64_t>(PyDict_Size(numbers.ptr())));
  for (const auto& [s, f] : bits) packed->set(s, f);
  packed->names = py::reinterpret_steal<py::list>(PyDict_Keys(numbers.ptr()));
}

void pack(const py::object& sets, const py::object& universe, const py::object& weights,
          Packed* packed) {
  if (py::isinstance<Judgements>(sets)) {
    pack_matrix(py::reinterpret_borrow<Judgements>(sets), packed);
  } else {
    pack_collections(sets, universe, packed);
  }
  if (weights.is_none()) return;
  const Weights array(weights);
  if (array.ndim() != 1) fail("weights has " + to_text(array.ndim()) + " dimensions, not 1");
  packed->weights.assign(array.data(), array.data() + array.size());
  require_weights({packed->weights.data(), array.size()}, packed->problem.sets);
  packed->problem.weights = packed->weights.data();
}

py::tuple tuple_of(const std::vector<int64_t>& values) {
  py::tuple out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = py::int_(values[i]);
  return out;
}

py::tuple describe(const Packed& packed, const CoverResult& result) {
  py::tuple uncovered = tuple_of(result.uncovered);
  if (packed.names) {
    for (size_t i = 0; i < result.uncovered.size(); ++i) {
      uncovered[i] = (*packed.names)[static_cast<size_t>(result.uncovered[i])];
    }
  }
  return py::make_tuple(tuple_of(result.sets), result.weight, result.optimal, result.bound,
                        std::move(uncovered));
}

// Solves many problems (sets, universe, weights) at once. seconds < 0: no limit.
py::list covers(const py::list& problems, bool exact, double seconds, int threads) {
  const auto size = static_cast<size_t>(problems.size());
  std::vector<Packed> packed(size);
  for (size_t i = 0; i < size; ++i) {
    const auto problem = py::reinterpret_borrow<py::tuple>(
        PyList_GET_ITEM(problems.ptr(), static_cast<Py_ssize_t>(i)));
    pack(problem[0], problem[1], problem[2], &packed[i]);
  }
  std::vector<CoverResult> results(size);
  std::atomic<bool> interrupted{false};
  CoverLimits limits;
  if (seconds >= 0.0) limits.seconds = seconds;
  std::optional<py::error_already_set> failure;
  limits.stop = [&interrupted, &failure] {
    if (interrupted.load()) return true;
    const py::gil_scoped_acquire acquire;
    // Ctrl-C reaches the main thread alone, which is the one that called.
    if (PyErr_CheckSignals() == 0) return false;
    failure.emplace();
    interrupted = true;
    return true;
  };
  {
    const ReleasedGil released;
    parallel_for(static_cast<int64_t>(size), 1, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end && !interrupted.load(); ++i) {
        const auto at = static_cast<size_t>(i);
        results[at] =
            exact ? minimum_cover(packed[at].problem, limits) : greedy_cover(packed[at].problem);
      }
    });
  }
  if (failure) throw py::error_already_set(*failure);
  py::list out(size);
  for (size_t i = 0; i < size; ++i) out[i] = describe(packed[i], results[i]);
  return out;
}

py::list scope_covers(const py::list& questions, bool recheck, int threads) {
  const auto size = static_cast<size_t>(questions.size());
  std::vector<ScopeProblem> problems(size);
  std::vector<Judgements> kept;  // the arrays stay alive while the GIL is released
  for (size_t i = 0; i < size; ++i) {
    const auto question = py::reinterpret_borrow<py::tuple>(
        PyList_GET_ITEM(questions.ptr(), static_cast<Py_ssize_t>(i)));
    const auto intent = question[0].cast<Judgements>();
    const auto relations = question[1].cast<Judgements>();
    const auto nodes = question[2].cast<Judgements>();
    if (intent.ndim() != 1 || relations.ndim() != 2 || nodes.ndim() != 2) {
      fail("question " + to_text(static_cast<int64_t>(i)) + ": intent, relations and nodes have " +
           to_text(intent.ndim()) + ", " + to_text(relations.ndim()) + " and " +
           to_text(nodes.ndim()) + " dimensions, not 1, 2 and 2");
    }
    if (relations.shape(0) != intent.size() || nodes.shape(0) != intent.size()) {
      fail("question " + to_text(static_cast<int64_t>(i)) + ": intent judges " +
           to_text(intent.size()) + " snippets, relations " + to_text(relations.shape(0)) +
           " and nodes " + to_text(nodes.shape(0)));
    }
    require_few_features(relations.shape(1));
    require_few_features(nodes.shape(1));
    problems[i] = {reinterpret_cast<const uint8_t*>(intent.data()),
                   reinterpret_cast<const uint8_t*>(relations.data()),
                   reinterpret_cast<const uint8_t*>(nodes.data()),
                   intent.size(),
                   relations.shape(1),
                   nodes.shape(1)};
    kept.insert(kept.end(), {intent, relations, nodes});
  }
  std::vector<ScopeResult> results(size);
  {
    const ReleasedGil released;
    parallel_for(static_cast<int64_t>(size), 64, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        results[static_cast<size_t>(i)] = scope_cover(problems[static_cast<size_t>(i)], recheck);
      }
    });
  }
  py::list out(size);
  for (size_t i = 0; i < size; ++i) {
    out[i] = py::make_tuple(tuple_of(results[i].chosen), results[i].intent,
                            tuple_of(results[i].uncovered_relations),
                            tuple_of(results[i].uncovered_nodes));
  }
  return out;
}

}  // namespace

void register_cover(py::module_& module) {
  module.def("covers", &covers, py::arg("problems"), py::arg("exact"), py::arg("seconds"),
             py::arg("threads"), py::pos_only());
  module.def("scope_covers", &scope_covers, py::arg("questions"), py::arg("recheck"),
             py::arg("threads"), py::pos_only());
}

}  // namespace pytrace::bindings
