// The kernels of a beam step; beam.cu launches them, beam.h says what they do together.
#pragma once

#include <cmath>
#include <cstdint>

#include "beam/beam.h"
#include "cuda/selection.cuh"

namespace pytrace::cuda {

// An option that stands for: nothing lies in this place.
inline constexpr int64_t kNoCandidate = -2;

// The logits of the chains [first, first + count).
template <typename T>
struct TileLogits {
  const T* data = nullptr;  // of the first chain
  Parts rows;               // where each chain's options begin, `data` being at rows.start(first)
  const uint8_t* finished = nullptr;
  int64_t first = 0;
  int64_t width = -1;  // of a matrix, whose rows may be apart; else -1

  __device__ const T* of(int64_t chain) const {
    return data + (rows.start(chain) - rows.start(first));
  }
  __device__ int64_t size(int64_t chain) const { return width >= 0 ? width : rows.size(chain); }

  __device__ bool load(int64_t chain, int64_t option, Entry* entry) const {
    if (finished[chain] != 0) return false;
    *entry = {static_cast<double>(of(chain)[option]), option};
    return entry->value > -INFINITY;
  }
};

// The largest logit of a segment and the sum of exp(logit - largest).
struct SegmentSum {
  double largest;
  double sum;
};

struct Faults {
  unsigned long long*
      first;  // the least 2 * chain (its score) or 2 * chain + 1 (one of its logits)

  __device__ void note(int64_t chain, bool logit) const {
    atomicMin(first, 2ull * static_cast<unsigned long long>(chain) + (logit ? 1ull : 0ull));
  }
};

// What may become of every chain; each chain has its own stretch of places.
struct Candidates {
  Parts places;
  double* ranks = nullptr;
  double* steps = nullptr;
  int64_t* options = nullptr;  // -1: carried over; kNoCandidate: nothing
  int64_t* parents = nullptr;
};

struct ChainInput {
  const double* scores = nullptr;
  const uint8_t* finished = nullptr;
  const int64_t* lengths = nullptr;  // null: none were given
};

__device__ __forceinline__ double add_of_warp(double sum) {
  PYTRACE_UNROLL
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    sum += __shfl_xor_sync(kWholeWarp, sum, apart);
  }
  return sum;
}

__device__ __forceinline__ double largest_of_warp(double value) {
  PYTRACE_UNROLL
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    value = fmax(value, __shfl_xor_sync(kWholeWarp, value, apart));
  }
  return value;
}

// A warp a segment. Lane i has the options i, i + 32, ...: its sum is kept relative to the largest
// it has met and made smaller when a larger one comes; then the lanes' sums are added in a tree.
// `wanted` of 0: the sums alone.
template <typename T>
__global__ void score_segments(TileLogits<T> logits, Runs runs, int wanted, SegmentSum* sums,
                               Faults faults) {
  // Loads in flight a lane.
  constexpr int kAtOnce = 8;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = int64_t{blockIdx.x} * kSelectWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = int64_t{gridDim.x} * kSelectWarps;
  for (int64_t at = runs.base() + warp; at < runs.end(); at += step) {
    const int64_t chain = runs.segments.part_of(at, runs.first, runs.count);
    if (logits.finished[chain] != 0) continue;
    const int64_t first = (at - runs.segments.start(chain)) * kSegment;
    const T* row = logits.of(chain) + first;
    const int64_t rest = logits.size(chain) - first;
    const int size = static_cast<int>(rest < kSegment ? rest : kSegment);
    WarpList<T> list(wanted > 0 ? wanted : 1);
    T largest = static_cast<T>(-INFINITY);
    double sum = 0.0;
    bool bad = false;
    for (int start = 0; start < size; start += kAtOnce * kWarp) {
      T values[kAtOnce];
      T top = largest;
      PYTRACE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = start + i * kWarp + lane;
        values[i] = index < size ? row[index] : static_cast<T>(-INFINITY);
      }
      PYTRACE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        bad = bad || !(values[i] < static_cast<T>(INFINITY));
        top = values[i] > top ? values[i] : top;
      }
      if (top > largest) {
        sum *= exp(static_cast<double>(largest) - static_cast<double>(top));
        largest = top;
      }
      PYTRACE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (values[i] > static_cast<T>(-INFINITY)) {
          sum += exp(static_cast<double>(values[i]) - static_cast<double>(largest));
        }
      }
      if (wanted > 0) {
        PYTRACE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          if (start + i * kWarp < size) {
            list.offer(values[i] > static_cast<T>(-INFINITY), values[i],
                       first + start + i * kWarp + lane);
          }
        }
      }
    }
    if (bad) faults.note(chain, true);
    const double most = largest_of_warp(static_cast<double>(largest));
    if (static_cast<double>(largest) < most) {
      sum *= exp(static_cast<double>(largest) - most);
    }
    sum = add_of_warp(sum);
    const int64_t run = at - runs.base();
    if (lane == 0) sums[run] = {most, sum};
    if (wanted > 0) store_run(list, runs, run);
  }
}

