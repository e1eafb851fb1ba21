// The two searches behind minimum_cover.
#pragma once

#include <cstdint>
#include <vector>

#include "cover/cover_bits.h"

namespace pytrace {

struct FoundCover {
  std::vector<int64_t> sets;
  double bound = 0.0;    // no cover weighs less
  bool optimal = false;  // this one weighs no more than the bound
  int64_t nodes = 0;
};

// Searches for a cover of `features` that is lighter than `incumbent`, which is one.
FoundCover search_cover(const CoverProblem& problem, const CoverLimits& limits,
                        const std::vector<Word>& features, const std::vector<int64_t>& incumbent);

// The same for at most 64 sets and 64 features, which is nearly all that one question asks. Gives
// up, not optimal and without a bound, where better bounds are worth their price.
FoundCover search_small_cover(const CoverProblem& problem, Word features,
                              const std::vector<int64_t>& incumbent);

}  // namespace pytrace
