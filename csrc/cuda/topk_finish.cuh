// From the sums of a pair to its score, and what lanes read of rows for that.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/scores.cuh"
#include "cuda/topk.h"

namespace pytrace::cuda {

// Calls take(values, at) for what a lane has of a row: kCount values at a time from each place
// `at`, kCount * lane and on in steps of all eight lanes, up to `end`; from `dim` on they are
// zeros. `aligned`: rows begin at multiples of 16 bytes. Then kAhead times kCount values are on
// their way at once.
template <typename T, int kCount, int kAhead, bool kStreamed, typename Take>
__device__ __forceinline__ void for_values_of_lane(const T* row, int64_t dim, int64_t end,
                                                   bool aligned, const Take& take) {
  constexpr int kPack = kPackOf<T>;
  static_assert(kCount % kPack == 0, "whole packs");
  constexpr int64_t kStep = kLanesOfPair * kCount;
  int64_t at = static_cast<int>(threadIdx.x) % kLanesOfPair * kCount;
  if (aligned) {
    const int64_t whole = dim / kCount * kCount;
    while (at < whole) {
      uint4 words[kAhead][kCount / kPack];
      PYTRACE_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        PYTRACE_UNROLL
        for (int part = 0; part < kCount / kPack; ++part) {
          const T* const from = row + at + i * kStep + part * kPack;
          // So that it becomes a load under a condition, and not one behind a branch.
          words[i][part] = uint4{0, 0, 0, 0};
          if (at + i * kStep < whole) words[i][part] = load_words<kStreamed>(from);
        }
      }
      PYTRACE_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (at >= whole) break;
        T values[kCount];
        PYTRACE_UNROLL
        for (int part = 0; part < kCount / kPack; ++part) {
          const Pack<T> pack = pack_of<T>(words[i][part]);
          PYTRACE_UNROLL
          for (int j = 0; j < kPack; ++j) values[part * kPack + j] = pack.values[j];
        }
        take(values, at);
        at += kStep;
      }
    }
  }
  // Unaligned rows, and the last values of others.
  for (; at < end; at += kStep) {
    T values[kCount];
    PYTRACE_UNROLL
    for (int i = 0; i < kCount; ++i) values[i] = at + i < dim ? row[at + i] : T{};
    take(values, at);
  }
}

// The sums of a pair; its eight lanes call it, and all lanes of the warp at once. `query` is at a
// multiple of 16 bytes and has zeros behind its end, up to a multiple of 16 values. Pairs that are
// not `there` read nothing.
template <Metric kMetric, typename T>
__device__ __forceinline__ PairSums sums_of_pair(const T* item, const float* query, int64_t dim,
                                                 float scale, bool aligned, bool there) {
  constexpr int kPack = kPackOf<T>;
  constexpr int kAhead = sizeof(T) == 1 ? 2 : 4;  // packs on their way to a lane at a time
  constexpr bool kDistance = kMetric == Metric::kEuclidean;
  constexpr bool kSquares = kMetric == Metric::kCosine;
  PairSums sums;
  if (there) {
    const auto take = [&](const T(&values)[kPack], int64_t at) {
      float own[kPack];
      PYTRACE_UNROLL
      for (int part = 0; part < kPack; part += 4) {
        const Pack<float> four = load_pack(query + at + part);
        PYTRACE_UNROLL
        for (int j = 0; j < 4; ++j) own[part + j] = four.values[j];
      }
      // Behind the end there are zeros on both sides, which change no sum.
      add_values<kDistance, kSquares>(values, own, kPack, scale, sums);
    };
    for_values_of_lane<T, kPack, kAhead, false>(item, dim, dim, aligned, take);
  }
  sums.product = sum_of_pair(sums.product);
  if (kSquares) sums.squares = sum_of_pair(sums.squares);
  return sums;
}

// A query's length, in the order of a float32 item's squares. All lanes of the warp call it and get
// it; the groups of eight do the same.
template <typename T>
__device__ __forceinline__ float length_of_query(const T* query, int64_t dim) {
  constexpr int kPack = kPackOf<float>;
  const int64_t first = static_cast<int>(threadIdx.x) % kLanesOfPair * kPack;
  float sum = 0.0f;
  for (int64_t at = first; at < dim; at += kLanesOfPair * kPack) {
    PYTRACE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (at + i >= dim) break;
      const float value = to_float(query[at + i]);
      sum = multiply_add(value, value, sum);
    }
  }
  return sqrtf(sum_of_pair(sum));
}

// What ranks a pair, the larger, the better: inner product times scale, cosine (0 where a length is
// 0), or the negative distance. It may be infinite or NaN, which is an error.
template <Metric kMetric>
__device__ __forceinline__ float rank_of_pair(const PairSums& sums, float scale,
                                              float query_length) {
  if (kMetric == Metric::kInnerProduct) return sums.product * scale + 0.0f;
  if (kMetric == Metric::kEuclidean) return 0.0f - sqrtf(sums.product);
  const float lengths = sqrtf(sums.squares) * query_length;
  if (!is_finite(lengths) || !is_finite(sums.product)) return lengths + sums.product - sums.product;
  const float cosine = lengths > 0.0f ? sums.product / lengths : 0.0f;
  return (cosine > 1.0f ? 1.0f : cosine < -1.0f ? -1.0f : cosine) + 0.0f;
}

}  // namespace pytrace::cuda
