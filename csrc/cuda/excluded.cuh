// Items that a query must not be given, looked up one by one: O(log of their number).
#pragma once

#include "cuda/device.cuh"
#include "cuda/topk.h"

namespace pytrace::cuda {

// Whether the query's rows, which rise, hold one.
__device__ __forceinline__ bool is_excluded(const DeviceExcluded& excluded, int64_t query,
                                            int64_t row) {
  if (excluded.offsets == nullptr) return false;
  int64_t low = excluded.offsets[query];
  const int64_t end = excluded.offsets[query + 1];
  int64_t high = end;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (excluded.rows[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < end && excluded.rows[low] == row;
}

}  // namespace pytrace::cuda
