// The best of many values on a card: lists that a warp holds, sorted blocks, merged runs.
//
// Values are ranked largest first, equal ones by arrival. Every group (a chain with its options, a
// question with its candidates) is cut into segments of at most kSegment items; each segment gives
// a run, its best in order; the runs of a group are then joined. Where at most kWarp are wanted, a
// warp keeps them in its registers (one look at most values); where more are, a block sorts the
// segment in shared memory and runs are merged in pairs, log2(runs) times, each entry finding its
// place by binary search. Run i lies at entries + i * capacity; what is merged from several lies
// where they lay, so that nothing is numbered anew.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/device.cuh"

namespace pytrace::cuda {

// Items of a segment: enough that the list of a warp fills rarely (32 ln(2048 / 32) of 2048 values
// enter it), few enough that one row of a vocabulary gives a hundred warps work. A sorted segment
// takes 32 KiB of shared memory. A power of two.
#if defined(PYTRACE_CUDA_EMULATION)
inline constexpr int kSegment = 64;
#else
inline constexpr int kSegment = 2048;
#endif
inline constexpr int kSelectThreads = 256;
inline constexpr int kSelectWarps = kSelectThreads / kWarp;

// Where the parts of a whole begin: starts[i], or i * each where they are alike.
struct Parts {
  const int64_t* starts = nullptr;
  int64_t each = 0;

  __host__ __device__ int64_t start(int64_t i) const {
    return starts != nullptr ? starts[i] : i * each;
  }
  __host__ __device__ int64_t size(int64_t i) const { return start(i + 1) - start(i); }

  // The part among [first, first + count) that holds `at`; none of them is empty.
  __device__ int64_t part_of(int64_t at, int64_t first, int64_t count) const {
    if (starts == nullptr) return at / each;
    int64_t low = first;
    int64_t high = first + count;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      if (starts[middle] <= at) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

struct Entry {
  double value;
  int64_t position;  // below 0: none
};

// The runs of the groups [first, first + count): those of a group are the segments of `segments`.
struct Runs {
  Parts segments;
  int64_t first = 0;
  int64_t count = 0;
  int64_t capacity = 0;  // entries of a run of one segment
  Entry* entries = nullptr;
  int64_t* lengths = nullptr;

  __host__ __device__ int64_t base() const { return segments.start(first); }
  __host__ __device__ int64_t end() const { return segments.start(first + count); }
  __device__ int64_t local(int64_t group) const { return segments.start(group) - base(); }
};

// A warp's best: lane i holds the i-th. NaN stands for an empty place, below all values.
template <typename Value>
class WarpList {
 public:
  __device__ explicit WarpList(int wanted) : wanted_(wanted) {}

  // Every lane offers a value, or none; lanes stand in the order of arrival. Whole warps only.
  __device__ __forceinline__ void offer(bool valid, Value value, int64_t position) {
    unsigned asking = __ballot_sync(kWholeWarp, valid && !(least_ >= value));
    while (asking != 0) {
      const int source = __ffs(static_cast<int>(asking)) - 1;
      insert(__shfl_sync(kWholeWarp, value, source), __shfl_sync(kWholeWarp, position, source));
      asking &= asking - 1;
      asking &= __ballot_sync(kWholeWarp, !(least_ >= value));
    }
  }

  __device__ int length() const {
    const int filled = __popc(__ballot_sync(kWholeWarp, position_ >= 0));
    return filled < wanted_ ? filled : wanted_;
  }
  __device__ Value value() const { return value_; }
  __device__ int64_t position() const { return position_; }

 private:
  __device__ __forceinline__ void insert(Value value, int64_t position) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int place = __popc(__ballot_sync(kWholeWarp, value_ >= value));
    const Value value_before = __shfl_up_sync(kWholeWarp, value_, 1);
    const int64_t position_before = __shfl_up_sync(kWholeWarp, position_, 1);
    if (lane == place) {
      value_ = value;
      position_ = position;
    } else if (lane > place) {
      value_ = value_before;
      position_ = position_before;
    }
    least_ = __shfl_sync(kWholeWarp, value_, wanted_ - 1);
  }

  int wanted_;
  Value value_ = static_cast<Value>(NAN);
  Value least_ = static_cast<Value>(NAN);  // the last that is wanted
  int64_t position_ = -1;
};

// All places of the run, so that whoever joins runs needs no lengths.
template <typename Value>
__device__ __forceinline__ void store_run(const WarpList<Value>& list, const Runs& runs,
                                          int64_t run) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane < runs.capacity) {
    runs.entries[run * runs.capacity + lane] = {static_cast<double>(list.value()), list.position()};
  }
  const int length = list.length();
  if (lane == 0) runs.lengths[run] = length;
}

