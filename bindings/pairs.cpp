#include "pairs/pairs.h"

#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

template <typename T>
py::array matrix_of(py::handle object, const char* name) {
  const py::array array = real_array(object, name);
  require_rank(array, 2, name);
  return rows_of<T>(array);
}

// A copy: it is checked before it is used, and another thread may write to what was given.
struct Int64s {
  Int64s(py::handle object, const char* name) : array(int64_vector(object, name)) {}
  Span<const int64_t> view() const { return span_view<int64_t>(array); }
  py::array array;
};

PyObject* bind_pair_features(PyObject* const* arguments) {
  const py::array frequencies = exact_vector<int32_t>(arguments[0], "frequencies");
  const int64_t passages = whole_number(arguments[1], "passages", 0);
  const Int64s link_offsets(arguments[2], "links' offsets");
  const py::array links = exact_vector<int32_t>(arguments[3], "links");
  const py::array forth = exact_vector<float>(arguments[4], "forth");
  const py::array back = exact_vector<float>(arguments[5], "back");
  const py::array questions = matrix_of<float>(arguments[6], "questions");
  const Int64s question_offsets(arguments[7], "question_words' offsets");
  const py::array question_words = exact_vector<int32_t>(arguments[8], "question_words");
  const py::array totals = exact_vector<double>(arguments[9], "totals");
  const Int64s offsets(arguments[10], "offsets");
  const Int64s rows(arguments[11], "rows");
  const py::array vectors = matrix_of<float>(arguments[12], "vectors");
  const py::array scores = matrix_of<double>(arguments[13], "scores");
  const Int64s word_offsets(arguments[14], "words' offsets");
  const py::array words = exact_vector<int32_t>(arguments[15], "words");
  const Int64s names(arguments[16], "names");
  const Int64s name_offsets(arguments[17], "name_words' offsets");
  const py::array name_words = exact_vector<int32_t>(arguments[18], "name_words");
  const Int64s pair_offsets(arguments[19], "pair_offsets");
  const Int64s firsts(arguments[20], "firsts");
  const Int64s seconds(arguments[21], "seconds");
  const int threads = thread_count(arguments[22]);
  const PairCorpus corpus{span_view<int32_t>(frequencies), passages};
  const PairQuestions asked{matrix_view<float>(questions),
                            {question_offsets.view(), span_view<int32_t>(question_words)},
                            span_view<double>(totals),
                            offsets.view()};
  const PairCandidates candidates{rows.view(),
                                  {{link_offsets.view(), span_view<int32_t>(links)},
                                   span_view<float>(forth),
                                   span_view<float>(back)},
                                  matrix_view<float>(vectors),
                                  matrix_view<double>(scores),
                                  {word_offsets.view(), span_view<int32_t>(words)},
                                  names.view(),
                                  {name_offsets.view(), span_view<int32_t>(name_words)}};
  const Pairs pairs{pair_offsets.view(), firsts.view(), seconds.view()};
  py::array features = new_array<double>({firsts.array.size(), kPairFeatures});
  auto* const out = values_of<double>(features);
  {
    const ReleasedGil released;
    pair_features(corpus, asked, candidates, pairs, threads, out);
  }
  return features.release().ptr();
}

}  // namespace

void register_pairs(py::module_& module) {
  define_fast<&bind_pair_features, 23>(
      module, "pair_features",
      "pair_features(frequencies, passages, link_offsets, links, forth, back, questions, "
      "question_offsets, question_words, totals, offsets, rows, vectors, scores, word_offsets, "
      "words, names, name_offsets, name_words, pair_offsets, firsts, seconds, threads, /)\n--\n\n");
}

}  // namespace pytrace::bindings
