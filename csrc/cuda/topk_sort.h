// The best of all scores by sorting them: for a k that shared memory does not hold.
//
// A bitonic sort of every query's keys, O(n log^2 n) exchanges for n keys; steps within a block's
// share of 4,096 keys stay in shared memory, so that global memory is passed some
// log(n / 4096)^2 / 2 + log(n / 4096) times.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/topk.h"

namespace pytrace::cuda {

// Which columns of a query's scores hold items, and which items: columns [0, last_item -
// first_item) those of [first_item, last_item).
struct SortJob {
  int64_t first_item = 0;
  int64_t last_item = 0;
};

// Keys a query's buffer must have room for, a power of two.
int64_t sorted_capacity(int64_t kept, int64_t columns);

// buffers[query * capacity + kept ...] become the keys of scores[query * columns ...] and zeros;
// excluded items are zeros too. Larger scores are better. first_index: of item 0, in keys and in
// `excluded`.
void fill_keys(const float* scores, int64_t columns, const SortJob* jobs, int64_t queries,
               int64_t first_index, const DeviceExcluded& excluded, int64_t kept, int64_t capacity,
               unsigned long long* buffers, cudaStream_t stream);

// Sorts every buffer, the best first.
void sort_buffers(unsigned long long* buffers, int64_t queries, int64_t capacity,
                  cudaStream_t stream);

}  // namespace pytrace::cuda
