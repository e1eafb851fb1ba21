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
  const py::array questions = matrix_of<float>(arguments[2], "questions");
  const Int64s question_offsets(arguments[3], "question_words' offsets");
  const py::array question_words = exact_vector<int32_t>(arguments[4], "question_words");
  const py::array totals = exact_vector<double>(arguments[5], "totals");
  const Int64s offsets(arguments[6], "offsets");
  const py::array vectors = matrix_of<float>(arguments[7], "vectors");
  const py::array scores = matrix_of<double>(arguments[8], "scores");
  const Int64s word_offsets(arguments[9], "words' offsets");
  const py::array words = exact_vector<int32_t>(arguments[10], "words");
  const Int64s names(arguments[11], "names");
  const Int64s name_offsets(arguments[12], "name_words' offsets");
  const py::array name_words = exact_vector<int32_t>(arguments[13], "name_words");
  const Int64s pair_offsets(arguments[14], "pair_offsets");
  const Int64s firsts(arguments[15], "firsts");
  const Int64s seconds(arguments[16], "seconds");
  const py::array forth = exact_vector<float>(arguments[17], "forth");
  const py::array back = exact_vector<float>(arguments[18], "back");
  const int threads = thread_count(arguments[19]);
  const PairCorpus corpus{span_view<int32_t>(frequencies), passages};
  const PairQuestions asked{matrix_view<float>(questions),
                            {question_offsets.view(), span_view<int32_t>(question_words)},
                            span_view<double>(totals),
                            offsets.view()};
  const PairCandidates candidates{matrix_view<float>(vectors),
                                  matrix_view<double>(scores),
                                  {word_offsets.view(), span_view<int32_t>(words)},
                                  names.view(),
                                  {name_offsets.view(), span_view<int32_t>(name_words)}};
  const Pairs pairs{pair_offsets.view(), firsts.view(), seconds.view(), span_view<float>(forth),
                    span_view<float>(back)};
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
  define_fast<&bind_pair_features, 20>(
      module, "pair_features",
      "pair_features(frequencies, passages, questions, question_offsets, question_words, totals, "
      "offsets, vectors, scores, word_offsets, words, names, name_offsets, name_words, "
      "pair_offsets, firsts, seconds, forth, back, threads, /)\n--\n\n");
}

}  // namespace pytrace::bindings
