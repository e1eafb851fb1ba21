// What a beam step must be like, wherever it runs: throws std::invalid_argument otherwise. Scores,
// finished and logits are not read, so that they may lie on a card.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "beam/beam.h"

namespace pytrace {

[[noreturn]] inline void fail_for_score(int64_t chain, double score) {
  fail("chain_scores[" + to_text(chain) + "] is " + (std::isnan(score) ? "NaN" : "infinite") +
       "; it must be a log-probability");
}

// Says which of a chain's logits is NaN or +inf.
template <typename T>
[[noreturn]] void fail_for_logits(int64_t chain, Span<const T> logits) {
  for (int64_t option = 0; option < logits.size; ++option) {
    const auto logit = static_cast<double>(logits[option]);
    if (logit < std::numeric_limits<double>::infinity()) continue;
    fail("option_logits of chain " + to_text(chain) + ", option " + to_text(option) + ", is " +
         (std::isnan(logit) ? "NaN" : "infinite") + "; only -inf stands for an impossible option");
  }
  fail("option_logits of chain " + to_text(chain) + " changed during the call");
}

template <typename T>
void require_step(const BeamInput& input, const Options<T>& options, const BeamOptions& how) {
  const int64_t chains = input.scores.size;
  if (how.beams < 1) fail("beams is " + to_text(how.beams) + "; it must be at least 1");
  if (how.chains < 1) fail("chains is " + to_text(how.chains) + "; it must be at least 1");
  if (!(how.min_prob >= 0.0 && how.min_prob <= 1.0)) {
    fail("min_prob is " + std::to_string(how.min_prob) + "; it must be from 0 to 1");
  }
  if (!(how.length_penalty >= 0.0 &&
        how.length_penalty < std::numeric_limits<double>::infinity())) {
    fail("length_penalty is " + std::to_string(how.length_penalty) +
         "; it must be at least 0 and finite");
  }
  if (input.finished.size != chains) {
    fail("finished has " + to_text(input.finished.size) + " values, but there are " +
         to_text(chains) + " chain_scores");
  }
  require_offsets(input.question_offsets, chains, "question_offsets");
  if (input.lengths.size > 0 || how.length_penalty != 0.0) {
    if (input.lengths.size != chains) {
      fail("lengths has " + to_text(input.lengths.size) + " values, but there are " +
           to_text(chains) + " chain_scores; length_penalty needs one a chain");
    }
    for (int64_t chain = 0; chain < chains; ++chain) {
      // The step that comes is counted too.
      if (input.lengths[chain] < 0 || input.lengths[chain] == std::numeric_limits<int64_t>::max()) {
        fail("lengths[" + to_text(chain) + "] is " + to_text(input.lengths[chain]) +
             "; it must be at least 0 and below 9223372036854775807");
      }
    }
  }
  if (options.offsets.size > 0) {
    if (options.offsets.size != chains + 1) {
      fail("option_offsets has " + to_text(options.offsets.size) + " values, but " +
           to_text(chains) + " chains need " + to_text(chains + 1));
    }
    require_offsets(options.offsets, options.flat.size, "option_offsets");
  } else if (options.matrix.rows != chains) {
    fail("option_logits has " + to_text(options.matrix.rows) + " rows, but there are " +
         to_text(chains) + " chain_scores");
  }
}

}  // namespace pytrace
