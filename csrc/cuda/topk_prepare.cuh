// Makes queries and items ready for the tensor cores: numbers of 16 bits in rows that begin at
// multiples of 16 bytes and end in zeros, and the bounds of topk_bounds.h.
//
// Memory-bound: items are read once, eight lanes a row, and written only where they cannot be read
// in place.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda/device.cuh"
#include "cuda/topk_bounds.h"
#include "cuda/topk_finish.cuh"

namespace pytrace::cuda {

inline constexpr int kPrepareThreads = 256;

// How a number becomes one that tensor cores read, and the least such number of the normal range.
template <typename Element>
struct ElementTraits;

template <>
struct ElementTraits<Half> {
  static constexpr float kLeastNormal = 0x1p-14f;
  __device__ static Half rounded(float value) { return to_half(value); }
};

template <>
struct ElementTraits<Bfloat16> {
  static constexpr float kLeastNormal = 0x1p-126f;
  __device__ static Bfloat16 rounded(float value) { return to_bfloat16(value); }
};

// The K of topk_bounds.h. Float32 items lose about as much of their lengths by rounding to bfloat16
// as queries do, 2^-9 / sqrt(3) or so; a slack of 1 / 800 of the query's length is hardly above
// that. Others lose only what is below the normal range, so that a large K costs nothing.
template <typename T>
inline constexpr float kLossWeight = sizeof(T) == 4 ? 801.0f : 4097.0f;

template <typename T>
struct QueryPreparation {
  const T* from;
  int64_t stride;
  int64_t count;
  int64_t dim;
  int64_t padded;  // values of a row made, a multiple of 32
  float loss_weight;
  float* exact;   // [count, padded]
  void* rounded;  // [count, padded] of Element
  QueryBound* bounds;
  QueryLength* lengths;
};

__device__ __forceinline__ double sum_of_warp(double sum) {
  PYTRACE_UNROLL
  for (int apart = kWarp / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, apart);
  return sum;
}

// A warp a query.
template <typename T, typename Element>
__global__ void __launch_bounds__(kPrepareThreads) prepare_queries(QueryPreparation<T> job) {
  constexpr int kRows = kPrepareThreads / kWarp;
  using Traits = ElementTraits<Element>;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = int64_t{gridDim.x} * kRows;
  for (int64_t query = int64_t{blockIdx.x} * kRows + warp; query < job.count; query += step) {
    const T* from = job.from + query * job.stride;
    double squared = 0.0;
    float largest = 0.0f;
    for (int64_t column = lane; column < job.padded; column += kWarp) {
      const float value = column < job.dim ? to_float(from[column]) : 0.0f;
      job.exact[query * job.padded + column] = value;
      squared += double{value} * double{value};
      largest = fmaxf(largest, fabsf(value));
    }
    squared = sum_of_warp(squared);
    PYTRACE_UNROLL
    for (int apart = kWarp / 2; apart > 0; apart /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, apart));

    constexpr double kLeast = double{kLeastLength} * double{kLeastLength};
    constexpr double kMost = double{kMostLength} * double{kMostLength};
    const bool zero = largest == 0.0f && squared == 0.0;
    const bool bounded = zero || (squared >= kLeast && squared <= kMost);
    float unit = 1.0f;
    if (bounded && !zero) {
      const auto exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
      unit = __uint_as_float(static_cast<uint32_t>(127 + 14 - exponent) << 23);
    }
    double lost = 0.0;
    auto* rounded = static_cast<Element*>(job.rounded) + query * job.padded;
    for (int64_t column = lane; column < job.padded; column += kWarp) {
      const float value = column < job.dim ? unit * to_float(from[column]) : 0.0f;
      const Element near = Traits::rounded(value);
      rounded[column] = near;
      const float taken = to_float(near);
      const double miss = fabs(double{value} - double{taken});
      // Below the normal range it may count or not.
      const double loss =
          fabsf(taken) < Traits::kLeastNormal ? fmax(miss, fabs(double{value})) : miss;
      lost += loss * loss;
    }
    lost = sum_of_warp(lost);
    const float length = length_of_query(from, job.dim);
    if (lane == 0) {
      const double scaled = double{unit} * sqrt(squared);
      const double missed = sqrt(lost);
      const double sums = (static_cast<double>(job.dim) + 16.0) * 0x1p-22;
      const double slack =
          fmax(missed + sums * (scaled + missed) + 8.0 * roundings(job.dim) * scaled,
               scaled / (double{job.loss_weight} - 1.0));
      QueryBound bound;
      bound.floor = -HUGE_VALF;
      bound.slack = bounded ? static_cast<float>(slack * (1.0 + 0x1p-20)) : HUGE_VALF;
      bound.unit = unit;
      bound.last = 0xffffffffu;
      job.bounds[query] = bound;
      job.lengths[query] = {squared, length, bounded ? 1u : 0u};
    }
  }
}

