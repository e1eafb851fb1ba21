// The half of the similarity kernel that is compiled once per instruction set; topk.cc picks one.
#pragma once

#include <cstdint>

#include "topk/topk.h"

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

struct ScoreKernels {
  // out[q * out_stride + i]: inner product, or squared Euclidean distance with item_scale applied.
  // The sum over the dimensions has one fixed order for a pair, whatever else the job holds.
  void (*score)(const ScoreJob& job, float* out, int64_t out_stride);

  // out[i]: what `score` gives for the job's first query and item which[i].
  void (*score_listed)(const ScoreJob& job, const int32_t* which, int64_t count, float* out);

  // The items as float32, unscaled: out[i * dim + d].
  void (*widen)(const ScoreJob& job, float* out);

  // Squared length of each item, unscaled, summed in the order that `score` uses.
  void (*squared_lengths)(const ScoreJob& job, float* out);

  // Queries of one register block: a job is fastest in multiples of it.
  int query_block;
};

namespace baseline {
extern const ScoreKernels kScoreKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const ScoreKernels kScoreKernels;
}
namespace avx512 {
extern const ScoreKernels kScoreKernels;
}
#endif

}  // namespace pytrace
