// Means of embeddings: what a static encoder makes of the tokens of a text.
//
// A bag is a run of tokens; its vector is the mean of the tokens' rows of a table, each times its
// token's weight where there are weights, divided by the number of tokens (Bojanowski et al.,
// "Enriching Word Vectors with Subword Information", TACL 2017, section 3; the weights and the
// mapping of tokens to rows are those of model2vec). Rows are added up in registers, a block of
// dimensions at a time, while the next rows are asked for. Time O(tokens * dim), memory O(longest
// bag) a thread.
//
// Rows are added in float32 in the order of the tokens and one thread does a bag, so that results
// do not depend on threads or on the rest of the batch. NaN and infinity in the table pass through.
#pragma once

#include <cstdint>

#include "common/views.h"
#include "topk/topk.h"

namespace pytrace {

// Bag b holds tokens[offsets[b]:offsets[b + 1]].
struct Bags {
  Items table;
  Span<const int64_t> offsets;
  const Span<const float>* weights = nullptr;    // one a token; nullptr: 1
  const Span<const int64_t>* mapping = nullptr;  // the row of each token, -1: a token that does not
                                                 // count; nullptr: the token's own number
};

// Fills out, [bags, table.cols]; a bag without tokens that count gets zeros. `normalize` divides
// each vector by its length, computed in float64. Throws std::invalid_argument for offsets that do
// not fit, and for a token or a row that does not exist. Token is int32_t or int64_t.
template <typename Token>
void embedding_bag(const Bags& bags, Span<const Token> tokens, bool normalize, int threads,
                   float* out);

}  // namespace pytrace