template <typename T>
struct ItemPreparation {
  const T* from;
  int64_t stride;
  bool aligned;
  int64_t dim;
  const float* scale;
  bool one_scale;
  Metric metric;
  Visits visits;
  int64_t first;   // the first position
  int64_t count;   // of positions
  int64_t padded;  // positions with bounds, a multiple of 32; those from `count` on have no row
  ItemBound* bounds;
  void* rounded;  // row i holds position first + i; null: items are read in place
  int64_t rounded_stride;
};

// Values that a lane takes at a time: at least 16 bytes of what is read and of what is written.
template <typename T>
inline constexpr int kPrepared = sizeof(T) == 1 ? 16 : 8;

__device__ __forceinline__ ItemBound bound_of_item(Metric metric, float squared, float lost,
                                                   bool zero, float scale, float loss_weight,
                                                   int64_t dim, uint32_t row) {
  const auto rounding = static_cast<float>(roundings(dim));
  ItemBound bound{scale, 0.0f, 0.0f, row};
  if (metric == Metric::kCosine) bound.factor = 0.0f;
  const float length = sqrtf(squared);
  const bool regular = length >= kLeastLength && length <= kMostLength &&
                       scale * length >= kLeastLength && scale * length <= kMostLength;
  if (zero && scale >= kLeastLength && scale <= kMostLength) return bound;
  if (!regular) return {0.0f, 0.0f, HUGE_VALF, row};
  const float most = (length + loss_weight * sqrtf(lost)) * (1.0f + 2.0f * rounding);
  if (metric == Metric::kInnerProduct) {
    bound.weight = scale * most;
  } else if (metric == Metric::kCosine) {
    bound.factor = 1.0f / length;
    bound.weight = most / length;
  } else {
    const float scaled = scale * length;
    bound.offset = -0.5f * scaled * scaled * (1.0f - 4.0f * rounding);
    bound.weight = scale * most;
  }
  bound.weight *= 1.0f + 0x1p-20f;
  return bound;
}

template <typename T, typename Element, bool kWrites>
__global__ void __launch_bounds__(kPrepareThreads) prepare_items(ItemPreparation<T> job) {
  constexpr int kTaken = kPrepared<T>;
  constexpr int kAhead = sizeof(T) == 4 ? 2 : 4;  // 64 bytes on their way to a lane
  constexpr int kRows = kPrepareThreads / kLanesOfPair;
  using Traits = ElementTraits<Element>;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int64_t at = int64_t{blockIdx.x} * kRows + thread / kLanesOfPair; at < job.padded;
       at += int64_t{gridDim.x} * kRows) {
    const int64_t row = at < job.count ? job.visits.row(job.first + at) : job.visits.rows;
    const bool there = row < job.visits.rows;
    const T* from = job.from + (there ? row : 0) * job.stride;
    Element* to = nullptr;
    if (kWrites) to = static_cast<Element*>(job.rounded) + at * job.rounded_stride;
    float squared = 0.0f;
    float lost = 0.0f;
    uint32_t any = 0;
    const auto take = [&](const T(&values)[kTaken], int64_t column) {
      Pack<Element> packs[kTaken / 8];
      PYTRACE_UNROLL
      for (int j = 0; j < kTaken; ++j) {
        const float value = to_float(values[j]);
        any |= __float_as_uint(value) << 1;
        squared = multiply_add(value, value, squared);
        const Element near = Traits::rounded(value);
        packs[j / 8].values[j % 8] = near;
        if (sizeof(T) == 1) continue;
        const float read = to_float(near);
        const float miss = fabsf(value - read);
        const float loss = fabsf(read) < Traits::kLeastNormal ? fmaxf(miss, fabsf(value)) : miss;
        lost = multiply_add(loss, loss, lost);
      }
      if (kWrites) {
        PYTRACE_UNROLL
        for (int part = 0; part < kTaken / 8; ++part)
          store_pack(to + column + 8 * part, packs[part]);
      }
    };
    for_values_of_lane<T, kTaken, kAhead, true>(from, there ? job.dim : 0,
                                                there || kWrites ? job.dim : 0, job.aligned, take);
    squared = sum_of_pair(squared);
    lost = sum_of_pair(lost);
    PYTRACE_UNROLL
    for (int apart = kLanesOfPair / 2; apart > 0; apart /= 2)
      any |= __shfl_xor_sync(kWholeWarp, any, apart);
    if (thread % kLanesOfPair == 0) {
      const float scale =
          job.scale == nullptr || !there ? 1.0f : job.scale[job.one_scale ? 0 : row];
      job.bounds[at] = there ? bound_of_item(job.metric, squared, lost, any == 0, scale,
                                             kLossWeight<T>, job.dim, static_cast<uint32_t>(row))
                             : ItemBound{0.0f, 0.0f, 0.0f, kNoRow};
    }
  }
}

}  // namespace pytrace::cuda
