// ratio of many pairs.
#include <algorithm>

#include "cuda/fuzzy_lcs.cuh"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocksOfMultiprocessor = 16;

// A warp a pair.
__global__ void __launch_bounds__(kThreads)
    score_long(FuzzyPairs pairs, FuzzyScores scores, int64_t carries_size, uint8_t* all_carries) {
  SharedArrays shared;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  uint32_t* rows = shared.take<uint32_t>(kWarps * kStripeRows) + warp * kStripeRows;
  uint8_t* carries = all_carries + carries_size * (int64_t{blockIdx.x} * kWarps + warp);
  const auto score_of = [&](FuzzyString a, FuzzyString b, const FuzzyPair&) {
    const int64_t total = a.size + b.size;
    const int64_t most = a.size < b.size ? a.size : b.size;
    const double bound = fuzzy_ratio_of(most, total);
    if (bound < scores.cutoff || most == 0) return bound;
    return fuzzy_ratio_of(lcs_of_warp(a, b, rows, carries, lane), total);
  };
  for_pairs(pairs, scores, int64_t{blockIdx.x} * kWarps + warp, int64_t{gridDim.x} * kWarps,
            lane == 0, score_of);
}

// A lane a pair, its needle in a column of shared memory. Neighbours have mostly one text, or
// texts of like lengths.
__global__ void __launch_bounds__(kThreads) score_short(FuzzyPairs pairs, FuzzyScores scores) {
  SharedArrays shared;
  uint32_t* rows = shared.take<uint32_t>(kThreads * kFuzzyNarrow) + threadIdx.x;
  const auto score_of = [&](FuzzyString a, FuzzyString b, const FuzzyPair&) {
    const auto [needle, text] = ordered(a, b);
    const auto m = static_cast<int>(needle.size);
    const int64_t total = text.size + m;
    const double bound = fuzzy_ratio_of(m, total);
    if (bound < scores.cutoff || m == 0) return bound;
    for (int r = 0; r < m; ++r) rows[r * kThreads] = needle.characters[r];
    uint32_t state = ~0u;
    for (int64_t j = 0; j < text.size; ++j) {
      const uint32_t character = text.characters[j];
      uint32_t mask = 0;
      for (int r = 0; r < m; ++r)
        mask |= static_cast<uint32_t>(rows[r * kThreads] == character) << r;
      state = (state + (state & mask)) | (state & ~mask);
    }
    return fuzzy_ratio_of(__popc(~state), total);
  };
  for_pairs(pairs, scores, int64_t{blockIdx.x} * kThreads + threadIdx.x,
            int64_t{gridDim.x} * kThreads, true, score_of);
}

}  // namespace

size_t fuzzy_ratio_scratch(FuzzyLongest longest) {
  return kWarps * carries_of(std::min(longest.a, longest.b), std::max(longest.a, longest.b));
}

void fuzzy_ratio(const FuzzyPairs& pairs, const FuzzyScores& scores, FuzzyLongest longest,
                 FuzzyScratch scratch, int multiprocessors, cudaStream_t stream) {
  const size_t each = fuzzy_ratio_scratch(longest);
  int64_t blocks = std::min<int64_t>((pairs.count() + kWarps - 1) / kWarps,
                                     int64_t{multiprocessors} * kBlocksOfMultiprocessor);
  if (each > 0) blocks = std::min(blocks, static_cast<int64_t>(scratch.bytes / each));
  SharedBytes shared;
  shared.take<uint32_t>(kWarps * kStripeRows);
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared.total(), score_long,
         pairs, scores, static_cast<int64_t>(each / kWarps),
         reinterpret_cast<uint8_t*>(scratch.data));
}

void fuzzy_ratio_short(const FuzzyPairs& pairs, const FuzzyScores& scores, int multiprocessors,
                       cudaStream_t stream) {
  const int64_t blocks = std::min<int64_t>((pairs.count() + kThreads - 1) / kThreads,
                                           int64_t{multiprocessors} * kBlocksOfMultiprocessor);
  SharedBytes shared;
  shared.take<uint32_t>(kThreads * kFuzzyNarrow);
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared.total(), score_short,
         pairs, scores);
}

}  // namespace pytrace::cuda
