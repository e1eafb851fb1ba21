// Which items might be among a query's best: a matrix product whose tiles never leave the
// registers.
//
// A block of 8 warps computes tiles of 128 queries x 256 items, a warp 64 x 64 of them: for every
// 16 columns 8 reads of 512 bytes from shared memory for 32 products of 2,048 multiply-adds, so
// that shared memory (128 bytes a cycle) is busy for 32 cycles where tensor cores need 32 (8.0) or
// more. A tile reads (128 + 256) * 2 bytes of the second-level cache for 32,768 multiply-adds: at
// 1,024 of them a cycle 24 bytes a cycle and multiprocessor, which that cache can give. Three
// stages of 32 columns (72 KiB) lie in shared memory: two are on their way while one is used, some
// 1,600 cycles ahead, which is more than memory's latency. They run on from tile to tile. Tiles
// that share items follow each other, so that items come from memory once.
//
// Sums are compared with the query's floor where they are, in registers, two instructions each; the
// few that pass are appended to the query's list.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/device.cuh"
#include "cuda/topk.h"
#include "cuda/topk_bounds.h"

namespace pytrace::cuda {

inline constexpr int kTileQueries = 128;
inline constexpr int kTileItems = 256;
inline constexpr int kFilterThreads = 256;

namespace filter {

inline constexpr int kStages = 3;
inline constexpr int kColumns = 32;  // of a stage
inline constexpr int kPacks = kColumns / 8;
inline constexpr int kWarpSide = 64;  // queries and items of a warp
inline constexpr int kRowsAtOnce = kFilterThreads / kPacks;
inline constexpr int kQueryCopies = kTileQueries / kRowsAtOnce;
inline constexpr int kItemCopies = kTileItems / kRowsAtOnce;
inline constexpr int kQueryTiles = kWarpSide / 16;  // of a warp, as the tensor cores take them
inline constexpr int kItemTiles = kWarpSide / 8;
inline constexpr int kRowsOfLane = 2 * kQueryTiles;

}  // namespace filter

template <typename Element>
struct FilterJob {
  const Element* queries;  // rows of `slices` * 32 values
  const QueryBound* query_bounds;
  const uint32_t* order;  // which queries take part; null: the first `query_count`
  int64_t query_count;
  const Element* items;
  int64_t item_stride;
  int64_t item_columns;          // a multiple of 8; behind them zeros are taken
  bool in_place;                 // items are rows as given; else row i holds the i-th position
  int64_t count;                 // of positions
  const ItemBound* item_bounds;  // of these positions, up to a multiple of 256
  int64_t slices;
  uint32_t first_index;
  unsigned* counts;  // hits a query
  uint32_t* hits;    // [queries, capacity]: the rows of the first ones
  int64_t capacity;
  const unsigned long long* not_finite;  // nothing is done if it is not all ones
};

inline size_t filter_shared_bytes() {
  using namespace filter;
  return SharedBytes()
      .take<uint16_t>(kStages * kTileQueries * kColumns)
      .take<uint16_t>(kStages * kTileItems * kColumns)
      .take<QueryBound>(kStages * kTileQueries)
      .take<ItemBound>(kStages * kTileItems)
      .total();
}

namespace filter {

// A pack's place in a stage's rows of four: so that eight rows' packs of one column, which are read
// together, lie in different banks.
__device__ __forceinline__ int place_of_pack(int row, int pack) {
  return row * kColumns + (pack ^ (row >> 1 & (kPacks - 1))) * 8;
}

// Queues the copies of one stage after another, in the order in which they are used.
template <typename Element>
class Loader {
 public:
  __device__ Loader(Element* queries, Element* items, QueryBound* query_bounds,
                    ItemBound* item_bounds, int64_t query_tiles, int64_t tiles)
      : queries_(queries),
        items_(items),
        query_bounds_(query_bounds),
        item_bounds_(item_bounds),
        query_tiles_(query_tiles),
        tiles_(tiles),
        tile_(blockIdx.x),
        row_(static_cast<int>(threadIdx.x) / kPacks),
        pack_(static_cast<int>(threadIdx.x) % kPacks) {}

  __device__ __forceinline__ void load_next(const FilterJob<Element>& job) {
    if (tile_ < tiles_) {
      if (slice_ == 0) begin_tile(job);
      const int place = place_of_pack(row_, pack_);
      const int64_t column = slice_ * kColumns + pack_ * 8;
      PYTRACE_UNROLL
      for (int i = 0; i < kQueryCopies; ++i) {
        copy_async(queries_ + (stage_ * kTileQueries + i * kRowsAtOnce) * kColumns + place,
                   query_rows_[i] + column);
      }
      PYTRACE_UNROLL
      for (int i = 0; i < kItemCopies; ++i) {
        Element* to = items_ + (stage_ * kTileItems + i * kRowsAtOnce) * kColumns + place;
        if (column < job.item_columns) {
          copy_async(to, item_rows_[i] + column);
        } else {
          *reinterpret_cast<Pack<Element>*>(to) = Pack<Element>{};
        }
      }
      stage_ = stage_ + 1 == kStages ? 0 : stage_ + 1;
      if (++slice_ == job.slices) {
        slice_ = 0;
        tile_ += gridDim.x;
      }
    }
    commit_copies();
  }

