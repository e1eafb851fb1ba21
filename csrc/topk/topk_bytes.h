// The scan of topk_scan.h in integers, for items that are int8: queries become bytes, too, and the
// processor multiplies and adds four at once. What a query loses by it is known, and added to what
// its rounding may be, so that no item is missed; those that pass are scored exactly as ever.
#pragma once

#include <cstdint>

#include "topk/topk_scan.h"

namespace pytrace {

// Item i of a panel passes for query q unless
//   product of bytes * scales[q] * factors[i] + offsets[i] + slacks[q] * weights[i] < floors[q].
struct ByteTest {
  ScanTest scan;
  const float* scales;   // one a query: what one in its bytes stands for
  const int32_t* sums;   // one a query: of its bytes
  const float* factors;  // one an item: what one in its bytes stands for
};

struct ByteKernels {
  // Lays `count` (at most panel_items) rows of `dim` bytes, `stride` apart, out as panel[(d / 4 *
  // panel_items + i) * 4 + d % 4], each value 128 more; rows and dimensions that are missing are 0.
  void (*pack_panel)(const int8_t* rows, int64_t stride, int64_t count, int64_t dim,
                     uint8_t* panel);

  // Lays `count` query rows out as block[(d / 4 * count + q) * 4 + d % 4]; missing dimensions are
  // 0.
  void (*pack_block)(const int8_t* rows, int64_t stride, int64_t count, int64_t dim, int8_t* block);

  // As ScanKernels::scan does; `steps` is the number of dimensions by four, rounded up.
  bool (*scan)(const int8_t* block, int64_t count, const uint8_t* panel, int64_t steps,
               const ByteTest& test, uint32_t* hits);

  int panel_items;    // at most 32
  int block_queries;  // the most that one block holds
};

// nullptr where the active instruction set has none.
const ByteKernels* byte_kernels();

// More dimensions than this might not fit 32-bit sums.
inline constexpr int64_t kMostByteDimensions = 1 << 16;

}  // namespace pytrace
