#include "walk/walk.h"

#include <string>
#include <vector>

#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

template <typename T>
py::array real_numbers(py::handle object, const char* name) {
  const py::array array = real_array(object, name);
  require_rank(array, 1, name);
  return rows_of<T>(array);
}

// The arrays that links and seeds are views of.
struct Arguments {
  explicit Arguments(PyObject* const* arguments) {
    const py::handle weights = arguments[2], seed_weights = arguments[5];
    offsets = whole_numbers<int64_t>(arguments[0], "offsets");
    const py::array given = real_array(arguments[1], "targets");
    narrow = given.dtype().num() == py::dtype::num_of<int32_t>();
    targets = narrow ? whole_numbers<int32_t>(given, "targets")
                     : whole_numbers<int64_t>(given, "targets");
    if (!weights.is_none()) link_weights = real_numbers<float>(weights, "weights");
    // Copies: they are checked before they are used.
    seed_nodes = int64_vector(arguments[3], "seeds");
    seed_offsets = int64_vector(arguments[4], "seed_offsets");
    seeds.nodes = span_view<int64_t>(seed_nodes);
    seeds.offsets = span_view<int64_t>(seed_offsets);
    if (!seed_weights.is_none()) {
      const py::array values = real_numbers<double>(seed_weights, "seed_weights");
      weights_copy.assign(static_cast<const double*>(values.data()),
                          static_cast<const double*>(values.data()) + values.size());
      seeds.weights = {weights_copy.data(), static_cast<int64_t>(weights_copy.size())};
      // Without seeds there is nothing to weigh.
      if (seeds.weights.size == 0 && seeds.nodes.size > 0) {
        fail("seed_weights has 0 values, but there are " + to_text(seeds.nodes.size) + " seeds");
      }
    }
  }

  template <typename Target>
  Links<Target> links() const {
    Links<Target> view{span_view<int64_t>(offsets), span_view<Target>(targets), {}};
    if (link_weights) {
      view.weights = span_view<float>(py::reinterpret_borrow<py::array>(link_weights));
      if (view.weights.size == 0 && view.targets.size > 0) {
        fail("weights has 0 values, but there are " + to_text(view.targets.size) + " targets");
      }
    }
    return view;
  }

  bool narrow = false;
  py::array offsets, targets, seed_nodes, seed_offsets;
  py::object link_weights;
  std::vector<double> weights_copy;
  Seeds seeds;
};

PyObject* bind_personalised_pagerank(PyObject* const* arguments) {
  const Arguments given(arguments);
  WalkOptions how;
  how.restart = py::float_(py::reinterpret_borrow<py::object>(arguments[6]));
  how.tolerance = py::float_(py::reinterpret_borrow<py::object>(arguments[7]));
  how.k = whole_number(arguments[8], "k", 0);
  const int threads = thread_count(arguments[9]);
  const auto run = [&](const auto& links) {
    const ReleasedGil released;
    return personalised_pagerank(links, given.seeds, how, threads);
  };
  const WalkResult result =
      given.narrow ? run(given.links<int32_t>()) : run(given.links<int64_t>());
  return Py_BuildValue("(NNNN)", array_of(result.nodes), array_of(result.scores),
                       array_of(result.offsets), array_of(result.left));
}

PyObject* bind_expand_links(PyObject* const* arguments) {
  const Arguments given(arguments);
  ExpandOptions how;
  how.hops = whole_number(arguments[6], "hops", 0);
  how.budget = whole_number(arguments[7], "budget", 0);
  const int threads = thread_count(arguments[8]);
  const auto run = [&](const auto& links) {
    const ReleasedGil released;
    return expand_links(links, given.seeds, how, threads);
  };
  const ExpandResult result =
      given.narrow ? run(given.links<int32_t>()) : run(given.links<int64_t>());
  return Py_BuildValue("(NNNN)", array_of(result.nodes), array_of(result.hops),
                       array_of(result.parents), array_of(result.offsets));
}

}  // namespace

void register_walk(py::module_& module) {
  define_fast<&bind_personalised_pagerank, 10>(
      module, "personalised_pagerank",
      "personalised_pagerank(offsets, targets, weights, seeds, seed_offsets, seed_weights, "
      "restart, tolerance, k, threads, /)\n--\n\n");
  define_fast<&bind_expand_links, 9>(
      module, "expand_links",
      "expand_links(offsets, targets, weights, seeds, seed_offsets, seed_weights, hops, budget, "
      "threads, /)\n--\n\n");
}

}  // namespace pytrace::bindings
