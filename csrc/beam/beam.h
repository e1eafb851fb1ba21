// One step of a beam search over chains, for many questions at once.
//
// Algorithm 1 of TRACE (Fang et al., 2024): each live chain's options are scored by log softmax,
// its `beams` best are tried, and each question keeps its `chains` best results by accumulated
// log-probability. Chains that ended are carried over and compete with the rest. All in float64;
// time O(options + results log results) a question.
//
// Ties: equal scores fall to the lower parent, then to the option with the higher logit, then to
// the lower option. Results do not depend on threads; between instruction sets they may differ in
// the last bit.

#pragma once

#include <cstdint>
#include <vector>

#include "common/views.h"

namespace pytrace {

// The options' logits of all chains: a matrix with a row a chain, or ragged by `offsets` (used if
// not empty).
template <typename T>
struct Options {
  Matrix<const T> matrix;
  Span<const T> flat;
  Span<const int64_t> offsets;

  Span<const T> of(int64_t chain) const {
    if (offsets.size == 0) return {matrix.row(chain), matrix.cols};
    return {flat.data + offsets[chain], offsets[chain + 1] - offsets[chain]};
  }
  int64_t size() const { return offsets.size == 0 ? matrix.rows * matrix.cols : flat.size; }
};

struct BeamInput {
  Span<const double> scores;             // accumulated log-probability a chain
  Span<const uint8_t> finished;          // not 0: the chain ended
  Span<const int64_t> question_offsets;  // chains of question g: [offsets[g], offsets[g + 1])
  Span<const int64_t> lengths;  // steps a chain has taken; needed if length_penalty is not 0
};

struct BeamOptions {
  int64_t beams = 1;            // options tried a chain
  int64_t chains = 1;           // results kept a question
  double min_prob = 0.0;        // options below this probability are dropped
  int64_t terminate = -1;       // the option that ends a chain; -1: none does
  double length_penalty = 0.0;  // chains are ranked by score / steps^length_penalty
};

// A chain after the step.
struct Extension {
  int64_t parent;
  int64_t option;  // -1: the chain was carried over as it was
  double score;
  double step;  // log-probability of the option; 0 for a chain carried over
  bool finished;
  bool stuck;  // carried over unfinished, because no option was possible
};

// Extensions, question by question and best first: those of question g are [offsets[g], offsets[g +
// 1]).
struct BeamResult {
  std::vector<Extension> extensions;
  std::vector<int64_t> offsets;
};

// Throws std::invalid_argument for NaN or +inf scores or logits, offsets that do not fit, and
// options out of range.
template <typename T>
BeamResult expand(const BeamInput& input, const Options<T>& options, const BeamOptions& how,
                  int threads);

// The logarithm of the sum of exponentials, within a millionth: what turns a vocabulary's logits
// into log-probabilities. -inf without a finite value, NaN if a value is NaN or +inf.
double log_sum_exp(Span<const float> values);

extern template BeamResult expand(const BeamInput&, const Options<float>&, const BeamOptions&, int);
extern template BeamResult expand(const BeamInput&, const Options<double>&, const BeamOptions&,
                                  int);

}  // namespace pytrace
