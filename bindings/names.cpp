#include "names/names.h"

#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

PyObject* bind_build_names(PyObject* const* arguments) {
  const py::array bytes = exact_vector<uint8_t>(arguments[0], "text");
  const py::array offsets = int64_vector(arguments[1], "offsets");
  const int threads = thread_count(arguments[2]);
  BuiltNames built;
  {
    const ReleasedGil released;
    built = build_names({span_view<uint8_t>(bytes), span_view<int64_t>(offsets)}, threads);
  }
  return Py_BuildValue("(NNNNNN)", array_of(built.hashes), array_of(built.bytes),
                       array_of(built.offsets), array_of(built.firsts), array_of(built.lengths),
                       array_of(built.rows));
}

PyObject* bind_find_names(PyObject* const* arguments) {
  const py::array hashes = exact_vector<uint64_t>(arguments[0], "hashes");
  const py::array bytes = exact_vector<uint8_t>(arguments[1], "text");
  const py::array offsets = exact_vector<int64_t>(arguments[2], "offsets");
  const py::array firsts = exact_vector<uint64_t>(arguments[3], "firsts");
  const py::array lengths = exact_vector<uint64_t>(arguments[4], "lengths");
  const py::array text_bytes = exact_vector<uint8_t>(arguments[5], "texts");
  const py::array text_offsets = int64_vector(arguments[6], "text_offsets");
  const int index = PyObject_IsTrue(arguments[7]);
  if (index < 0) throw py::error_already_set();
  const int threads = thread_count(arguments[8]);
  if (offsets.size() < 1) fail("offsets is empty; it needs at least the value 0");
  const NameTable table{span_view<uint64_t>(hashes),
                        {span_view<uint8_t>(bytes), span_view<int64_t>(offsets)},
                        span_view<uint64_t>(firsts),
                        span_view<uint64_t>(lengths)};
  const Strings texts{span_view<uint8_t>(text_bytes), span_view<int64_t>(text_offsets)};
  NameHits hits;
  {
    const ReleasedGil released;
    hits = find_names(table, texts, index != 0, threads);
  }
  return Py_BuildValue("(NNNN)", array_of(hits.offsets), array_of(hits.names),
                       array_of(hits.starts), array_of(hits.ends));
}

}  // namespace

void register_names(py::module_& module) {
  define_fast<&bind_build_names, 3>(module, "build_names",
                                    "build_names(text, offsets, threads, /)\n--\n\n");
  define_fast<&bind_find_names, 9>(
      module, "find_names",
      "find_names(hashes, text, offsets, firsts, lengths, texts, text_offsets, index, threads, "
      "/)\n--\n\n");
}

}  // namespace pytrace::bindings
