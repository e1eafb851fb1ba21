// Scores of BM25, summed over the postings of words, for rows of up to 65,536 that lie in one
// block.
//
// Each posting is a row, in 16 bits, and how often the word stands there. Its share is weight *
// count / (count + norm[row]), where the weight is the word's inverse document frequency times how
// often it stands in the query, and the norm holds k1, b and the row's length (Robertson and
// Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.4). Time
// O(rows * queries + postings), one division a posting; a block's norms and scores stay in the
// second-level cache, and postings are read once, in order.
//
// A row's shares are added in the order of the query's words, in float32, so that scores depend
// neither on how rows are cut into blocks nor on threads. Postings of rows that are not there are
// passed over, for files may be damaged.
#pragma once

#include <cstdint>

#include "common/views.h"

namespace pytrace {

// One count a posting, of type uint8_t, uint16_t or uint32_t.
template <typename Count>
struct Postings {
  Span<const uint16_t> rows;
  const Count* counts = nullptr;
};

// Word w of query q, for w from offsets[q] to offsets[q + 1], has postings starts[w] to ends[w].
struct WordQueries {
  Span<const int64_t> offsets;
  Span<const int64_t> starts;
  Span<const int64_t> ends;
  Span<const float> weights;
};

// Throws std::invalid_argument unless every range lies within the postings.
void require_ranges(Span<const int64_t> starts, Span<const int64_t> ends, int64_t postings);

// Fills scores, [queries, norms.size], contiguous.
template <typename Count>
void word_scores(const Postings<Count>& postings, Span<const float> norms,
                 const WordQueries& queries, int threads, float* scores);

// The best rows of each query, over blocks that are offered one after the other: row q of `scores`
// and `rows`, [queries, k], holds the best so far, best first, ties by lower row; -inf and -1 where
// there are fewer.
struct BestRows {
  Matrix<float> scores;
  Matrix<int64_t> rows;
};

// Puts the rows of a block that share a word with a query and are allowed (`allowed` has a byte
// for each, or is empty: all) among the best, numbered from `first`, which must be above all that
// were offered before. Scores are those of word_scores, and are held for one query a thread.
template <typename Count>
void word_top(const Postings<Count>& postings, Span<const float> norms, const WordQueries& queries,
              Span<const uint8_t> allowed, int64_t first, const BestRows& best, int threads);

// Scores of some rows of each query only: fills scores[r] for r from row_offsets[q] to
// row_offsets[q + 1], where norms[r] is the norm of rows[r]. Time O(rows * log(postings)) a word.
template <typename Count>
void word_scores_of(const Postings<Count>& postings, const WordQueries& queries,
                    Span<const int64_t> row_offsets, Span<const uint16_t> rows,
                    Span<const float> norms, int threads, float* scores);

// Fills counts[w] with how many postings of starts[w] to ends[w] are of rows where `live` is not 0.
void live_postings(Span<const uint16_t> rows, Span<const uint8_t> live, Span<const int64_t> starts,
                   Span<const int64_t> ends, int64_t* counts);

}  // namespace pytrace