__device__ __forceinline__ double rank_of(double score, int64_t steps, double penalty) {
  double rank = score;
  if (penalty != 0.0 && score != -INFINITY) {
    rank = score / pow(static_cast<double>(steps > 1 ? steps : 1), penalty);
  }
  // Its input is refused later; it must not reach an order.
  return rank == rank ? rank : -INFINITY;
}

// A warp a chain: its candidates, from the sums of its segments and the best of its options. With
// `joined` those lie in the chain's first run, else in all of its runs.
__global__ void place_candidates(Runs runs, bool joined, const SegmentSum* sums, ChainInput input,
                                 double min_prob, double penalty, Candidates out, Faults faults) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = int64_t{blockIdx.x} * kSelectWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stride = int64_t{gridDim.x} * kSelectWarps;
  for (int64_t chain = runs.first + warp; chain < runs.first + runs.count; chain += stride) {
    const double score = input.scores[chain];
    if (lane == 0 && !(score < INFINITY)) faults.note(chain, false);
    const int64_t base = out.places.start(chain);
    const int64_t places = out.places.size(chain);
    const int64_t length = input.lengths != nullptr ? input.lengths[chain] : 0;
    const int64_t run = runs.local(chain);
    const int64_t segments = runs.segments.size(chain);
    int64_t taken = 0;
    if (input.finished[chain] == 0) {
      double largest = -INFINITY;
      for (int64_t i = lane; i < segments; i += kWarp)
        largest = fmax(largest, sums[run + i].largest);
      largest = largest_of_warp(largest);
      double sum = 0.0;
      for (int64_t i = lane; i < segments; i += kWarp) {
        const SegmentSum part = sums[run + i];
        if (part.largest > -INFINITY) sum += part.sum * exp(part.largest - largest);
      }
      const double log_sum = log(add_of_warp(sum));
      Entry own{0.0, -1};
      int64_t found = 0;
      if (!joined) {
        const WarpList<double> list = join_runs(runs, chain, static_cast<int>(runs.capacity));
        own = {list.value(), list.position()};
        found = list.length();
      } else {
        found = runs.lengths[run];
      }
      found = found < places ? found : places;
      for (int64_t start = 0; start < found; start += kWarp) {
        const int64_t i = start + lane;
        bool kept = i < found;
        double step = 0.0;
        if (kept) {
          if (joined) own = runs.entries[run * runs.capacity + i];
          step = (own.value - largest) - log_sum;
          kept = !(min_prob > 0.0 && exp(step) < min_prob);
        }
        const unsigned lost = __ballot_sync(kWholeWarp, !kept);
        const int first_lost = lost != 0 ? __ffs(static_cast<int>(lost)) - 1 : kWarp;
        if (lane < first_lost) {
          out.ranks[base + i] = rank_of(score + step, length + 1, penalty);
          out.steps[base + i] = step;
          out.options[base + i] = own.position;
          out.parents[base + i] = chain;
        }
        taken += first_lost;
        if (first_lost < kWarp) break;
      }
    }
    if (taken == 0) {
      if (lane == 0) {
        out.ranks[base] = rank_of(score, length, penalty);
        out.steps[base] = 0.0;
        out.options[base] = -1;
        out.parents[base] = chain;
      }
      taken = 1;
    }
    for (int64_t i = taken + lane; i < places; i += kWarp) out.options[base + i] = kNoCandidate;
  }
}

// A question's candidates, for sort_segments and select_candidates.
struct CandidateSource {
  Candidates candidates;
  Parts questions;  // chains of a question

