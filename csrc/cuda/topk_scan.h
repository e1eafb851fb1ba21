// The scan: queries against items by units of work, memory-bound. Each unit keeps the k best items
// of each of its up to eight queries, or writes all scores.
//
// Eight lanes share an item's row (scores.cuh); a lane group has several rows on their way at once
// and uses each for all of the unit's queries, which stay in shared memory. Nothing but the lists
// is written. Work O(pairs * dim); items are read once a unit of eight, four or one queries.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/topk.h"

namespace pytrace::cuda {

// Up to here a unit's best lists are held in shared memory; beyond, topk_sort.h.
inline constexpr int64_t kMostScannedK = 4096;

// Queries [first_query, first_query + queries) see items [first_item, last_item); rows of what the
// call gives. Its lists are first_list, first_list + 1, ... Where scores are written, item
// first_item stands in column first_column.
struct ScanUnit {
  int64_t first_query = 0;
  int64_t first_item = 0;
  int64_t last_item = 0;
  int64_t first_list = 0;
  int64_t first_column = 0;
  int64_t queries = 0;
};

// How a scan's units are cut: by the shape alone.
struct ScanShape {
  int queries = 1;     // of a unit at most: 8, 4 or 1
  bool staged = true;  // queries fit in shared memory
  int capacity = 0;    // keys a query's buffer holds, a power of two; 0: scores are written
  int rounds = 1;      // rows a thread group takes between two looks at the buffers
  size_t shared = 0;   // bytes
};

// Values of a query as the scan reads it: whole steps of eight 16-byte packs of the items' type.
int64_t scanned_query_values(int64_t cols, Number items);

// k 0: scores are written. `queries` is what the largest group has.
ScanShape scan_shape(int64_t queries, int64_t cols, Number items, int64_t k);

// Rows that a block takes at once: no unit should have fewer unless there are fewer.
int64_t scan_step(const ScanShape& shape);

struct ScanInput {
  DeviceRows items;
  int64_t first_index = 0;               // of the items' first row, in keys and in `excluded`
  const float* queries = nullptr;        // laid out by prepare_queries for the items' type
  const float* query_lengths = nullptr;  // cosine
  int64_t first_query = 0;               // of the queries' first row, in `not_finite`
  DeviceExcluded excluded;
  Metric metric = Metric::kInnerProduct;
  int64_t k = 0;
  const ScanUnit* units = nullptr;  // on the card
  int64_t unit_count = 0;
};

// lists[list * k + i]: the key (scores.cuh) of a unit's i-th best item for one of its queries, 0
// where there are no more; items that are not above the query's threshold may be missing.
// thresholds[query] is such that k items are known to be as good, and rises. *not_finite becomes
// the least of itself and query << 32 | index of a pair whose score is NaN or infinite.
void scan_top_k(const ScanInput& input, const ScanShape& shape, unsigned long long* lists,
                unsigned long long* thresholds, unsigned long long* not_finite, int multiprocessors,
                cudaStream_t stream);

// out[query * stride + column]: the score of each pair; distances are negative if `ranked`, so that
// larger is better.
void scan_scores(const ScanInput& input, const ScanShape& shape, float* out, int64_t stride,
                 bool ranked, unsigned long long* not_finite, int multiprocessors,
                 cudaStream_t stream);

}  // namespace pytrace::cuda
