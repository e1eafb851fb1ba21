// The score of a pair on a card: one order of sums for a pair, whatever else is computed beside it.
//
// Eight lanes share a pair. Lane j adds, with one rounding each, the products of the 16-byte packs
// j, j + 8, j + 16, ... of the item's row in rising order; then the eight sums are added in a tree
// (distances 4, 2, 1). What a pair scores therefore depends on the two vectors and the items' type
// alone: not on the batch, the tile, the launch or the card. The processor's sums have another
// order and may differ by rounding.
#pragma once

#include <cstdint>

#include "cuda/device.cuh"

namespace pytrace::cuda {

inline constexpr int kLanesOfPair = 8;

// Values of T in 16 bytes.
template <typename T>
inline constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));

// What the lanes of a pair add up.
struct PairSums {
  float product = 0.0f;  // query * item, the item's scale left out; or the squared differences
  float squares = 0.0f;  // item * item, its scale left out
};

// Adds one value. kDistance: (query - scale * item)^2 instead of query * item. kSquares: the item's
// square too.
template <bool kDistance, bool kSquares>
__device__ __forceinline__ void add_value(float item, float query, float scale, PairSums& sums) {
  if (kDistance) {
    const float difference = multiply_add(-scale, item, query);
    sums.product = multiply_add(difference, difference, sums.product);
  } else {
    sums.product = multiply_add(query, item, sums.product);
  }
  if (kSquares) sums.squares = multiply_add(item, item, sums.squares);
}

// Adds `count` (up to kPackOf<T>) neighbouring values.
template <bool kDistance, bool kSquares, typename T>
__device__ __forceinline__ void add_values(const T* item, const float* query, int count,
                                           float scale, PairSums& sums) {
  PYTRACE_UNROLL
  for (int i = 0; i < kPackOf<T>; ++i) {
    if (i >= count) break;
    add_value<kDistance, kSquares>(to_float(item[i]), query[i], scale, sums);
  }
}

// The tree over the eight lanes of a pair; every lane of the warp calls it, and all get the sum.
__device__ __forceinline__ float sum_of_pair(float sum) {
  PYTRACE_UNROLL
  for (int apart = kLanesOfPair / 2; apart > 0; apart /= 2) {
    sum += __shfl_xor_sync(kWholeWarp, sum, apart);
  }
  return sum;
}

// A score and an index as one number: the larger, the better; equal scores: the lower index. The
// score is finite; 0 stands for nothing. Unlike the processor's keys (topk_lists.h) they rise.
using Key = unsigned long long;

__device__ __forceinline__ Key pack_key(float score, uint32_t index) {
  // -0 and 0 are one score.
  const uint32_t bits = __float_as_uint(score + 0.0f);
  const uint32_t rising = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return Key{rising} << 32 | static_cast<uint32_t>(~index);
}

__device__ __forceinline__ float score_of_key(Key key) {
  const auto rising = static_cast<uint32_t>(key >> 32);
  return __uint_as_float((rising & 0x80000000u) != 0 ? rising & 0x7fffffffu : ~rising);
}

__device__ __forceinline__ uint32_t index_of_key(Key key) { return ~static_cast<uint32_t>(key); }

}  // namespace pytrace::cuda
