#include "words/words.h"

#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

// Queries' words and where their postings stand, as views of arrays that it keeps.
struct Queries {
  Queries(PyObject* const* arguments, int64_t postings)
      : starts(int64_vector(arguments[0], "starts")),
        ends(int64_vector(arguments[1], "ends")),
        weights(exact_vector<float>(arguments[2], "weights")),
        offsets(int64_vector(arguments[3], "offsets")),
        view{span_view<int64_t>(offsets), span_view<int64_t>(starts), span_view<int64_t>(ends),
             span_view<float>(weights)} {
    require_ranges(view.starts, view.ends, postings);
    require_offsets(view.offsets, starts.size(), "offsets");
    if (weights.size() != starts.size()) {
      fail("there are " + to_text(starts.size()) + " words, but " + to_text(weights.size()) +
           " weights");
    }
  }

  py::array starts, ends, weights, offsets;
  WordQueries view;
};

// Calls compute(postings) with counts of the type that they have.
template <typename Compute>
void with_postings(const py::array& rows, py::handle counts, const Compute& compute) {
  const auto call = [&](auto zero) {
    using Count = decltype(zero);
    const py::array counted = exact_vector<Count>(counts, "counts");
    if (counted.size() != rows.size()) {
      fail("rows has " + to_text(rows.size()) + " postings, but counts " + to_text(counted.size()));
    }
    const ReleasedGil released;
    compute(Postings<Count>{span_view<uint16_t>(rows), static_cast<const Count*>(counted.data())});
  };
  const py::array counted = real_array(counts, "counts");
  if (counted.itemsize() == 1) {
    call(uint8_t{});
  } else if (counted.itemsize() == 2) {
    call(uint16_t{});
  } else {
    call(uint32_t{});
  }
}

PyObject* bind_word_scores(PyObject* const* arguments) {
  const py::array rows = exact_vector<uint16_t>(arguments[0], "rows");
  const py::array norms = exact_vector<float>(arguments[2], "norms");
  const Queries queries(arguments + 3, rows.size());
  const int team = thread_count(arguments[7]);
  py::array scores = new_array<float>({queries.offsets.size() - 1, norms.size()});
  auto* const out = values_of<float>(scores);
  with_postings(rows, arguments[1], [&](const auto& postings) {
    word_scores(postings, span_view<float>(norms), queries.view, team, out);
  });
  return scores.release().ptr();
}

PyObject* bind_word_scores_of(PyObject* const* arguments) {
  const py::array rows = exact_vector<uint16_t>(arguments[0], "rows");
  const Queries queries(arguments + 2, rows.size());
  const py::array row_offsets = int64_vector(arguments[6], "row_offsets");
  const py::array wanted = exact_vector<uint16_t>(arguments[7], "wanted");
  const py::array norms = exact_vector<float>(arguments[8], "norms");
  const int team = thread_count(arguments[9]);
  require_offsets(span_view<int64_t>(row_offsets), wanted.size(), "row_offsets");
  if (row_offsets.size() != queries.offsets.size()) {
    fail("there are " + to_text(queries.offsets.size() - 1) + " queries, but rows of " +
         to_text(row_offsets.size() - 1));
  }
  if (norms.size() != wanted.size()) {
    fail("there are " + to_text(wanted.size()) + " rows, but " + to_text(norms.size()) + " norms");
  }
  py::array scores = new_array<float>({wanted.size()});
  auto* const out = values_of<float>(scores);
  with_postings(rows, arguments[1], [&](const auto& postings) {
    word_scores_of(postings, queries.view, span_view<int64_t>(row_offsets),
                   span_view<uint16_t>(wanted), span_view<float>(norms), team, out);
  });
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
  define_fast<&bind_word_scores_of, 10>(
      module, "word_scores_of",
      "word_scores_of(rows, counts, starts, ends, weights, offsets, row_offsets, wanted, norms, "
      "threads, /)\n--\n\n");
  define_fast<&bind_live_postings, 4>(module, "live_postings",
                                      "live_postings(rows, live, starts, ends, /)\n--\n\n");
}

}  // namespace pytrace::bindings