 private:
  // Rows that are not there are stood for by others: their sums are not looked at.
  __device__ __forceinline__ void begin_tile(const FilterJob<Element>& job) {
    const int64_t first_query = tile_ % query_tiles_ * kTileQueries;
    const int64_t first_item = tile_ / query_tiles_ * kTileItems;
    PYTRACE_UNROLL
    for (int i = 0; i < kQueryCopies; ++i) {
      query_rows_[i] =
          job.queries + query_of(job, first_query + row_ + i * kRowsAtOnce) * job.slices * kColumns;
    }
    PYTRACE_UNROLL
    for (int i = 0; i < kItemCopies; ++i) {
      const int64_t at = first_item + row_ + i * kRowsAtOnce;
      int64_t row = at < job.count ? at : 0;
      if (job.in_place) {
        const uint32_t own = job.item_bounds[at].row;
        row = own == kNoRow ? 0 : int64_t{own};
      }
      item_rows_[i] = job.items + row * job.item_stride;
    }
    // One set of bounds a tile that may be on its way or in use.
    const auto thread = static_cast<int>(threadIdx.x);
    copy_async(item_bounds_ + turn_ * kTileItems + thread, job.item_bounds + first_item + thread);
    if (thread < kTileQueries) {
      copy_async(query_bounds_ + turn_ * kTileQueries + thread,
                 job.query_bounds + query_of(job, first_query + thread));
    }
    turn_ = turn_ + 1 == kStages ? 0 : turn_ + 1;
  }

  __device__ static int64_t query_of(const FilterJob<Element>& job, int64_t slot) {
    if (slot >= job.query_count) slot = 0;
    return job.order == nullptr ? slot : int64_t{job.order[slot]};
  }

