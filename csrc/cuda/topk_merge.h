// Lists of keys (scores.cuh) into one, and keys into scores and indices.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace pytrace::cuda {

// A query's lists: first, first + step, ... of them, k keys each.
struct MergeJob {
  int64_t first = 0;
  int64_t lists = 0;
  int64_t step = 0;
};

// best[query * k ...], sorted with the best first and zeros behind the last, becomes the k best of
// itself and of the query's lists. k is at most kMostScannedK (topk_scan.h). A block a query: lists
// are read rank by rank, so that the threshold is high after their first keys.
void merge_lists(const unsigned long long* lists, const MergeJob* jobs, int64_t queries, int64_t k,
                 unsigned long long* best, cudaStream_t stream);

// scores and indices [queries, k] of keys [queries, kept], of which each row is `stride` keys after
// the one before; what is missing is -1 with -inf, or +inf where `distance`.
void write_results(const unsigned long long* keys, int64_t queries, int64_t kept, int64_t stride,
                   int64_t k, bool distance, float* scores, int64_t* indices, cudaStream_t stream);

}  // namespace pytrace::cuda
