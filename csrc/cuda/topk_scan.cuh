// The scan's kernel; see topk_scan.h. Instantiated one file an item type.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/best_keys.cuh"
#include "cuda/excluded.cuh"
#include "cuda/topk_finish.cuh"
#include "cuda/topk_scan.h"

namespace pytrace::cuda {

inline constexpr int kScanThreads = 256;
inline constexpr int kScanGroups = kScanThreads / kLanesOfPair;

// Rows that a lane group has on their way: with one query as many as hide the memory's latency (32
// groups * 8 rows * 8 lanes * 16 bytes are 32 KiB a block in flight, and two blocks cover the 18
// KiB a multiprocessor that 3.35 TB/s take at 700 ns); with more queries, registers for the sums
// limit them to 16.
template <int kQueries>
inline constexpr int kScanRows = kQueries == 1 ? 8 : 16 / kQueries;

struct ScanArguments {
  ScanInput input;
  int64_t query_stride;
  int capacity;
  int rounds;
  Key* lists;
  Key* thresholds;
  Key* not_finite;
  float* out;
  int64_t out_stride;
  float sign;  // of a distance that is written
  bool aligned;
};

// The tree of sum_of_pair over eight sums at once: lane j of a pair gets that of sums[j], bit for
// bit as sum_of_pair gives it, with 7 shuffles in place of 24.
__device__ __forceinline__ float sums_of_pairs(const float (&sums)[kLanesOfPair]) {
  const auto lane = static_cast<int>(threadIdx.x) % kLanesOfPair;
  float four[4];
  PYTRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const bool upper = (lane & 4) != 0;
    const float sent = upper ? sums[i] : sums[i + 4];
    four[i] = (upper ? sums[i + 4] : sums[i]) + __shfl_xor_sync(kWholeWarp, sent, 4);
  }
  float two[2];
  PYTRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const bool upper = (lane & 2) != 0;
    const float sent = upper ? four[i] : four[i + 2];
    two[i] = (upper ? four[i + 2] : four[i]) + __shfl_xor_sync(kWholeWarp, sent, 2);
  }
  const bool upper = (lane & 1) != 0;
  const float sent = upper ? two[0] : two[1];
  return (upper ? two[1] : two[0]) + __shfl_xor_sync(kWholeWarp, sent, 1);
}

// Lane's part of the sums of kRows rows with kQueries queries: of row r and query q in
// sums[(r * kQueries + q) / 8][(r * kQueries + q) % 8].
template <typename T, int kQueries, int kRows, Metric kMetric>
struct RowSums {
  static constexpr int kSets = kQueries * kRows / kLanesOfPair;
  static constexpr bool kDistance = kMetric == Metric::kEuclidean;
  static constexpr bool kSquares = kMetric == Metric::kCosine;
  static constexpr int kPack = kPackOf<T>;

  float products[kSets][kLanesOfPair] = {};
  float squares[kSquares ? kRows : 1] = {};

  __device__ __forceinline__ void add(int row, int query, float value, float other, float scale) {
    const int at = row * kQueries + query;
    PairSums sums{products[at / kLanesOfPair][at % kLanesOfPair],
                  kSquares ? squares[kSquares ? row : 0] : 0.0f};
    if (kSquares && query == 0) {
      add_value<kDistance, true>(value, other, scale, sums);
      squares[kSquares ? row : 0] = sums.squares;
    } else {
      add_value<kDistance, false>(value, other, scale, sums);
    }
    products[at / kLanesOfPair][at % kLanesOfPair] = sums.product;
  }

  __device__ __forceinline__ void add_rows(const T* const (&rows)[kRows],
                                           const float (&scales)[kDistance ? kRows : 1],
                                           const float* queries, int64_t query_stride, int64_t cols,
                                           bool aligned) {
    const auto lane = static_cast<int>(threadIdx.x) % kLanesOfPair;
    const int64_t packs = (cols + kPack - 1) / kPack;
    int64_t pack = lane;
    if (aligned) {
      for (; pack < cols / kPack; pack += kLanesOfPair) {
        Pack<T> loaded[kRows];
        PYTRACE_UNROLL
        for (int r = 0; r < kRows; ++r) loaded[r] = load_streamed(rows[r] + pack * kPack);
        const float* at = queries + (pack - lane) * kPack + lane * 4;
        PYTRACE_UNROLL
        for (int part = 0; part < kPack; part += 4) {
          PYTRACE_UNROLL
          for (int q = 0; q < kQueries; ++q) {
            const Pack<float> four = load_pack(at + q * query_stride + part * kLanesOfPair);
            PYTRACE_UNROLL
            for (int r = 0; r < kRows; ++r) {
              PYTRACE_UNROLL
              for (int i = 0; i < 4; ++i) {
                add(r, q, to_float(loaded[r].values[part + i]), four.values[i],
                    scales[kDistance ? r : 0]);
              }
            }
          }
        }
      }
    }
    // What 16-byte loads cannot reach: unaligned rows, and the last values of a row.
    for (; pack < packs; pack += kLanesOfPair) {
      const auto left = cols - pack * kPack;
      const int count = left < kPack ? static_cast<int>(left) : kPack;
      const float* at = queries + (pack - lane) * kPack + lane * 4;
      for (int i = 0; i < count; ++i) {
        float values[kRows];
        PYTRACE_UNROLL
        for (int r = 0; r < kRows; ++r) values[r] = to_float(rows[r][pack * kPack + i]);
        PYTRACE_UNROLL
        for (int q = 0; q < kQueries; ++q) {
          const float other = at[q * query_stride + i / 4 * (4 * kLanesOfPair) + i % 4];
          PYTRACE_UNROLL
          for (int r = 0; r < kRows; ++r) add(r, q, values[r], other, scales[kDistance ? r : 0]);
        }
      }
    }
  }
};

