// MaxSim: how well documents answer questions, both given as one vector a token.
//
// The score of a question and a document is the sum, over the question's vectors, of the largest
// inner product with one of the document's (O. Khattab and M. Zaharia, "ColBERT: Efficient and
// Effective Passage Search via Contextualized Late Interaction over BERT", SIGIR 2020,
// section 3.3).
//
// Fused, so that no matrix of products exists. A question's vectors are laid out once in panels of
// two registers' lanes, a lane a vector; a tile of the document's rows meets a panel in registers,
// each value broadcast to all lanes, and the tile's products raise the panel's running maxima
// without any sum across lanes. float16 and int8 rows are widened a tile at a time. Time
// O(question's vectors * document's vectors * dim) multiply-adds for each pair; memory O(dim)
// floats for each vector of the questions at hand, and with top-k one score a pair of up to
// kPairsAtOnce pairs or of one question.
//
// A product's sum goes along the dimensions in their order, maxima are added in float64 in the
// order of the question's vectors, and one thread does a pair: scores do not depend on threads, on
// the rest of the batch or on where arrays lie. AVX2, AVX-512 and NEON give the same; SSE2, which
// rounds products, differs by rounding. Equal scores are ordered by lower document.
#pragma once

#include <cstdint>

#include "common/views.h"
#include "topk/topk.h"

namespace pytrace {

// Question g has queries[query_offsets[g]:query_offsets[g + 1]], document d
// documents[document_offsets[d]:document_offsets[d + 1]]. Where there are candidate_offsets,
// question g sees the documents candidates[candidate_offsets[g]:candidate_offsets[g + 1]] (-1
// stands for none), else all of them.
struct MaxSimInput {
  Matrix<const float> queries;
  Items documents;
  Span<const int64_t> query_offsets;
  Span<const int64_t> document_offsets;
  Span<const int64_t> candidates;
  Span<const int64_t> candidate_offsets;

  int64_t question_count() const { return query_offsets.size - 1; }
  int64_t document_count() const { return document_offsets.size - 1; }
};

// Throws std::invalid_argument with the numbers where shapes, offsets or candidates do not fit.
void check_max_sim(const MaxSimInput& input);

// One score a candidate, or [questions, documents] where there are none. A document without
// vectors, and a candidate that is -1, have -inf; a question without vectors has 0 with all.
// Both functions take what check_max_sim let through. They throw std::invalid_argument for a value
// or a score that is not finite.
void max_sim(const MaxSimInput& input, int threads, float* scores);

// The k best of each question, [questions, k], best first; -inf is not among them. Where there are
// fewer, the rest is -1 with -inf.
void max_sim_top_k(const MaxSimInput& input, int64_t k, int threads, float* scores,
                   int64_t* indices);

}  // namespace pytrace
