#include <algorithm>

#include "cuda/best_keys.cuh"
#include "cuda/excluded.cuh"
#include "cuda/topk_sort.h"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 512;
// A block's share: 32 KiB of shared memory.
constexpr int64_t kShare = 4096;

int64_t least_power(int64_t count) {
  int64_t size = 2;
  while (size < count) size *= 2;
  return size;
}

__global__ void fill(const float* __restrict__ scores, int64_t columns,
                     const SortJob* __restrict__ jobs, int64_t queries, int64_t first_index,
                     const DeviceExcluded excluded, int64_t kept, int64_t capacity,
                     Key* __restrict__ buffers) {
  const int64_t each = capacity - kept;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < queries * each; at += step) {
    const int64_t query = at / each;
    const int64_t column = at % each;
    const SortJob job = jobs[query];
    Key key = 0;
    if (column < job.last_item - job.first_item) {
      const int64_t index = first_index + job.first_item + column;
      if (!is_excluded(excluded, query, index))
        key = pack_key(scores[query * columns + column], static_cast<uint32_t>(index));
    }
    buffers[query * capacity + kept + column] = key;
  }
}

// One exchange distance of the network, over all buffers as one array: a buffer is a power of two
// and a size never exceeds it, so that none meets its neighbour.
__global__ void exchange(Key* keys, int64_t pairs, int64_t capacity, int64_t size, int64_t apart) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pairs; i += step) {
    const int64_t low = 2 * i - (i & (apart - 1));
    const Key first = keys[low];
    const Key second = keys[low + apart];
    if ((first < second) == ((low & (capacity - 1) & size) == 0)) {
      keys[low] = second;
      keys[low + apart] = first;
    }
  }
}

// All distances below the share, for sizes [first_size, last_size].
__global__ void exchange_shares(Key* keys, int64_t shares, int64_t share, int64_t capacity,
                                int64_t first_size, int64_t last_size) {
  SharedArrays shared;
  Key* const own = shared.take<Key>(static_cast<size_t>(share));
  const auto thread = static_cast<int64_t>(threadIdx.x);
  for (int64_t at = blockIdx.x; at < shares; at += gridDim.x) {
    const int64_t begin = at * share;
    for (int64_t i = thread; i < share; i += kThreads) own[i] = keys[begin + i];
    __syncthreads();
    for (int64_t size = first_size; size <= last_size; size *= 2) {
      const int64_t most = size / 2 < share / 2 ? size / 2 : share / 2;
      for (int64_t apart = most; apart > 0; apart /= 2) {
        for (int64_t i = thread; i < share / 2; i += kThreads) {
          const int64_t low = 2 * i - (i & (apart - 1));
          const Key first = own[low];
          const Key second = own[low + apart];
          if ((first < second) == (((begin + low) & (capacity - 1) & size) == 0)) {
            own[low] = second;
            own[low + apart] = first;
          }
        }
        __syncthreads();
      }
    }
    for (int64_t i = thread; i < share; i += kThreads) keys[begin + i] = own[i];
    __syncthreads();
  }
}

dim3 blocks_for(int64_t threads) { return dim3(grid_of(threads, kThreads)); }

}  // namespace

int64_t sorted_capacity(int64_t kept, int64_t columns) { return least_power(kept + columns); }

void fill_keys(const float* scores, int64_t columns, const SortJob* jobs, int64_t queries,
               int64_t first_index, const DeviceExcluded& excluded, int64_t kept, int64_t capacity,
               unsigned long long* buffers, cudaStream_t stream) {
  launch(stream, blocks_for(queries * (capacity - kept)), dim3(kThreads), 0, &fill, scores, columns,
         jobs, queries, first_index, excluded, kept, capacity, buffers);
}

void sort_buffers(unsigned long long* buffers, int64_t queries, int64_t capacity,
                  cudaStream_t stream) {
  const int64_t share = std::min(kShare, capacity);
  const int64_t shares = queries * (capacity / share);
  const dim3 grid(grid_of(shares, 1));
  const size_t bytes = SharedBytes().take<Key>(static_cast<size_t>(share)).total();
  const auto in_shares = [&](int64_t first_size, int64_t last_size) {
    launch(stream, grid, dim3(kThreads), bytes, &exchange_shares, buffers, shares, share, capacity,
           first_size, last_size);
  };
  in_shares(2, share);
  for (int64_t size = 2 * share; size <= capacity; size *= 2) {
    for (int64_t apart = size / 2; apart >= share; apart /= 2) {
      const int64_t pairs = queries * capacity / 2;
      launch(stream, blocks_for(pairs), dim3(kThreads), 0, &exchange, buffers, pairs, capacity,
             size, apart);
    }
    in_shares(size, size);
  }
}

}  // namespace pytrace::cuda
