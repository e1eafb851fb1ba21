// The half of the similarity kernel that is compiled once per instruction set; topk.cc picks one.
#pragma once

#include <cstdint>

#include "topk.h"

namespace pytrace {

// Some queries against some items: rows are `stride` values apart (negative and zero strides are
// fine).
struct ScoreJob {
  const float* queries;
  int64_t query_stride;
  int64_t query_count;
  const void* items;  // float, uint16_t (IEEE half) or int8_t, by item_type
  int64_t item_stride;
  int64_t item_count;
  ItemType item_type;
  int64_t dim;
  const float* item_scale;  // one factor an item, or nullptr
  bool streamed;            // the items come from memory rather than from a cache
  bool squared_distance;    // instead of the inner product (which item_scale does not touch)
};

// Up to here choosing the best by comparing all with a few bounds, which vectors do without a
// branch, beats keeping a list.
inline constexpr int64_t kMaxSelected = 256;

struct VectorKernels {
  // out[q * out_stride + i]: inner product, or squared Euclidean distance with item_scale applied.
  // The sum over the dimensions has one fixed order for a pair, whatever else the job holds.
  void (*score)(const ScoreJob& job, float* out, int64_t out_stride);

  // out[i]: what `score` gives for the job's first query and item which[i].
  void (*score_listed)(const ScoreJob& job, const int32_t* which, int64_t count, float* out);

  // The items as float32, unscaled: out[i * dim + d].
  void (*widen)(const ScoreJob& job, float* out);

  // Squared length of each item, unscaled, summed in the order that `score` uses.
  void (*squared_lengths)(const ScoreJob& job, float* out);

  // Turns one query's raw scores into what ranks them, higher being better: inner product times
  // scale, cosine (zero where a length is zero), or the negative distance. Returns false if one of
  // them is not finite.
  bool (*finish)(float* scores, int64_t count, Metric metric, const float* scale,
                 const float* lengths, float query_length);

  // The first position at or after `begin` that holds a score above `threshold`, rounded down to a
  // multiple of some block; `count` if there is none.
  int64_t (*find_above)(const float* scores, int64_t begin, int64_t count, float threshold);

  // The k best of `count` scores (at most kMaxSelected), best first, equal ones by position; -inf
  // does not count. Returns how many there are. Both results need room for kMaxSelected values, and
  // `scores` for `count` rounded up to 32, which it may write to.
  int64_t (*select)(float* scores, int64_t count, int64_t k, float* best, int32_t* positions);

  // Queries of one register block: a job is fastest in multiples of it.
  int query_block;
};

namespace baseline {
extern const VectorKernels kTopKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const VectorKernels kTopKernels;
}
namespace avx512 {
extern const VectorKernels kTopKernels;
}
#endif

}  // namespace pytrace
