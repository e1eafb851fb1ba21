#include "words/words.h"

#include <algorithm>
#include <limits>

#include "arrays.h"
#include "calls.h"
#include "module.h"
#include "words/word_hashes.h"
#include "words/word_lists.h"

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

// A copy of a matrix, to be changed.
template <typename T>
py::array copy_of(py::handle object, const char* name, int64_t rows, int64_t cols) {
  const py::array given = real_array(object, name);
  require_rank(given, 2, name);
  const py::array array = rows_of<T>(given);
  if (array.shape(0) != rows || array.shape(1) != cols) {
    fail(std::string(name) + " is [" + to_text(array.shape(0)) + ", " + to_text(array.shape(1)) +
         "]; [" + to_text(rows) + ", " + to_text(cols) + "] is due");
  }
  py::array copy = new_array<T>({rows, cols});
  const Matrix<const T> from = matrix_view<T>(array);
  T* out = values_of<T>(copy);
  for (int64_t row = 0; row < rows; ++row) out = std::copy_n(from.row(row), cols, out);
  return copy;
}

PyObject* bind_word_top(PyObject* const* arguments) {
  const py::array rows = exact_vector<uint16_t>(arguments[0], "rows");
  const py::array norms = exact_vector<float>(arguments[2], "norms");
  const Queries queries(arguments + 3, rows.size());
  const py::handle given(arguments[7]);
  const py::array allowed = given.is_none() ? py::array() : exact_vector<bool>(given, "allowed");
  const int64_t first = whole_number(arguments[8], "first", 0);
  const int team = thread_count(arguments[11]);
  const int64_t count = queries.offsets.size() - 1;
  if (first > std::numeric_limits<int64_t>::max() - norms.size()) {
    fail("first is " + to_text(first) + ", behind which there is no room for " +
         to_text(norms.size()) + " rows");
  }
  if (!given.is_none() && allowed.size() != norms.size()) {
    fail("there are " + to_text(norms.size()) + " rows, but " + to_text(allowed.size()) +
         " are allowed or not");
  }
  const py::array sized = real_array(arguments[9], "best_scores");
  require_rank(sized, 2, "best_scores");
  const int64_t k = sized.shape(1);
  py::array scores = copy_of<float>(sized, "best_scores", count, k);
  py::array numbers = copy_of<int64_t>(arguments[10], "best_rows", count, k);
  const BestRows best{{values_of<float>(scores), count, k, k},
                      {values_of<int64_t>(numbers), count, k, k}};
  with_postings(rows, arguments[1], [&](const auto& postings) {
    // As bytes: a view of other data may hold more than 0 and 1.
    word_top(postings, span_view<float>(norms), queries.view,
             given.is_none() ? Span<const uint8_t>{} : span_view<uint8_t>(allowed), first, best,
             team);
  });
  return py::make_tuple(scores, numbers).release().ptr();
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

PyObject* bind_hash_texts(PyObject* const* arguments) {
  const py::array bytes = exact_vector<uint8_t>(arguments[0], "text");
  const py::array offsets = int64_vector(arguments[1], "offsets");
  const int threads = thread_count(arguments[2]);
  const Strings texts{span_view<uint8_t>(bytes), span_view<int64_t>(offsets)};
  if (texts.offsets.size < 1) fail("offsets is empty; it needs at least the value 0");
  py::array hashes = new_array<uint64_t>({texts.size()});
  auto* const out = values_of<uint64_t>(hashes);
  {
    const ReleasedGil released;
    hash_texts(texts, threads, out);
  }
  return hashes.release().ptr();
}

PyObject* bind_hash_words(PyObject* const* arguments) {
  const py::array bytes = exact_vector<uint8_t>(arguments[0], "text");
  const py::array offsets = int64_vector(arguments[1], "offsets");
  const int threads = thread_count(arguments[2]);
  HashedWords words;
  {
    const ReleasedGil released;
    words = hash_words({span_view<uint8_t>(bytes), span_view<int64_t>(offsets)}, threads);
  }
  return Py_BuildValue("(NN)", array_of(words.offsets), array_of(words.hashes));
}

PyObject* bind_number_words(PyObject* const* arguments) {
  const py::array bytes = exact_vector<uint8_t>(arguments[0], "text");
  const py::array offsets = int64_vector(arguments[1], "offsets");
  NumberedWords words;
  {
    const ReleasedGil released;
    words = number_words({span_view<uint8_t>(bytes), span_view<int64_t>(offsets)});
  }
  return Py_BuildValue("(NNNN)", array_of(words.ids), array_of(words.lengths),
                       array_of(words.bytes), array_of(words.offsets));
}

PyObject* bind_turn_postings(PyObject* const* arguments) {
  const py::array rows = exact_vector<uint16_t>(arguments[0], "rows");
  const py::array starts = exact_vector<uint32_t>(arguments[1], "starts");
  const int64_t count = whole_number(arguments[2], "count", 0);
  const int64_t first = whole_number(arguments[3], "first", 0);
  const int64_t far = whole_number(arguments[4], "far", 1);
  if (count > 1 << 16 || far >= 1 << 16 || first > std::numeric_limits<int32_t>::max()) {
    fail("count is " + to_text(count) + ", first " + to_text(first) + " and far " + to_text(far) +
         "; they must be at most 65536, 2147483647 and 65535");
  }
  RowTerms turned;
  {
    const ReleasedGil released;
    turned = turn_postings(span_view<uint16_t>(rows), span_view<uint32_t>(starts), count, first,
                           static_cast<uint16_t>(far));
  }
  return Py_BuildValue("(NN)", array_of(turned.steps), array_of(turned.ends));
}

PyObject* bind_terms_of_rows(PyObject* const* arguments) {
  const std::vector<py::tuple> given = tuples_of(arguments[0], "parts", 3);
  const py::array owners = int64_vector(arguments[1], "owners");
  const py::array rows = int64_vector(arguments[2], "rows");
  const int64_t far = whole_number(arguments[3], "far", 1);
  if (far >= 1 << 16) fail("far is " + to_text(far) + "; it must be at most 65535");
  const int threads = thread_count(arguments[4]);
  std::vector<py::array> arrays;
  std::vector<RowTermsPart> parts;
  for (const py::tuple& part : given) {
    const auto first = arrays.size();
    arrays.push_back(exact_vector<uint16_t>(part[0], "steps"));
    arrays.push_back(exact_vector<uint32_t>(part[1], "starts"));
    arrays.push_back(exact_vector<int32_t>(part[2], "numbers"));
    parts.push_back({span_view<uint16_t>(arrays[first]), span_view<uint32_t>(arrays[first + 1]),
                     span_view<int32_t>(arrays[first + 2])});
  }
  TermLists found;
  {
    const ReleasedGil released;
    found = terms_of_rows(parts, span_view<int64_t>(owners), span_view<int64_t>(rows),
                          static_cast<uint16_t>(far), threads);
  }
  return Py_BuildValue("(NN)", array_of(found.offsets), array_of(found.terms));
}

}  // namespace

