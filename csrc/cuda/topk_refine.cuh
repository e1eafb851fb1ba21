// From hits to a query's best: exact scores of the hits, the best k of them and of those before,
// and the floor that the next ones must reach.
//
// A block a query. Hits are scored as scores.cuh says, eight lanes each; keys that pass the k-th
// are gathered in shared memory and sorted there: few by counting how many stand before each (one
// barrier), many by a bitonic network. Time O(hits * dim / lanes + n log^2 n) for n keys.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda/best_keys.cuh"
#include "cuda/device.cuh"
#include "cuda/excluded.cuh"
#include "cuda/topk.h"
#include "cuda/topk_bounds.h"
#include "cuda/topk_finish.cuh"

namespace pytrace::cuda {

inline constexpr int kRefineThreads = 256;

// Up to here every key is compared with every other: at most kCompared^2 / kRefineThreads steps a
// thread, as many as the network's 36 steps with a barrier each take.
inline constexpr int kCompared = 256;

template <typename T>
struct RefineJob {
  const float* queries;  // rows of `padded` values
  int64_t padded;
  int64_t dim;
  QueryBound* bounds;
  const QueryLength* lengths;
  const uint32_t* order;  // which queries take part; null: the first `query_count`
  int64_t query_count;
  const T* items;
  int64_t item_stride;
  bool aligned;
  const float* scale;
  bool one_scale;
  Visits visits;
  int64_t first_hits;  // above 0: the first so many positions are hits, and no lists are read
  unsigned* counts;    // hits a query; 0 afterwards
  const uint32_t* hits;
  int64_t capacity;
  bool repeated;  // hits may be among the best already
  DeviceExcluded excluded;
  int64_t first_query;  // of the call, for `excluded` and `not_finite`
  uint32_t first_index;
  int64_t k;
  int64_t room;          // keys in shared memory: a power of two, at least k + capacity and 512
  Key* keys;             // [queries, k], best first
  unsigned* held;        // keys that a query has
  unsigned* overflowed;  // whether a query's list was too short in this pass
  uint32_t* next;        // those queries
  unsigned long long* totals;  // [0]: of those queries; [1]: of hits scored
  unsigned long long* not_finite;
};

inline size_t refine_shared_bytes(int64_t room) {
  return SharedBytes().take<Key>(static_cast<size_t>(room)).take<unsigned>(1).total();
}

namespace refine {

// Whether a key is among `count` falling ones.
__device__ __forceinline__ bool is_among(const Key* keys, int64_t count, Key key) {
  int64_t low = 0;
  int64_t high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (keys[middle] == key) return true;
    if (keys[middle] > key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return false;
}

__device__ __forceinline__ float rounded_down(double value) {
  value -= fabs(value) * 0x1p-23;  // more than the rounding to come
  if (value < -double{FLT_MAX}) return -HUGE_VALF;
  return static_cast<float>(value > double{FLT_MAX} ? double{FLT_MAX} : value);
}

// What must be reached to pass a score; see topk_bounds.h.
template <Metric kMetric>
__device__ __forceinline__ float floor_of(float score, const QueryLength& length, float unit,
                                          int64_t dim) {
  if (length.bounded == 0) return -HUGE_VALF;
  const double value = double{score};
  if (kMetric == Metric::kInnerProduct) return rounded_down(value * unit);
  if (kMetric == Metric::kCosine) return rounded_down(value * unit * sqrt(length.squared));
  const double squared = value * value * (1.0 + 8.0 * roundings(dim));
  return rounded_down(0.5 * unit * (length.squared - squared));
}

// Scores the hits of one query and puts the keys that pass behind those that it holds.
template <Metric kMetric, typename T>
__device__ __forceinline__ void score_hits(const RefineJob<T>& job, int64_t query, int64_t count,
                                           unsigned held, Key* keys, unsigned* used) {
  const auto thread = static_cast<int>(threadIdx.x);
  const float* own = job.queries + query * job.padded;
  const float length = job.lengths[query].length;
  const Key least = held == job.k ? keys[job.k - 1] : 0;
  // Whole warps go round together.
  constexpr int kPairs = kRefineThreads / kLanesOfPair;
  const int64_t rounds = (count + kPairs - 1) / kPairs;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t hit = round * kPairs + thread / kLanesOfPair;
    int64_t row = job.visits.rows;
    if (hit < count) {
      row =
          job.first_hits > 0 ? job.visits.row(hit) : int64_t{job.hits[query * job.capacity + hit]};
    }
    const bool there = row < job.visits.rows;
    const float scale = job.scale == nullptr || !there ? 1.0f : job.scale[job.one_scale ? 0 : row];
    const T* item = job.items + (there ? row : 0) * job.item_stride;
    const PairSums sums = sums_of_pair<kMetric>(item, own, job.dim, scale, job.aligned, there);
    if (!there || thread % kLanesOfPair != 0) continue;
    const float score = rank_of_pair<kMetric>(sums, scale, length);
    const auto index = job.first_index + static_cast<uint32_t>(row);
    if (!is_finite(score)) {
      atomicMin(job.not_finite,
                static_cast<unsigned long long>(job.first_query + query) << 32 | index);
      continue;
    }
    const Key key = pack_key(score, index);
    if (key <= least || (job.repeated && is_among(keys, held, key)) ||
        is_excluded(job.excluded, job.first_query + query, int64_t{index})) {
      continue;
    }
    keys[atomicAdd(used, 1u)] = key;
  }
}

template <Metric kMetric, typename T>
__global__ void __launch_bounds__(kRefineThreads, 2) keep_best(RefineJob<T> job) {
  SharedArrays shared;
  Key* keys = shared.take<Key>(static_cast<size_t>(job.room));
  auto* used = shared.take<unsigned>(1);
  const auto thread = static_cast<int>(threadIdx.x);
  for (int64_t slot = blockIdx.x; slot < job.query_count; slot += gridDim.x) {
    const int64_t query = job.order == nullptr ? slot : int64_t{job.order[slot]};
    const int64_t found = job.first_hits > 0 ? job.first_hits : int64_t{job.counts[query]};
    if (found == 0) continue;
    const unsigned held = job.held[query];
    Key* best = job.keys + query * job.k;
    for (int64_t i = thread; i < held; i += kRefineThreads) keys[i] = best[i];
    if (thread == 0) *used = held;
    __syncthreads();
    const int64_t count = found < job.capacity ? found : job.capacity;
    score_hits<kMetric>(job, query, count, held, keys, used);
    __syncthreads();
    const auto total = static_cast<int>(*used);
    if (thread == 0) {
      job.counts[query] = 0;
      job.held[query] = static_cast<unsigned>(total < job.k ? total : job.k);
      if (found > job.capacity && job.overflowed[query] == 0) {
        job.overflowed[query] = 1;
        job.next[atomicAdd(job.totals, 1ull)] = static_cast<uint32_t>(query);
      }
      atomicAdd(job.totals + 1, static_cast<unsigned long long>(count));
    }
    const auto place = [&](Key key, int64_t rank) {
      best[rank] = key;
      if (rank != job.k - 1) return;
      QueryBound& bound = job.bounds[query];
      bound.floor = floor_of<kMetric>(score_of_key(key), job.lengths[query], bound.unit, job.dim);
      bound.last = index_of_key(key);
    };
    if (total > static_cast<int>(held)) {
      if (total <= kCompared) {
        for (int i = thread; i < total; i += kRefineThreads) {
          const Key key = keys[i];
          int rank = 0;
          for (int j = 0; j < total; ++j) rank += keys[j] > key ? 1 : 0;
          if (rank < job.k) place(key, rank);
        }
      } else {
        int sorted = 2 * kCompared;
        while (sorted < total) sorted *= 2;
        for (int i = total + thread; i < sorted; i += kRefineThreads) keys[i] = 0;
        __syncthreads();
        sort_keys(keys, sorted);
        for (int64_t i = thread; i < total && i < job.k; i += kRefineThreads) place(keys[i], i);
      }
    }
    __syncthreads();
  }
}

}  // namespace refine
}  // namespace pytrace::cuda
