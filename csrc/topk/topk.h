// Exact top-k of queries against items by inner product, cosine or Euclidean distance.
//
// Brute force, fused, so that no score matrix exists. Few queries: a tile of items that stays in
// the second-level cache meets a group of queries that stays in the first, in register blocks of
// dot products; the tile's scores are compared with each query's k-th best so far and only those
// above it are kept. Many queries: the same tile is laid out in panels and scanned as a matrix
// product (topk_scan.h; int8 items in bytes, topk_bytes.h), and only what could be above the k-th
// best is scored by dot products. Few items: all scores are kept, and the best chosen by a bound
// that is found by counting (topk_select.h). Time O(queries * items * dim) multiply-adds, memory
// O(threads * queries in flight * k). Kept scores are (score, index) packed into one 64-bit key, in
// a buffer of up to twice k that a selection cuts back to k whenever it is full: O(1) a kept score,
// whatever the order of the items.
//
// A score's sum has one fixed order and scores are totally ordered (equal ones: lower index first),
// so results do not depend on threads, tiles, neighbours in the batch or alignment. Between
// instruction sets they differ by rounding. A score that is not a finite float32 has no place in an
// order and is an error.
#pragma once

#include <cstdint>

#include "common/views.h"

namespace pytrace {

enum class Metric { kInnerProduct, kCosine, kEuclidean };
enum class ItemType { kFloat32, kFloat16, kInt8 };

// Rows of items, `stride` values apart; `scale`, if there, holds one positive factor a row (int8
// items only).
struct Items {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  ItemType type = ItemType::kFloat32;
  const float* scale = nullptr;
};

// What to search. With no item_offsets every query sees all items. With them question g sees
// items[item_offsets[g]:item_offsets[g + 1]], and its queries are
// queries[query_offsets[g]:query_offsets[g + 1]], or query g alone where there are no
// query_offsets. excluded[exclude_offsets[i]:exclude_offsets[i + 1]] are rows that query i does not
// see (-1 stands for none).
struct TopKInput {
  Matrix<const float> queries;
  Items items;
  Span<const int64_t> item_offsets;
  Span<const int64_t> query_offsets;
  Span<const int64_t> excluded;
  Span<const int64_t> exclude_offsets;
};

// scores and indices are [queries, k], best first: inner products and cosines fall, distances rise.
// Indices are rows of `items`. Where there are fewer than k, the rest is -1 with -inf (+inf for
// distances).
void top_k(const TopKInput& input, int64_t k, Metric metric, int threads, float* scores,
           int64_t* indices);

// The full matrix [queries, items]; distances are positive.
void similarity(const Matrix<const float>& queries, const Items& items, Metric metric, int threads,
                float* out);

// Each row divided by its length (computed in float64); rows of length 0 stay 0. out is [rows,
// cols], contiguous.
void normalize(const Matrix<const float>& rows, int threads, float* out);

}  // namespace pytrace
