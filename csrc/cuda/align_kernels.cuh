// The kernels of a batched alignment; align.cu launches them.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/align_cells.cuh"

namespace pytrace::cuda {

inline constexpr int kAlignThreads = 128;
inline constexpr int kAlignWarps = kAlignThreads / kWarp;

// The sequences as the card has them.
struct Sequences {
  const int32_t* candidates;
  const int64_t* candidate_offsets;
  const int32_t* references;
  const int64_t* reference_offsets;
  const int64_t* groups;
  int64_t count;  // candidates

  // The candidate whose group the reference is in: the last whose group begins at or before it.
  __device__ int64_t candidate_of(int64_t reference) const {
    int64_t low = 0;
    int64_t high = count;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      if (groups[middle] <= reference) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

// What a pair comes to: its score, and the matches and columns of its best path.
struct PairResults {
  double* scores;
  unsigned long long* paths;
};

// W lanes a reference with its candidate: those of `list`, or all `count` if that is null. `rows`
// has two rows of `pitch` cells a warp where a candidate may have more than W symbols.
template <int W, typename Value, bool kAffine, typename Pairs>
__global__ void align_pairs(Sequences sequences, const int64_t* list, int64_t count, Pairs pairs,
                            Gaps<Value> gaps, Cell<Value>* rows, int64_t pitch,
                            PairResults results) {
  constexpr int kOfWarp = kWarp / W;
  const auto thread = static_cast<int>(threadIdx.x);
  const int64_t warp = int64_t{blockIdx.x} * kAlignWarps + thread / kWarp;
  const int64_t stride = int64_t{gridDim.x} * kAlignWarps * kOfWarp;
  Cell<Value>* const between = rows == nullptr ? nullptr : rows + 2 * warp * pitch;
  for (int64_t first = warp * kOfWarp; first < count; first += stride) {
    const int64_t index = first + thread % kWarp / W;
    const bool any = index < count;
    const int64_t reference = any ? (list != nullptr ? list[index] : index) : 0;
    const int32_t* a = nullptr;
    const int32_t* b = nullptr;
    int64_t symbols = 0;
    int64_t columns = -1;
    if (any) {
      const int64_t candidate = sequences.candidate_of(reference);
      const int64_t begin = sequences.candidate_offsets[candidate];
      a = sequences.candidates + begin;
      symbols = sequences.candidate_offsets[candidate + 1] - begin;
      const int64_t from = sequences.reference_offsets[reference];
      b = sequences.references + from;
      columns = sequences.reference_offsets[reference + 1] - from;
    }
    int64_t most_columns = columns;
    PYTRACE_UNROLL
    for (int apart = kWarp / 2; apart >= W; apart /= 2) {
      const int64_t other = __shfl_xor_sync(kWholeWarp, most_columns, apart);
      most_columns = other > most_columns ? other : most_columns;
    }
    const Cell<Value> end =
        fill_rows<W, Value, kAffine, false>(a, b, columns, most_columns, 0, symbols, pairs, gaps,
                                            nullptr, nullptr, between, pitch, nullptr);
    if (any && thread % W == 0) {
      results.scores[reference] = static_cast<double>(end.best);
      results.paths[reference] = end.best_path;
    }
  }
}

struct BestOfCandidates {
  int64_t* best;
  double* scores;
  int64_t* matches;
  int64_t* lengths;
};

// A warp a candidate: the best of its references, the lowest of equals.
__global__ void choose_references(Sequences sequences, PairResults results, BestOfCandidates out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = int64_t{blockIdx.x} * kAlignWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stride = int64_t{gridDim.x} * kAlignWarps;
  for (int64_t candidate = warp; candidate < sequences.count; candidate += stride) {
    const int64_t last = sequences.groups[candidate + 1];
    int64_t best = -1;
    double score = -INFINITY;
    for (int64_t at = sequences.groups[candidate] + lane; at < last; at += kWarp) {
      const double other = results.scores[at];
      if (best >= 0 && !(other > score)) continue;
      best = at;
      score = other;
    }
    PYTRACE_UNROLL
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      const int64_t other = __shfl_xor_sync(kWholeWarp, best, apart);
      const double other_score = __shfl_xor_sync(kWholeWarp, score, apart);
      if (other >= 0 &&
          (best < 0 || other_score > score || (other_score == score && other < best))) {
        best = other;
        score = other_score;
      }
    }
    if (lane == 0) {
      const unsigned long long path = best < 0 ? 0 : results.paths[best];
      out.best[candidate] = best;
      out.scores[candidate] = score;
      out.matches[candidate] = static_cast<int64_t>(path / kMatch);
      out.lengths[candidate] = static_cast<int64_t>(path % kMatch);
    }
  }
}

// A pair whose path is wanted: memory of its own, `slab` rows (whole strips) at a time.
struct Trace {
  int64_t candidate;
  int64_t reference;
  int64_t slab;
  int64_t memory;  // where its bytes begin: two rows of cells, the rows kept, directions
};

// A warp a pair: from the last slab to the first, its directions are written, then read back by one
// lane, column by column from the end.
template <typename Value, bool kAffine, typename Pairs>
__global__ void trace_pairs(Sequences sequences, const Trace* traces, int64_t count, Pairs pairs,
                            Gaps<Value> gaps, char* memory, const int64_t* offsets,
                            int64_t* candidate_steps, int64_t* reference_steps) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = int64_t{blockIdx.x} * kAlignWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stride = int64_t{gridDim.x} * kAlignWarps;
  for (int64_t index = warp; index < count; index += stride) {
    const Trace trace = traces[index];
    const int64_t begin = sequences.candidate_offsets[trace.candidate];
    const int64_t from = sequences.reference_offsets[trace.reference];
    const int32_t* a = sequences.candidates + begin;
    const int32_t* b = sequences.references + from;
    const int64_t symbols = sequences.candidate_offsets[trace.candidate + 1] - begin;
    const int64_t columns = sequences.reference_offsets[trace.reference + 1] - from;
    const int64_t pitch = columns + 1;
    auto* cells = reinterpret_cast<Cell<Value>*>(memory + trace.memory);
    const int64_t slabs = symbols > 0 ? (symbols + trace.slab - 1) / trace.slab : 0;
    // kept + i * pitch is the last row of slab i.
    Cell<Value>* const kept = cells + (symbols > kWarp ? 2 * pitch : 0);
    auto* directions = reinterpret_cast<uint8_t*>(kept + (slabs > 1 ? (slabs - 1) * pitch : 0));
    for (int64_t slab = 0; slab + 1 < slabs; ++slab) {
      fill_rows<kWarp, Value, kAffine, false>(a, b, columns, columns, slab * trace.slab,
                                              (slab + 1) * trace.slab, pairs, gaps,
                                              slab > 0 ? kept + (slab - 1) * pitch : nullptr,
                                              kept + slab * pitch, cells, pitch, nullptr);
    }
    int64_t i = symbols;
    int64_t j = columns;
    int64_t at = offsets[trace.candidate + 1];
    int state = kPair;  // no gap is being read
    for (int64_t slab = slabs; slab-- > 0;) {
      const int64_t first = slab * trace.slab;
      const int64_t last = first + trace.slab < symbols ? first + trace.slab : symbols;
      fill_rows<kWarp, Value, kAffine, true>(a, b, columns, columns, first, last, pairs, gaps,
                                             slab > 0 ? kept + (slab - 1) * pitch : nullptr,
                                             nullptr, cells, pitch, directions);
      __syncwarp();
      if (lane == 0) {
        while (i > first) {
          const int64_t row = i - first - 1;
          const int64_t place =
              row / kWarp * strip_bytes<kWarp>(columns) + (j + row % kWarp) * kWarp + row % kWarp;
          const int direction = directions[place];
          if (state == kPair) state = direction & kStateBits;
          --at;
          const int step = state;
          if (step == kPair || (step == kUp && (direction & kUpOpens) != 0) ||
              (step == kLeft && (direction & kLeftOpens) != 0)) {
            state = kPair;
          }
          if (step != kLeft) --i;
          if (step != kUp) --j;
          candidate_steps[at] = step == kLeft ? -1 : i;
          reference_steps[at] = step == kUp ? -1 : j;
        }
      }
      __syncwarp();
    }
    // What is left of row 0.
    j = __shfl_sync(kWholeWarp, j, 0);
    const int64_t start = offsets[trace.candidate];
    for (int64_t column = lane; column < j; column += kWarp) {
      candidate_steps[start + column] = -1;
      reference_steps[start + column] = column;
    }
    __syncwarp();
  }
}

}  // namespace pytrace::cuda
