// The best of a stream of keys, held by a block in shared memory: a buffer that takes what is above
// a threshold, and a cut back to the k best that raises it.
//
// Cost: a cut of n keys is a bitonic sort, O(n log^2 n) exchanges shared by the block. Keys in
// random order that outnumber the buffer often rarely pass, O(k log(count / k)) of them.
#pragma once

#include "cuda/scores.cuh"

namespace pytrace::cuda {

// The least power of two that is at least `count`, and 2.
__host__ __device__ __forceinline__ int power_of_two(int64_t count) {
  int size = 2;
  while (size < count) size *= 2;
  return size;
}

// Sorts so that keys fall; `count` is a power of two. The whole block, which sees the keys already
// and sees them sorted afterwards.
__device__ __forceinline__ void sort_keys(Key* keys, int count) {
  for (int size = 2; size <= count; size *= 2) {
    for (int apart = size / 2; apart > 0; apart /= 2) {
      for (auto i = static_cast<int>(threadIdx.x); i < count / 2;
           i += static_cast<int>(blockDim.x)) {
        const int low = 2 * i - (i & (apart - 1));
        const int high = low + apart;
        const Key first = keys[low];
        const Key second = keys[high];
        if ((first < second) == ((low & size) == 0)) {
          keys[low] = second;
          keys[high] = first;
        }
      }
      __syncthreads();
    }
  }
}

// Cuts `filled` keys, of a buffer that has room for the power of two above, to the k best, sorted;
// zeros follow up to that power of two. Returns how many are left, the same for all threads.
__device__ __forceinline__ int cut_keys(Key* keys, int filled, int k) {
  const int size = power_of_two(filled);
  for (int i = filled + static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x))
    keys[i] = 0;
  __syncthreads();
  sort_keys(keys, size);
  return filled < k ? filled : k;
}

// Places for the calling lanes of a warp that `hit`, in a buffer with a counter in shared memory:
// one atomic a warp. All lanes of the warp call it.
__device__ __forceinline__ int place_in(int* count, bool hit) {
  const unsigned hits = __ballot_sync(kWholeWarp, hit);
  if (hits == 0) return 0;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  int first = 0;
  if (lane == __ffs(static_cast<int>(hits)) - 1) first = atomicAdd(count, __popc(hits));
  first = __shfl_sync(kWholeWarp, first, __ffs(static_cast<int>(hits)) - 1);
  return first + __popc(hits & ((1u << lane) - 1u));
}

}  // namespace pytrace::cuda
