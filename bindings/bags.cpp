#include "bags/bags.h"

#include "arrays.h"
#include "calls.h"
#include "module.h"
#include "topk_arguments.h"

namespace pytrace::bindings {
namespace {

PyObject* bind_embedding_bag(PyObject* const* arguments) {
  const py::handle weights = arguments[3], mapping = arguments[4];
  const int normalize = PyObject_IsTrue(arguments[6]);
  if (normalize < 0) throw py::error_already_set();
  const int team = thread_count(arguments[7]);
  const ItemArrays table = read_items(arguments[0], arguments[5], "table");
  const py::array given = real_array(arguments[1], "tokens");
  const bool narrow = given.dtype().num() == py::dtype::num_of<int32_t>();
  const py::array tokens =
      narrow ? whole_numbers<int32_t>(given, "tokens") : whole_numbers<int64_t>(given, "tokens");
  const py::array offsets = int64_vector(arguments[2], "offsets");
  Bags bags;
  bags.table = table.view;
  bags.offsets = span_view<int64_t>(offsets);
  py::object weight_owner, mapping_owner;
  Span<const float> weight_view;
  Span<const int64_t> mapping_view;
  if (!weights.is_none()) {
    const py::array array = real_array(weights, "weights");
    require_rank(array, 1, "weights");
    const py::array values = rows_of<float>(array);
    weight_view = span_view<float>(values);
    weight_owner = values;
    bags.weights = &weight_view;
  }
  if (!mapping.is_none()) {
    const py::array values = whole_numbers<int64_t>(mapping, "mapping");
    mapping_view = span_view<int64_t>(values);
    mapping_owner = values;
    bags.mapping = &mapping_view;
  }
  if (bags.offsets.size == 0) fail("offsets is empty; it needs at least the value 0");
  py::array out = new_array<float>({bags.offsets.size - 1, bags.table.cols});
  float* const data = values_of<float>(out);
  {
    const ReleasedGil released;
    if (narrow) {
      embedding_bag(bags, span_view<int32_t>(tokens), normalize == 1, team, data);
    } else {
      embedding_bag(bags, span_view<int64_t>(tokens), normalize == 1, team, data);
    }
  }
  return out.release().ptr();
}

}  // namespace

void register_bags(py::module_& module) {
  define_fast<&bind_embedding_bag, 8>(
      module, "embedding_bag",
      "embedding_bag(table, tokens, offsets, weights, mapping, scale, normalize, threads, "
      "/)\n--\n\n");
}

}  // namespace pytrace::bindings