template <typename T, int kQueries, Metric kMetric, bool kStaged>
__global__ void __launch_bounds__(kScanThreads, 2) scan_units(const ScanArguments job) {
  constexpr int kRows = kScanRows<kQueries>;
  constexpr int kStep = kScanGroups * kRows;
  constexpr bool kDistance = kMetric == Metric::kEuclidean;
  constexpr bool kSquares = kMetric == Metric::kCosine;
  using Sums = RowSums<T, kQueries, kRows, kMetric>;
  const ScanInput& input = job.input;
  const auto k = static_cast<int>(input.k);
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanesOfPair;
  const int group = thread / kLanesOfPair;

  SharedArrays shared;
  Key* const thresholds = shared.take<Key>(kQueries);
  int* const counts = shared.take<int>(kQueries);
  Key* const buffers = shared.take<Key>(static_cast<size_t>(kQueries) * job.capacity + 2);
  float* const staged =
      shared.take<float>(kStaged ? kQueries * static_cast<size_t>(job.query_stride) : 4);

  for (int64_t at = blockIdx.x; at < input.unit_count; at += gridDim.x) {
    const ScanUnit unit = input.units[at];
    const auto own = static_cast<int>(unit.queries);
    const float* queries = input.queries + unit.first_query * job.query_stride;
    if (kStaged) {
      // Missing queries are zeros, so that every sum is one of finite numbers.
      for (int64_t i = thread * 4; i < kQueries * job.query_stride; i += kScanThreads * 4) {
        Pack<float> values{};
        if (i < own * job.query_stride) values = load_pack(queries + i);
        *reinterpret_cast<Pack<float>*>(staged + i) = values;
      }
      queries = staged;
    }
    if (thread < kQueries) {
      counts[thread] = 0;
      // An atomic that changes nothing, because other blocks raise it meanwhile.
      thresholds[thread] = job.out == nullptr && thread < own
                               ? atomicMax(job.thresholds + unit.first_query + thread, Key{0})
                               : Key{0};
    }
    __syncthreads();

    for (int64_t first = unit.first_item; first < unit.last_item;) {
      for (int round = 0; round < job.rounds && first < unit.last_item; ++round, first += kStep) {
        const T* rows[kRows];
        float scales[kDistance ? kRows : 1];
        scales[0] = 1.0f;
        PYTRACE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const int64_t row = first + group * kRows + r;
          const int64_t inside = row < unit.last_item ? row : unit.last_item - 1;
          rows[r] = static_cast<const T*>(input.items.data) + inside * input.items.stride;
          if (kDistance && input.items.scale != nullptr) {
            scales[kDistance ? r : 0] = input.items.scale[input.items.one_scale ? 0 : inside];
          } else if (kDistance) {
            scales[kDistance ? r : 0] = 1.0f;
          }
        }
        Sums sums;
        sums.add_rows(rows, scales, queries, job.query_stride, input.items.cols, job.aligned);
        if (kSquares) {
          PYTRACE_UNROLL
          for (int r = 0; r < (kSquares ? kRows : 1); ++r)
            sums.squares[r] = sum_of_pair(sums.squares[r]);
        }
        PYTRACE_UNROLL
        for (int set = 0; set < Sums::kSets; ++set) {
          PairSums pair;
          pair.product = sums_of_pairs(sums.products[set]);
          const int r = (set * kLanesOfPair + lane) / kQueries;
          const int q = lane % kQueries;
          if (kSquares) {
            PYTRACE_UNROLL
            for (int i = 0; i < (kSquares ? kRows : 1); ++i) {
              if (i == r) pair.squares = sums.squares[i];
            }
          }
          const int64_t row = first + group * kRows + r;
          const bool there = row < unit.last_item && q < own;
          const int64_t query = unit.first_query + q;
          float scale = 1.0f;
          float length = 1.0f;
          if (there) {
            if (kMetric == Metric::kInnerProduct && input.items.scale != nullptr)
              scale = input.items.scale[input.items.one_scale ? 0 : row];
            if (kSquares) length = input.query_lengths[query];
          }
          const float score = rank_of_pair<kMetric>(pair, scale, length);
          const int64_t index = input.first_index + row;
          const bool finite = is_finite(score);
          if (there && !finite) {
            atomicMin(job.not_finite,
                      static_cast<Key>(input.first_query + query) << 32 | static_cast<Key>(index));
          }
          if (job.out != nullptr) {
            if (there) {
              job.out[query * job.out_stride + unit.first_column + row - unit.first_item] =
                  kDistance ? job.sign * score + 0.0f : score;
            }
            continue;
          }
          const Key key = pack_key(score, static_cast<uint32_t>(index));
          bool hit = there && finite && key > thresholds[q];
          if (__any_sync(kWholeWarp, hit)) {
            if (hit) hit = !is_excluded(input.excluded, query, index);
            PYTRACE_UNROLL
            for (int i = 0; i < kQueries; ++i) {
              const int place = place_in(counts + i, hit && q == i);
              if (hit && q == i) buffers[i * job.capacity + place] = key;
            }
          }
        }
      }
      if (job.out != nullptr) continue;
      __syncthreads();
      bool full = false;
      for (int q = 0; q < own; ++q) full |= counts[q] > job.capacity - job.rounds * kStep;
      if (thread < own) {
        const Key known = atomicMax(job.thresholds + unit.first_query + thread, Key{0});
        if (known > thresholds[thread]) thresholds[thread] = known;
      }
      __syncthreads();
      // Every thread has read the same counts, so all of them come here or none.
      if (full) {
        for (int q = 0; q < own; ++q) {
          const int filled = counts[q];
          if (filled <= job.capacity - job.rounds * kStep) continue;
          Key* const keys = buffers + q * job.capacity;
          const int left = cut_keys(keys, filled, k);
          if (thread == 0) {
            counts[q] = left;
            if (left == k) {
              const Key known = atomicMax(job.thresholds + unit.first_query + q, keys[k - 1]);
              thresholds[q] = keys[k - 1] > known ? keys[k - 1] : known;
            }
          }
        }
        __syncthreads();
      }
    }
    if (job.out != nullptr) {
      __syncthreads();  // before the next unit's queries are staged
      continue;
    }
    __syncthreads();
    for (int q = 0; q < own; ++q) {
      Key* const keys = buffers + q * job.capacity;
      const int left = cut_keys(keys, counts[q], k);
      Key* const list = job.lists + (unit.first_list + q) * k;
      for (int i = thread; i < k; i += kScanThreads) list[i] = i < left ? keys[i] : Key{0};
      if (thread == 0 && left == k) atomicMax(job.thresholds + unit.first_query + q, keys[k - 1]);
    }
    __syncthreads();
  }
}