// The best of all runs of a group. Whole warps only.
__device__ __forceinline__ WarpList<double> join_runs(const Runs& runs, int64_t group, int wanted) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  WarpList<double> list(wanted);
  const int64_t first = runs.local(group) * runs.capacity;
  const int64_t last = first + runs.segments.size(group) * runs.capacity;
  for (int64_t at = first; at < last; at += kWarp) {
    const Entry entry = at + lane < last ? runs.entries[at + lane] : Entry{0.0, -1};
    list.offer(entry.position >= 0, entry.value, entry.position);
  }
  return list;
}

// Whether `left` stands before `right`, whatever their order of arrival was; empty ones are last.
__device__ __forceinline__ bool before(const Entry& left, const Entry& right) {
  if (left.position < 0 || right.position < 0) return right.position < 0 && left.position >= 0;
  if (left.value != right.value) return left.value > right.value;
  return left.position < right.position;
}

// A block a segment: sorts it and keeps the first `capacity`. `Source` gives the items:
// load(group, index, &entry) is false for what does not count, size(group) says how many there are.
template <typename Source>
__global__ void sort_segments(Source source, Runs runs) {
  SharedArrays shared;
  Entry* entries = shared.take<Entry>(kSegment);
  int* found = shared.take<int>(1);
  const auto thread = static_cast<int>(threadIdx.x);
  for (int64_t at = runs.base() + blockIdx.x; at < runs.end(); at += gridDim.x) {
    const int64_t group = runs.segments.part_of(at, runs.first, runs.count);
    const int64_t first = (at - runs.segments.start(group)) * kSegment;
    const int64_t size = source.size(group);
    if (thread == 0) *found = 0;
    __syncthreads();
    int mine = 0;
    for (int i = thread; i < kSegment; i += kSelectThreads) {
      Entry entry{0.0, -1};
      if (first + i >= size || !source.load(group, first + i, &entry)) entry.position = -1;
      mine += entry.position >= 0 ? 1 : 0;
      entries[i] = entry;
    }
    if (mine > 0) atomicAdd(found, mine);
    for (int length = 2; length <= kSegment; length *= 2) {
      for (int apart = length / 2; apart > 0; apart /= 2) {
        __syncthreads();
        for (int pair = thread; pair < kSegment / 2; pair += kSelectThreads) {
          const int low = pair / apart * 2 * apart + pair % apart;
          const int high = low + apart;
          const bool rising = (low & length) == 0;
          const Entry left = entries[low];
          const Entry right = entries[high];
          if (before(right, left) == rising) {
            entries[low] = right;
            entries[high] = left;
          }
        }
      }
    }
    __syncthreads();
    const int64_t run = at - runs.base();
    const int64_t kept = *found < runs.capacity ? *found : runs.capacity;
    for (int64_t i = thread; i < kept; i += kSelectThreads) {
      runs.entries[run * runs.capacity + i] = entries[i];
    }
    if (thread == 0) runs.lengths[run] = kept;
    __syncthreads();
  }
}

// One round: of each group, the run at i (a multiple of 2 * apart) and that at i + apart become one
// of at most `wanted` entries. A block a segment of entries.
__global__ void merge_runs(Runs from, Runs to, int64_t apart, int64_t wanted) {
  for (int64_t at = from.base() + blockIdx.x; at < from.end(); at += gridDim.x) {
    const int64_t group = from.segments.part_of(at, from.first, from.count);
    const int64_t start = from.local(group);
    const int64_t own = at - from.segments.start(group);
    const int64_t left = own / (2 * apart) * (2 * apart);
    const int64_t right = left + apart;
    const bool paired = right < from.segments.size(group);
    const int64_t left_length = from.lengths[start + left];
    const int64_t right_length = paired ? from.lengths[start + right] : 0;
    const bool is_right = own >= right;
    const Entry* mine = from.entries + (start + (is_right ? right : left)) * from.capacity;
    const Entry* others = from.entries + (start + (is_right ? left : right)) * from.capacity;
    const int64_t length = is_right ? right_length : left_length;
    const int64_t other_length = is_right ? left_length : right_length;
    const int64_t begin = (own - (is_right ? right : left)) * from.capacity;
    Entry* result = to.entries + (start + left) * to.capacity;
    for (int64_t i = begin + threadIdx.x; i < begin + from.capacity && i < length;
         i += kSelectThreads) {
      const Entry entry = mine[i];
      int64_t low = 0;
      int64_t high = other_length;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (before(others[middle], entry)) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      if (i + low < wanted) result[i + low] = entry;
    }
    if (own == left && threadIdx.x == 0) {
      const int64_t both = left_length + right_length;
      to.lengths[start + left] = both < wanted ? both : wanted;
    }
  }
}

}  // namespace pytrace::cuda
