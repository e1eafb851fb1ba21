// partial_ratio of needles of up to 32 or 64 characters.
#include <algorithm>

#include "cuda/fuzzy_pairs.cuh"

namespace pytrace::cuda {
namespace {

// 16 resident blocks of 4 warps fill a multiprocessor; at 6 KiB a block (64-bit masks) their shared
// memory fits.
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocksOfMultiprocessor = 16;
// Windows whose masks stand in shared memory at once.
constexpr int kWindows = 128;

__device__ __forceinline__ int bits_of(uint32_t mask) { return __popc(mask); }
__device__ __forceinline__ int bits_of(uint64_t mask) { return __popcll(mask); }

// The best of all windows of one direction, for this lane. window w begins at character w - (m - 1)
// of the text; what lies outside of the text has no mask.
template <typename Mask>
__device__ __forceinline__ void best_window(FuzzyString needle, FuzzyString text, uint32_t* rows,
                                            Mask* masks, int lane, FuzzyBest* best) {
  // Neither is above 128, so that their products need no more than an int.
  auto best_lcs = static_cast<int>(best->lcs);
  auto best_total = static_cast<int>(best->total);
  const auto m = static_cast<int>(needle.size);
  for (int r = lane; r < m; r += kWarp) rows[r] = needle.characters[r];
  __syncwarp();
  const int64_t windows = text.size + m - 1;
  for (int64_t base = 0; base < windows; base += kWindows) {
    const int count = static_cast<int>(windows - base < kWindows ? windows - base : kWindows);
    for (int i = lane; i < count + m - 1; i += kWarp) {
      const int64_t at = base + i - (m - 1);
      Mask mask = 0;
      if (at >= 0 && at < text.size) {
        const uint32_t character = text.characters[at];
        for (int r = 0; r < m; ++r) mask |= Mask{rows[r] == character} << r;
      }
      masks[i] = mask;
    }
    __syncwarp();
    for (int w = lane; w < count; w += kWarp) {
      Mask state = ~Mask{0};
      for (int i = 0; i < m; ++i) {
        const Mask mask = masks[w + i];
        state = (state + (state & mask)) | (state & ~mask);
      }
      const int64_t from = base + w - (m - 1);
      const int64_t begin = from > 0 ? from : 0;
      const int64_t end = from + m < text.size ? from + m : text.size;
      const int lcs = bits_of(static_cast<Mask>(~state));
      const int total = m + static_cast<int>(end - begin);
      if (lcs * best_total > best_lcs * total) {
        best_lcs = lcs;
        best_total = total;
      }
    }
    __syncwarp();
  }
  *best = {best_lcs, best_total};
}

template <typename Mask>
__global__ void __launch_bounds__(kThreads) score_windows(FuzzyPairs pairs, FuzzyScores scores) {
  constexpr int kBits = 8 * sizeof(Mask);
  SharedArrays shared;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  uint32_t* rows = shared.take<uint32_t>(kWarps * kBits) + warp * kBits;
  Mask* masks = shared.take<Mask>(kWarps * (kWindows + kBits)) + warp * (kWindows + kBits);
  const auto score_of = [&](FuzzyString a, FuzzyString b, const FuzzyPair&) {
    const auto offer = [&](FuzzyString needle, FuzzyString text, FuzzyBest* best) {
      best_window(needle, text, rows, masks, lane, best);
    };
    const FuzzyBest best = best_of_warp(best_both_ways(a, b, offer));
    return fuzzy_ratio_of(best.lcs, best.total);
  };
  for_pairs(pairs, scores, int64_t{blockIdx.x} * kWarps + warp, int64_t{gridDim.x} * kWarps,
            lane == 0, score_of);
}

template <typename Mask>
void launch_windows(const FuzzyPairs& pairs, const FuzzyScores& scores, int multiprocessors,
                    cudaStream_t stream) {
  constexpr size_t kBits = 8 * sizeof(Mask);
  SharedBytes shared;
  shared.take<uint32_t>(kWarps * kBits).template take<Mask>(kWarps * (kWindows + kBits));
  const int64_t blocks = std::min<int64_t>((pairs.count() + kWarps - 1) / kWarps,
                                           int64_t{multiprocessors} * kBlocksOfMultiprocessor);
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared.total(),
         score_windows<Mask>, pairs, scores);
}

}  // namespace

void fuzzy_windows(const FuzzyPairs& pairs, const FuzzyScores& scores, bool narrow,
                   int multiprocessors, cudaStream_t stream) {
  if (narrow) {
    launch_windows<uint32_t>(pairs, scores, multiprocessors, stream);
  } else {
    launch_windows<uint64_t>(pairs, scores, multiprocessors, stream);
  }
}

}  // namespace pytrace::cuda