// Queues the kernel for the job; `shape` chooses which.
template <typename T>
void launch_scan(const ScanArguments& job, const ScanShape& shape, int multiprocessors,
                 cudaStream_t stream) {
  // More blocks than fit at once, so that short units do not leave the card idle at the end.
  const int64_t blocks = std::min<int64_t>(job.input.unit_count, int64_t{16} * multiprocessors);
  const dim3 grid(grid_of(blocks, 1));
  const auto go = [&](auto* kernel) {
    launch(stream, grid, dim3(kScanThreads), shape.shared, kernel, job);
  };
  const auto with_metric = [&](auto queries, auto staged) {
    constexpr int kQueries = decltype(queries)::value;
    constexpr bool kStaged = decltype(staged)::value;
    switch (job.input.metric) {
      case Metric::kInnerProduct:
        return go(&scan_units<T, kQueries, Metric::kInnerProduct, kStaged>);
      case Metric::kCosine:
        return go(&scan_units<T, kQueries, Metric::kCosine, kStaged>);
      case Metric::kEuclidean:
        return go(&scan_units<T, kQueries, Metric::kEuclidean, kStaged>);
    }
  };
  using std::integral_constant;
  if (!shape.staged) {
    with_metric(integral_constant<int, 1>{}, std::false_type{});
  } else if (shape.queries == 8) {
    with_metric(integral_constant<int, 8>{}, std::true_type{});
  } else if (shape.queries == 4) {
    with_metric(integral_constant<int, 4>{}, std::true_type{});
  } else {
    with_metric(integral_constant<int, 1>{}, std::true_type{});
  }
}

extern template void launch_scan<float>(const ScanArguments&, const ScanShape&, int, cudaStream_t);
extern template void launch_scan<Half>(const ScanArguments&, const ScanShape&, int, cudaStream_t);
extern template void launch_scan<Bfloat16>(const ScanArguments&, const ScanShape&, int,
                                           cudaStream_t);
extern template void launch_scan<int8_t>(const ScanArguments&, const ScanShape&, int, cudaStream_t);

}  // namespace pytrace::cuda
