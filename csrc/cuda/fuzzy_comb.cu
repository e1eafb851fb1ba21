// partial_ratio of needles of any length.
#include <algorithm>

#include "cuda/fuzzy_pairs.cuh"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocksOfMultiprocessor = 16;
// Eight bytes a character of both texts; up to this many the block keeps them in shared memory.
constexpr int64_t kSharedCharacters = static_cast<int64_t>(kSharedBytes - 64) / 8;

// Combs the needle beside the text and offers every window to `best`. As on the processor: strands
// go in on the left (row by row from below, numbered 0 to m - 1) and at the top (m to m + n - 1);
// two that meet cross unless they have crossed before, and turn where the characters are equal.
// LCS(needle, text[l:r]) is r - l less the strands that go in at the top of column l or later and
// come out below before column r.
__device__ __forceinline__ void comb(FuzzyString needle, FuzzyString text, int32_t* left,
                                     int32_t* below, int32_t* changes, int32_t* sums,
                                     FuzzyBest* best) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int64_t m = needle.size;
  const int64_t n = text.size;
  for (int64_t i = thread; i < m; i += kThreads) left[i] = static_cast<int32_t>(i);
  for (int64_t j = thread; j < n; j += kThreads) below[j] = static_cast<int32_t>(m + j);
  for (int64_t k = thread; k < m + n; k += kThreads) changes[k] = 0;
  __syncthreads();
  const auto height = static_cast<int32_t>(m);
  const auto width = static_cast<int32_t>(n);
  for (int32_t diagonal = 0; diagonal < height + (width - 1); ++diagonal) {
    const int32_t begin = diagonal - height + 1 > 0 ? diagonal - height + 1 : 0;
    const int32_t end = diagonal + 1 < width ? diagonal + 1 : width;
    for (int32_t j = begin + thread; j < end; j += kThreads) {
      const int32_t row = diagonal - j;  // from below, it is height - 1 - row
      int32_t* to_left = left + (height - 1 - row);
      const int32_t from_left = *to_left;
      const int32_t from_top = below[j];
      if (from_left > from_top || needle.characters[row] == text.characters[j]) {
        *to_left = from_top;
        below[j] = from_left;
      }
    }
    __syncthreads();
  }
  // A strand from column s to column j counts in the windows that hold both: those whose start is
  // in [j - m + 1, s]. Window w starts at w - (m - 1).
  for (int64_t j = thread; j < n; j += kThreads) {
    const int64_t s = below[j] - m;
    if (s < 0 || s < j - m + 1) continue;
    atomicAdd(changes + j, 1);
    atomicAdd(changes + s + m, -1);
  }
  __syncthreads();
  const int64_t windows = m + n - 1;
  const int64_t share = (windows + kThreads - 1) / kThreads;
  const int64_t first = share * thread < windows ? share * thread : windows;
  const int64_t last = first + share < windows ? first + share : windows;
  int32_t own = 0;
  for (int64_t w = first; w < last; ++w) own += changes[w];
  sums[thread] = own;
  __syncthreads();
  int32_t inside = 0;
  for (int before = 0; before < thread; ++before) inside += sums[before];
  for (int64_t w = first; w < last; ++w) {
    inside += changes[w];
    const int64_t end = w + 1 < n ? w + 1 : n;
    const int64_t length = end - (w - (m - 1) > 0 ? w - (m - 1) : 0);
    keep_better(best, length - inside, m + length);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 4)
    comb_windows(FuzzyPairs pairs, FuzzyScores scores, int64_t room, char* scratch) {
  SharedArrays shared;
  int32_t* sums = shared.take<int32_t>(kThreads);
  auto* bests = shared.take<FuzzyBest>(kWarps);
  const auto thread = static_cast<int>(threadIdx.x);
  int32_t* strands = scratch == nullptr
                         ? shared.take<int32_t>(static_cast<size_t>(2 * room))
                         : reinterpret_cast<int32_t*>(scratch) + 2 * room * blockIdx.x;
  const auto score_of = [&](FuzzyString a, FuzzyString b, const FuzzyPair&) {
    const auto offer = [&](FuzzyString needle, FuzzyString text, FuzzyBest* best) {
      int32_t* below = strands + needle.size;
      comb(needle, text, strands, below, below + text.size, sums, best);
    };
    FuzzyBest best = best_of_warp(best_both_ways(a, b, offer));
    if (thread % kWarp == 0) bests[thread / kWarp] = best;
    __syncthreads();
    for (int warp = 0; warp < kWarps; ++warp)
      keep_better(&best, bests[warp].lcs, bests[warp].total);
    __syncthreads();
    return fuzzy_ratio_of(best.lcs, best.total);
  };
  for_pairs(pairs, scores, blockIdx.x, gridDim.x, thread == 0, score_of);
}

}  // namespace

size_t fuzzy_comb_scratch(FuzzyLongest longest) {
  const int64_t room = longest.a + longest.b;
  return room <= kSharedCharacters - kThreads ? 0 : static_cast<size_t>(room) * 8;
}

void fuzzy_comb(const FuzzyPairs& pairs, const FuzzyScores& scores, FuzzyLongest longest,
                FuzzyScratch scratch, int multiprocessors, cudaStream_t stream) {
  const int64_t room = longest.a + longest.b;
  const size_t each = fuzzy_comb_scratch(longest);
  int64_t blocks = std::min(pairs.count(), int64_t{multiprocessors} * kBlocksOfMultiprocessor);
  SharedBytes shared;
  shared.take<int32_t>(kThreads).take<FuzzyBest>(kWarps);
  if (each == 0) {
    shared.take<int32_t>(static_cast<size_t>(2 * room));
  } else {
    blocks = std::min(blocks, static_cast<int64_t>(scratch.bytes / each));
  }
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared.total(), comb_windows,
         pairs, scores, room, each == 0 ? nullptr : scratch.data);
}

}  // namespace pytrace::cuda
