#include <algorithm>
#include <cmath>

#include "cuda/best_keys.cuh"
#include "cuda/topk_merge.h"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    merge(const Key* __restrict__ lists, const MergeJob* __restrict__ jobs, int64_t queries, int k,
          int capacity, Key* best) {
  SharedArrays shared;
  int* const count = shared.take<int>(1);
  Key* const keys = shared.take<Key>(static_cast<size_t>(capacity));
  const auto thread = static_cast<int>(threadIdx.x);
  for (int64_t query = blockIdx.x; query < queries; query += gridDim.x) {
    const MergeJob job = jobs[query];
    if (job.lists == 0) continue;
    Key* const own = best + query * k;
    for (int i = thread; i < k; i += kThreads) keys[i] = own[i];
    if (thread == 0) *count = k;
    __syncthreads();
    Key threshold = keys[k - 1];
    const int64_t total = job.lists * k;
    // Rank by rank of all lists. They fall, so that nothing can pass any more once as many keys in
    // a row as there are lists did not.
    int before = k;
    int64_t missed = 0;
    for (int64_t first = 0; first < total; first += kThreads) {
      const int64_t at = first + thread;
      Key key = 0;
      if (at < total) key = lists[(job.first + at % job.lists * job.step) * k + at / job.lists];
      const bool hit = key > threshold;
      const int place = place_in(count, hit);
      if (hit) keys[place] = key;
      __syncthreads();
      const int filled = *count;
      __syncthreads();
      missed = filled == before ? missed + kThreads : 0;
      if (missed >= job.lists) break;
      before = filled;
      if (filled > capacity - kThreads) {
        before = cut_keys(keys, filled, k);
        if (thread == 0) *count = before;
        threshold = keys[k - 1];
        __syncthreads();
      }
    }
    cut_keys(keys, *count, k);
    for (int i = thread; i < k; i += kThreads) own[i] = keys[i];
    __syncthreads();
  }
}

__global__ void write(const Key* __restrict__ keys, int64_t queries, int64_t kept, int64_t stride,
                      int64_t k, bool distance, float* __restrict__ scores,
                      int64_t* __restrict__ indices) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < queries * k; at += step) {
    const int64_t rank = at % k;
    const Key key = rank < kept ? keys[at / k * stride + rank] : Key{0};
    const float score = key == 0 ? -HUGE_VALF : score_of_key(key);
    scores[at] = distance ? 0.0f - score : score;
    indices[at] = key == 0 ? -1 : int64_t{index_of_key(key)};
  }
}

}  // namespace

void merge_lists(const unsigned long long* lists, const MergeJob* jobs, int64_t queries, int64_t k,
                 unsigned long long* best, cudaStream_t stream) {
  // The k best and as many more, so that most merges of few lists cut once.
  const int capacity = power_of_two(k + std::max<int64_t>(kThreads, std::min<int64_t>(k, 2048)));
  const size_t bytes = SharedBytes().take<int>(1).take<Key>(static_cast<size_t>(capacity)).total();
  launch(stream, dim3(grid_of(queries, 1)), dim3(kThreads), bytes, &merge, lists, jobs, queries,
         static_cast<int>(k), capacity, best);
}

void write_results(const unsigned long long* keys, int64_t queries, int64_t kept, int64_t stride,
                   int64_t k, bool distance, float* scores, int64_t* indices, cudaStream_t stream) {
  launch(stream, dim3(grid_of(queries * k, kThreads)), dim3(kThreads), 0, &write, keys, queries,
         kept, stride, k, distance, scores, indices);
}

}  // namespace pytrace::cuda
