// From raw scores to ranks and to the best of them: compiled once per instruction set.
#pragma once

#include <cstdint>

#include "topk/topk.h"

namespace pytrace {

// Up to here choosing the best by comparing all with a few bounds, which vectors do without a
// branch, beats keeping a list.
inline constexpr int64_t kMaxSelected = 1024;

struct SelectKernels {
  // Turns one query's raw scores into what ranks them, higher being better: inner product times
  // scale, cosine (zero where a length is zero), or the negative distance. Returns false if one of
  // them is not finite.
  bool (*finish)(float* scores, int64_t count, Metric metric, const float* scale,
                 const float* lengths, float query_length);

  // The positions, in order, of the scores above `threshold`; returns how many there are. Reads
  // `scores` up to a multiple of 32, and needs room for 16 positions more than there are.
  int64_t (*find_above)(const float* scores, int64_t count, float threshold, int32_t* positions);

  // The k best of `count` scores (at most kMaxSelected), best first, equal ones by position; -inf
  // does not count. Returns how many there are. Both results need room for kMaxSelected values, and
  // `scores` for `count` rounded up to 32, which it may write to.
  int64_t (*select)(float* scores, int64_t count, int64_t k, float* best, int32_t* positions);
};

namespace baseline {
extern const SelectKernels kSelectKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const SelectKernels kSelectKernels;
}
namespace avx512 {
extern const SelectKernels kSelectKernels;
}
#endif

}  // namespace pytrace
