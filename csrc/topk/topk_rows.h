// Some rows of int8 items as the float32 that they stand for: each value times its row's scale.
#pragma once

#include <cstdint>
#include <vector>

#include "common/parallel.h"
#include "common/views.h"

namespace pytrace {

struct ScaledItems {
  Matrix<const int8_t> items;
  Span<const float> scales;  // one a row
};

// Fills row i of `out` from row rows[i] of parts[owners[i]]. Throws std::invalid_argument where
// there is no such row, or sizes differ; then some rows may be filled already.
inline void scaled_rows(const std::vector<ScaledItems>& parts, Span<const int64_t> owners,
                        Span<const int64_t> rows, Matrix<float> out, int threads) {
  for (const ScaledItems& part : parts) {
    if (part.scales.size != part.items.rows || part.items.cols != out.cols) {
      fail("items are [" + to_text(part.items.rows) + ", " + to_text(part.items.cols) + "] with " +
           to_text(part.scales.size) + " scales, and rows of " + to_text(out.cols) + " are due");
    }
  }
  if (owners.size != rows.size) {
    fail("there are " + to_text(rows.size) + " rows, but " + to_text(owners.size) + " owners");
  }
  constexpr int64_t kRowsAtOnce = 256;  // some 30 us
  parallel_for(rows.size, kRowsAtOnce, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto count = static_cast<int64_t>(parts.size());
      if (owners[i] < 0 || owners[i] >= count) {
        fail("there is no part " + to_text(owners[i]) + " among " + to_text(count));
      }
      const ScaledItems& part = parts[static_cast<size_t>(owners[i])];
      if (rows[i] < 0 || rows[i] >= part.items.rows) {
        fail("there is no row " + to_text(rows[i]) + " among " + to_text(part.items.rows));
      }
      const int8_t* const from = part.items.row(rows[i]);
      const float scale = part.scales[rows[i]];
      float* const to = out.row(i);
      for (int64_t d = 0; d < out.cols; ++d) to[d] = static_cast<float>(from[d]) * scale;
    }
  });
}

}  // namespace pytrace
