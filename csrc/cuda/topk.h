// Exact top-k and similarity on a card: what a call describes. See topk.h of the processor for what
// is computed; scores.cuh for the order of the sums.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "topk/topk.h"  // the processor's, not this one

namespace pytrace::cuda {

enum class Number { kFloat32, kFloat16, kBfloat16, kInt8 };

// Rows of numbers on the card, `stride` values apart. `scale`, if there, holds one positive factor
// a row, or one for all (int8 only).
struct DeviceRows {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  Number type = Number::kFloat32;
  const float* scale = nullptr;
  bool one_scale = false;
};

// Rows that a query is not given, on the card: excluded[offsets[i]:offsets[i + 1]] are query i's,
// in rising order. Null `offsets`: none are.
struct DeviceExcluded {
  const int64_t* rows = nullptr;
  const int64_t* offsets = nullptr;
};

}  // namespace pytrace::cuda
