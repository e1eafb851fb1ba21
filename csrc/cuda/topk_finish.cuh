// From the sums of a pair to its score, and what lanes read of rows for that.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/scores.cuh"
#include "cuda/topk.h"

namespace pytrace::cuda {

// `kCount` values of a row from `at` on, zeros behind its end. `aligned`: rows begin at multiples
// of 16 bytes.
template <typename T, int kCount>
struct Values {
  static_assert(kCount % kPackOf<T> == 0, "whole packs");
  T values[kCount];
};

template <typename T, int kCount, bool kStreamed>
__device__ __forceinline__ Values<T, kCount> load_values(const T* row, int64_t at, int64_t dim,
                                                         bool aligned) {
  Values<T, kCount> loaded;
  if (aligned && at + kCount <= dim) {
    PYTRACE_UNROLL
    for (int part = 0; part < kCount; part += kPackOf<T>) {
      const Pack<T> pack = kStreamed ? load_streamed(row + at + part) : load_pack(row + at + part);
      PYTRACE_UNROLL
      for (int i = 0; i < kPackOf<T>; ++i) loaded.values[part + i] = pack.values[i];
    }
  } else {
    PYTRACE_UNROLL
    for (int i = 0; i < kCount; ++i) loaded.values[i] = at + i < dim ? row[at + i] : T{};
  }
  return loaded;
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
  const int64_t first = static_cast<int>(threadIdx.x) % kLanesOfPair * kPack;
  constexpr int64_t kStep = kLanesOfPair * kPack;
  PairSums sums;
  if (there) {
    for (int64_t at = first; at < dim; at += kAhead * kStep) {
      Values<T, kPack> packs[kAhead];
      PYTRACE_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (at + i * kStep < dim)
          packs[i] = load_values<T, kPack, false>(item, at + i * kStep, dim, aligned);
      }
      PYTRACE_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int64_t place = at + i * kStep;
        if (place >= dim) break;
        float own[kPack];
        PYTRACE_UNROLL
        for (int part = 0; part < kPack; part += 4) {
          const Pack<float> four = load_pack(query + place + part);
          PYTRACE_UNROLL
          for (int j = 0; j < 4; ++j) own[part + j] = four.values[j];
        }
        // Behind the end there are zeros on both sides, which change no sum.
        add_values<kDistance, kSquares>(packs[i].values, own, kPack, scale, sums);
      }
    }
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