void register_words(py::module_& module) {
  define_fast<&bind_word_scores, 8>(
      module, "word_scores",
      "word_scores(rows, counts, norms, starts, ends, weights, offsets, threads, /)\n--\n\n");
  define_fast<&bind_word_top, 12>(
      module, "word_top",
      "word_top(rows, counts, norms, starts, ends, weights, offsets, allowed, first, best_scores, "
      "best_rows, threads, /)\n--\n\n");
  define_fast<&bind_word_scores_of, 10>(
      module, "word_scores_of",
      "word_scores_of(rows, counts, starts, ends, weights, offsets, row_offsets, wanted, norms, "
      "threads, /)\n--\n\n");
  define_fast<&bind_live_postings, 4>(module, "live_postings",
                                      "live_postings(rows, live, starts, ends, /)\n--\n\n");
  define_fast<&bind_hash_texts, 3>(module, "hash_texts",
                                   "hash_texts(text, offsets, threads, /)\n--\n\n");
  define_fast<&bind_number_words, 2>(module, "number_words",
                                     "number_words(text, offsets, /)\n--\n\n");
  define_fast<&bind_turn_postings, 5>(module, "turn_postings",
                                      "turn_postings(rows, starts, count, first, far, /)\n--\n\n");
  define_fast<&bind_terms_of_rows, 5>(
      module, "terms_of_rows", "terms_of_rows(parts, owners, rows, far, threads, /)\n--\n\n");
  define_fast<&bind_hash_words, 3>(module, "hash_words",
                                   "hash_words(text, offsets, threads, /)\n--\n\n");
}

}  // namespace pytrace::bindings
