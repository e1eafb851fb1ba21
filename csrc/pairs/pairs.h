// What tells whether two passages answer a question together: a row of numbers for each pair, for
// many questions at once. What each number says stands in pytrace/retrieval/hops/features.py.
//
// Words and names are numbers; a word weighs log(1 + (n - f + 0.5) / (f + 0.5)), where f of n
// passages have it (Lucene's inverse document frequency). For each first passage of pairs a table
// is made of its words that the question does not have, and of the question's words that it lacks;
// a second passage's words are looked up there, each once. So a question takes O(words of all
// seconds
// + pairs * dimension), and no word of the corpus that is in none of its passages is touched.
//
// Each question is computed by one thread, in an order in which the others have no part. Sums of
// products run in a fixed number of lanes, so that they are the same with every instruction set.
#pragma once

#include <cstdint>

#include "common/views.h"

namespace pytrace {

inline constexpr int64_t kPairFeatures = 24;

// What a corpus knows, read where it lies. What a corrupt file may hold (a word that is none)
// counts as nothing.
struct PairCorpus {
  Span<const int32_t> frequencies;  // of each word, how many passages have it
  int64_t passages = 0;             // how many there are
};

// Lists of numbers, one behind the other: list i is values[offsets[i]] to values[offsets[i + 1]].
struct Lists {
  Span<const int64_t> offsets;
  Span<const int32_t> values;
};

struct PairQuestions {
  Matrix<const float> vectors;
  Lists words;                  // each once, rising
  Span<const double> totals;    // the squared weights of all words of each, added up
  Span<const int64_t> offsets;  // candidates of question q: [offsets[q], offsets[q + 1])
};

struct PairCandidates {
  Matrix<const float> vectors;
  Matrix<const double> scores;  // of each: near, words, named, rarity of the name
  Lists words;                  // of each, rising
  Span<const int64_t> names;    // names of candidate c: [names[c], names[c + 1])
  Lists name_words;             // of each name, each word once; -1: a word that no passage has
};

// Pairs of question q: [offsets[q], offsets[q + 1]), places among its candidates; those of one
// first side by side, or else the work is done anew.
struct Pairs {
  Span<const int64_t> offsets;
  Span<const int64_t> firsts;
  Span<const int64_t> seconds;
  Span<const float> forth;  // what a link from the first to the second weighs, 0: there is none
  Span<const float> back;
};

// Fills features, [pairs, kPairFeatures]. Throws std::invalid_argument where sizes, offsets or
// places do not go together.
void pair_features(const PairCorpus& corpus, const PairQuestions& questions,
                   const PairCandidates& candidates, const Pairs& pairs, int threads,
                   double* features);

}  // namespace pytrace