  __device__ int64_t start(int64_t question) const {
    return candidates.places.start(questions.start(question));
  }
  __device__ int64_t size(int64_t question) const {
    return candidates.places.start(questions.start(question + 1)) - start(question);
  }
  __device__ bool load(int64_t question, int64_t index, Entry* entry) const {
    const int64_t place = start(question) + index;
    if (candidates.options[place] == kNoCandidate) return false;
    *entry = {candidates.ranks[place], place};
    return true;
  }
};

// A warp a segment of a question's candidates.
__global__ void select_candidates(CandidateSource source, Runs runs, int wanted) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = int64_t{blockIdx.x} * kSelectWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = int64_t{gridDim.x} * kSelectWarps;
  for (int64_t run = warp; run < runs.end(); run += step) {
    const int64_t question = runs.segments.part_of(run, 0, runs.count);
    const int64_t first = (run - runs.segments.start(question)) * kSegment;
    const int64_t rest = source.size(question) - first;
    const int size = static_cast<int>(rest < kSegment ? rest : kSegment);
    WarpList<double> list(wanted);
    for (int start = 0; start < size; start += kWarp) {
      Entry entry{0.0, -1};
      const bool valid = start + lane < size && source.load(question, first + start + lane, &entry);
      list.offer(valid, entry.value, entry.position);
    }
    store_run(list, runs, run);
  }
}

// A warp a question: what its runs hold becomes the first of them.
__global__ void join_candidates(Runs runs, int wanted) {
  const int64_t warp = int64_t{blockIdx.x} * kSelectWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = int64_t{gridDim.x} * kSelectWarps;
  for (int64_t question = warp; question < runs.count; question += step) {
    const WarpList<double> list = join_runs(runs, question, wanted);
    __syncwarp();
    store_run(list, runs, runs.local(question));
  }
}

// One block: offsets[i] = the sum of the lengths before i, for count + 1 values of i; then the
// first fault, so that one copy tells the host all.
__global__ void add_up_lengths(Runs runs, Faults faults, int64_t* offsets) {
  SharedArrays shared;
  int64_t* sums = shared.take<int64_t>(kSelectWarps);
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  int64_t before_all = 0;
  for (int64_t start = 0; start < runs.count; start += kSelectThreads) {
    const int64_t group = start + thread;
    const int64_t own = group < runs.count ? runs.lengths[runs.local(group)] : 0;
    int64_t sum = own;
    PYTRACE_UNROLL
    for (int apart = 1; apart < kWarp; apart *= 2) {
      const int64_t other = __shfl_up_sync(kWholeWarp, sum, apart);
      if (lane >= apart) sum += other;
    }
    if (lane == kWarp - 1) sums[thread / kWarp] = sum;
    __syncthreads();
    int64_t earlier = before_all;
    int64_t all = before_all;
    for (int i = 0; i < kSelectWarps; ++i) {
      if (i < thread / kWarp) earlier += sums[i];
      all += sums[i];
    }
    if (group < runs.count) offsets[group] = earlier + sum - own;
    before_all = all;
    __syncthreads();
  }
  if (thread == 0) {
    offsets[runs.count] = before_all;
    offsets[runs.count + 1] = static_cast<int64_t>(*faults.first);
  }
}

// A warp a question: its best, side by side with those of the other questions.
__global__ void gather_extensions(Runs runs, Candidates candidates, ChainInput input,
                                  int64_t terminate, const int64_t* offsets, int64_t* parents,
                                  int64_t* options, double* scores, double* steps, bool* finished,
                                  bool* stuck) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = int64_t{blockIdx.x} * kSelectWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stride = int64_t{gridDim.x} * kSelectWarps;
  for (int64_t question = warp; question < runs.count; question += stride) {
    const int64_t run = runs.local(question);
    const int64_t length = runs.lengths[run];
    const int64_t to = offsets[question];
    for (int64_t i = lane; i < length; i += kWarp) {
      const int64_t place = runs.entries[run * runs.capacity + i].position;
      const int64_t parent = candidates.parents[place];
      const int64_t option = candidates.options[place];
      const double step = candidates.steps[place];
      const bool ended = input.finished[parent] != 0;
      parents[to + i] = parent;
      options[to + i] = option;
      scores[to + i] = option < 0 ? input.scores[parent] : input.scores[parent] + step;
      steps[to + i] = step;
      finished[to + i] = option < 0 ? ended : option == terminate;
      stuck[to + i] = option < 0 && !ended;
    }
  }
}

}  // namespace pytrace::cuda
