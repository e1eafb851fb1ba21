// Finds which items might be among a query's best, without giving their scores.
//
// Many queries against many items are a matrix product, and a product is fastest when both sides
// are laid out for it: items in panels of a few vectors' lanes, queries in blocks of as many rows
// as registers allow, so that a step over the dimensions needs no sum across lanes (Goto and van de
// Geijn, "Anatomy of high-performance matrix multiplication", 2008). The sums are compared with
// what a candidate must reach, less all rounding that this order of additions and the reported one
// could differ by; only the few items that pass are scored again, by `ScoreKernels::score_listed`.
// The results are therefore those of the plain kernel, bit for bit, whatever the batch.
#pragma once

#include <cstdint>

namespace pytrace {

// Item i of a panel passes for query q unless
//   inner product + offsets[i] + slacks[q] * weights[i] < floors[q].
struct ScanTest {
  const float* floors;   // one a query
  const float* slacks;   // one a query
  const float* weights;  // one an item
  const float* offsets;  // one an item
};

inline constexpr int64_t kLineBytes = 64;

// Cache lines that are asked for while others are multiplied: the next items, which come from
// memory.
struct Ahead {
  const char* first;
  int64_t lines;
};

struct ScanKernels {
  // Lays `count` (at most panel_items) rows of `dim` floats, `stride` apart, out as panel[d *
  // panel_items + i], each value times factors[i]; rows that are missing are zero.
  void (*pack_panel)(const float* rows, int64_t stride, int64_t count, int64_t dim,
                     const float* factors, float* panel);

  // Lays `count` query rows out as block[d * count + q].
  void (*pack_block)(const float* rows, int64_t stride, int64_t count, int64_t dim, float* block);

  // hits[q]: bit i is set where item i of the panel passes. Returns whether any does. Writes
  // block_queries hits, and reads as many floors and slacks.
  bool (*scan)(const float* block, int64_t count, const float* panel, int64_t dim,
               const ScanTest& test, const Ahead& ahead, uint32_t* hits);

  // scores[q * stride + i]: the inner product of query q and item i, as ScoreKernels::score gives
  // it to the last bit where all factors are 1.
  void (*score)(const float* block, int64_t count, const float* panel, int64_t dim,
                const Ahead& ahead, float* scores, int64_t stride);

  int panel_items;    // at most 32
  int block_queries;  // the most that one block holds
};

namespace baseline {
extern const ScanKernels kScanKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const ScanKernels kScanKernels;
}
namespace avx512 {
extern const ScanKernels kScanKernels;
}
#endif

}  // namespace pytrace