  Element* queries_;
  Element* items_;
  QueryBound* query_bounds_;
  ItemBound* item_bounds_;
  int64_t query_tiles_;
  int64_t tiles_;
  int64_t tile_;
  int64_t slice_ = 0;
  int stage_ = 0;
  int turn_ = 0;
  int row_;
  int pack_;
  const Element* query_rows_[kQueryCopies];
  const Element* item_rows_[kItemCopies];
};

template <Metric kMetric>
__device__ __forceinline__ float value_of(const ItemBound& item, float sum, float unit) {
  if (kMetric == Metric::kEuclidean) return multiply_add(item.factor, sum, item.offset * unit);
  return item.factor * sum;
}

// Appends the tile's hits. The bounds are those of the warp's queries and items.
template <Metric kMetric, typename Element>
__device__ __forceinline__ void append_hits(const FilterJob<Element>& job,
                                            const float (&sums)[kQueryTiles][kItemTiles][4],
                                            const QueryBound* query_bounds,
                                            const ItemBound* item_bounds, int64_t first_slot) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own_row = lane / 4;
  const int own_column = 2 * (lane % 4);
  float best[kRowsOfLane];
  float unit[kRowsOfLane];
  PYTRACE_UNROLL
  for (int r = 0; r < kRowsOfLane; ++r) {
    best[r] = -HUGE_VALF;
    unit[r] = kMetric == Metric::kEuclidean ? query_bounds[8 * r + own_row].unit : 1.0f;
  }
  float widest = 0.0f;
  PYTRACE_UNROLL
  for (int c = 0; c < 2 * kItemTiles; ++c) {
    const ItemBound item = item_bounds[c / 2 * 8 + own_column + c % 2];
    widest = fmaxf(widest, item.weight);
    PYTRACE_UNROLL
    for (int r = 0; r < kRowsOfLane; ++r) {
      const float sum = sums[r / 2][c / 2][r % 2 * 2 + c % 2];
      best[r] = fmaxf(best[r], value_of<kMetric>(item, sum, unit[r]));
    }
  }
  // The largest passes over NaN, which only unbounded queries and items lead to.
  const bool bounded = widest < HUGE_VALF;
  PYTRACE_UNROLL
  for (int r = 0; r < kRowsOfLane; ++r) {
    const int row = 8 * r + own_row;
    const QueryBound query = query_bounds[row];
    if (bounded && multiply_add(widest, query.slack, best[r]) < query.floor) continue;
    if (first_slot + row >= job.query_count) continue;
    uint32_t passed = 0;
    PYTRACE_UNROLL
    for (int c = 0; c < 2 * kItemTiles; ++c) {
      const ItemBound item = item_bounds[c / 2 * 8 + own_column + c % 2];
      const float sum = sums[r / 2][c / 2][r % 2 * 2 + c % 2];
      const float bound =
          multiply_add(item.weight, query.slack, value_of<kMetric>(item, sum, unit[r]));
      const bool below =
          bound < query.floor || (bound == query.floor && job.first_index + item.row > query.last);
      if (!below && item.row != kNoRow) passed |= 1u << c;
    }
    if (passed == 0) continue;
    const int64_t slot = first_slot + row;
    const int64_t number = job.order == nullptr ? slot : int64_t{job.order[slot]};
    int64_t at = atomicAdd(job.counts + number, static_cast<unsigned>(__popc(passed)));
    for (; passed != 0 && at < job.capacity; passed &= passed - 1, ++at) {
      const int c = __ffs(static_cast<int>(passed)) - 1;
      job.hits[number * job.capacity + at] = item_bounds[c / 2 * 8 + own_column + c % 2].row;
    }
  }
}

template <Metric kMetric, typename Element>
__global__ void __launch_bounds__(kFilterThreads, 1) append_passing(FilterJob<Element> job) {
  SharedArrays shared;
  auto* queries = shared.take<Element>(kStages * kTileQueries * kColumns);
  auto* items = shared.take<Element>(kStages * kTileItems * kColumns);
  auto* query_bounds = shared.take<QueryBound>(kStages * kTileQueries);
  auto* item_bounds = shared.take<ItemBound>(kStages * kTileItems);
  if (*job.not_finite != ~0ull) return;

  const int64_t query_tiles = (job.query_count + kTileQueries - 1) / kTileQueries;
  const int64_t tiles = (job.count + kTileItems - 1) / kTileItems * query_tiles;
  Loader<Element> loader(queries, items, query_bounds, item_bounds, query_tiles, tiles);
  PYTRACE_UNROLL
  for (int stage = 0; stage + 1 < kStages; ++stage) loader.load_next(job);

  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_query = warp % 2 * kWarpSide;
  const int warp_item = warp / 2 * kWarpSide;
  // Where this lane's rows of 8 x 8 matrices lie: of queries the upper and the lower eight, then
  // the next columns; of items the next columns first. See load_matrices and multiply_matrices.
  const int query_row = warp_query + lane / 8 % 2 * 8 + lane % 8;
  const int query_pack = lane / 16;
  const int item_row = warp_item + lane / 16 * 8 + lane % 8;
  const int item_pack = lane / 8 % 2;

  float sums[kQueryTiles][kItemTiles][4] = {};
  int stage = 0;
  int turn = 0;
  int64_t slice = 0;
  for (int64_t tile = blockIdx.x; tile < tiles;) {
    wait_copies<kStages - 2>();
    __syncthreads();
    loader.load_next(job);  // into the stage that all have left
    const Element* query_stage = queries + stage * kTileQueries * kColumns;
    const Element* item_stage = items + stage * kTileItems * kColumns;
    PYTRACE_UNROLL
    for (int pack = 0; pack < kPacks; pack += 2) {
      uint32_t left[kQueryTiles][4];
      uint32_t right[kItemTiles / 2][4];
      PYTRACE_UNROLL
      for (int i = 0; i < kQueryTiles; ++i)
        load_matrices(left[i], query_stage + place_of_pack(query_row + 16 * i, pack + query_pack));
      PYTRACE_UNROLL
      for (int i = 0; i < kItemTiles / 2; ++i)
        load_matrices(right[i], item_stage + place_of_pack(item_row + 16 * i, pack + item_pack));
      PYTRACE_UNROLL
      for (int i = 0; i < kQueryTiles; ++i) {
        PYTRACE_UNROLL
        for (int j = 0; j < kItemTiles; ++j) {
          const uint32_t columns[2] = {right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]};
          multiply_matrices<Element>(sums[i][j], left[i], columns);
        }
      }
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
    if (++slice < job.slices) continue;
    slice = 0;
    append_hits<kMetric>(job, sums, query_bounds + turn * kTileQueries + warp_query,
                         item_bounds + turn * kTileItems + warp_item,
                         tile % query_tiles * kTileQueries + warp_query);
    turn = turn + 1 == kStages ? 0 : turn + 1;
    tile += gridDim.x;
    PYTRACE_UNROLL
    for (int i = 0; i < kQueryTiles; ++i) {
      PYTRACE_UNROLL
      for (int j = 0; j < kItemTiles; ++j) {
        PYTRACE_UNROLL
        for (int part = 0; part < 4; ++part) sums[i][j][part] = 0.0f;
      }
    }
  }
}

}  // namespace filter
}  // namespace pytrace::cuda
