#include "words/words.h"

#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

template <typename Count>
void score(const py::array& rows, py::handle counts, Span<const float> norms,
           const WordQueries& queries, int threads, float* scores) {
  const py::array counted = exact_vector<Count>(counts, "counts");
  if (counted.size() != rows.size()) {
    fail("rows has " + to_text(rows.size()) + " postings, but counts " + to_text(counted.size()));
  }
  const Postings<Count> postings{span_view<uint16_t>(rows),
                                 static_cast<const Count*>(counted.data())};
  const ReleasedGil released;
  word_scores(postings, norms, queries, threads, scores);
}

PyObject* bind_word_scores(PyObject* const* arguments) {
  const py::handle counts = arguments[1];
  const py::array rows = exact_vector<uint16_t>(arguments[0], "rows");
  const py::array norms = exact_vector<float>(arguments[2], "norms");
  const py::array starts = int64_vector(arguments[3], "starts");
  const py::array ends = int64_vector(arguments[4], "ends");
  const py::array weights = exact_vector<float>(arguments[5], "weights");
  const py::array offsets = int64_vector(arguments[6], "offsets");
  const int team = thread_count(arguments[7]);
  const WordQueries queries{span_view<int64_t>(offsets), span_view<int64_t>(starts),
                            span_view<int64_t>(ends), span_view<float>(weights)};
  require_ranges(queries.starts, queries.ends, rows.size());
  require_offsets(queries.offsets, starts.size(), "offsets");
  if (weights.size() != starts.size()) {
    fail("there are " + to_text(starts.size()) + " words, but " + to_text(weights.size()) +
         " weights");
  }
  const Span<const float> row_norms = span_view<float>(norms);
  py::array scores = new_array<float>({offsets.size() - 1, norms.size()});
  auto* const out = values_of<float>(scores);
  const py::array counted = real_array(counts, "counts");
  if (counted.itemsize() == 1) {
    score<uint8_t>(rows, counted, row_norms, queries, team, out);
  } else if (counted.itemsize() == 2) {
    score<uint16_t>(rows, counted, row_norms, queries, team, out);
  } else {
    score<uint32_t>(rows, counted, row_norms, queries, team, out);
  }
  return scores.release().ptr();
}

PyObject* bind_live_postings(PyObject* const* arguments) {
  const py::array rows = exact_vector<uint16_t>(arguments[0], "rows");
  const py::array live = exact_vector<bool>(arguments[1], "live");
  const py::array starts = int64_vector(arguments[2], "starts");
  const py::array ends = int64_vector(arguments[3], "ends");
  require_ranges(span_view<int64_t>(starts), span_view<int64_t>(ends), rows.size());
  py::array counts = new_array<int64_t>({starts.size()});
  auto* const out = values_of<int64_t>(counts);
  {
    const ReleasedGil released;
    // As bytes: a view of other data may hold more than 0 and 1.
    live_postings(span_view<uint16_t>(rows), span_view<uint8_t>(live), span_view<int64_t>(starts),
                  span_view<int64_t>(ends), out);
  }
  return counts.release().ptr();
}

}  // namespace

void register_words(py::module_& module) {
  define_fast<&bind_word_scores, 8>(
      module, "word_scores",
      "word_scores(rows, counts, norms, starts, ends, weights, offsets, threads, /)\n--\n\n");
  define_fast<&bind_live_postings, 4>(module, "live_postings",
                                      "live_postings(rows, live, starts, ends, /)\n--\n\n");
}

}  // namespace pytrace::bindings
