// token_set_ratio of many pairs, a warp a pair.
#include <algorithm>

#include "cuda/fuzzy_lcs.cuh"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocksOfMultiprocessor = 16;

struct Words {
  const FuzzyWord* words;
  int64_t count;
};

__device__ __forceinline__ Words words_of(const FuzzyTexts& texts, int64_t index) {
  const int64_t begin = texts.word_begins[index];
  return {texts.words + begin, texts.word_begins[index + 1] - begin};
}

// Whether a word stands in a set, in every lane; the same word in every lane.
__device__ bool holds(Words set, uint32_t number, int lane) {
  for (int64_t base = 0; base < set.count; base += kWarp) {
    const int64_t at = base + lane;
    if (__any_sync(kWholeWarp, at < set.count && set.words[at].number == number)) return true;
  }
  return false;
}

// The words of a set that the other lacks, with one blank between neighbours.
__device__ FuzzyString rest_of(Words set, Words other, const uint32_t* characters, uint32_t* out,
                               int lane) {
  int64_t size = 0;
  for (int64_t k = 0; k < set.count; ++k) {
    const FuzzyWord word = set.words[k];
    if (holds(other, word.number, lane)) continue;
    if (size > 0) {
      if (lane == 0) out[size] = ' ';
      ++size;
    }
    for (int i = lane; i < word.size; i += kWarp) out[size + i] = characters[word.begin + i];
    size += word.size;
  }
  return {out, size};
}

// The score of two texts of at least one word each. The same steps as TokenSetRatio::of_common.
__device__ double score_of_sets(FuzzyString a, Words words_a, FuzzyString b, Words words_b,
                                double cutoff, uint32_t* rows, uint8_t* carries, uint32_t* rest_a,
                                uint32_t* rest_b, int lane) {
  long long count = 0;
  long long common = 0;  // length of the common words, joined
  for (int64_t k = lane; k < words_b.count; k += kWarp) {
    const FuzzyWord word = words_b.words[k];
    for (int64_t i = 0; i < words_a.count; ++i) {
      if (words_a.words[i].number != word.number) continue;
      ++count;
      common += word.size;
      break;
    }
  }
  PYTRACE_UNROLL
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    count += __shfl_xor_sync(kWholeWarp, count, apart);
    common += __shfl_xor_sync(kWholeWarp, common, apart);
  }
  if (count > 0) common += count - 1;
  if (count > 0 && (count == words_a.count || count == words_b.count)) return 100.0;
  const int64_t blank = count > 0 ? 1 : 0;
  const int64_t size_a = a.size - common - blank;
  const int64_t size_b = b.size - common - blank;
  const int64_t shared = common + blank;
  const int64_t total = 2 * shared + size_a + size_b;
  double best = 0.0;
  if (count > 0) {
    const double with_a =
        fuzzy_apply_cutoff(fuzzy_percent_of(common, common + shared + size_a), cutoff);
    const double with_b =
        fuzzy_apply_cutoff(fuzzy_percent_of(common, common + shared + size_b), cutoff);
    best = with_a < with_b ? with_b : with_a;
  }
  const int64_t most = shared + (size_a < size_b ? size_a : size_b);
  if (fuzzy_apply_cutoff(fuzzy_percent_of(most, total), cutoff) <= best) return best;
  if (count > 0) {
    a = rest_of(words_a, words_b, a.characters, rest_a, lane);
    b = rest_of(words_b, words_a, b.characters, rest_b, lane);
    __syncwarp();
  }
  const int64_t lcs = lcs_of_warp(a, b, rows, carries, lane);
  __syncwarp();
  const double all = fuzzy_apply_cutoff(fuzzy_percent_of(shared + lcs, total), cutoff);
  return best < all ? all : best;
}

__global__ void __launch_bounds__(kThreads)
    score_sets(FuzzyPairs pairs, FuzzyScores scores, FuzzyLongest longest, int64_t scratch_size,
               char* all_scratch) {
  SharedArrays shared;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  uint32_t* rows = shared.take<uint32_t>(kWarps * kStripeRows) + warp * kStripeRows;
  char* scratch = all_scratch + scratch_size * (int64_t{blockIdx.x} * kWarps + warp);
  auto* rest_a = reinterpret_cast<uint32_t*>(scratch);
  uint32_t* rest_b = rest_a + longest.a;
  auto* carries = reinterpret_cast<uint8_t*>(rest_b + longest.b);
  const auto score_of = [&](FuzzyString a, FuzzyString b, const FuzzyPair& pair) {
    const Words words_a = words_of(pairs.a, pair.a);
    const Words words_b = words_of(pairs.b, pair.b);
    if (words_a.count == 0 || words_b.count == 0) return 0.0;
    return score_of_sets(a, words_a, b, words_b, scores.cutoff, rows, carries, rest_a, rest_b,
                         lane);
  };
  for_pairs(pairs, scores, int64_t{blockIdx.x} * kWarps + warp, int64_t{gridDim.x} * kWarps,
            lane == 0, score_of);
}

size_t scratch_of_warp(FuzzyLongest longest) {
  const size_t bytes = 4 * static_cast<size_t>(longest.a + longest.b) +
                       carries_of(std::min(longest.a, longest.b), std::max(longest.a, longest.b));
  return (bytes + 15) / 16 * 16;
}

}  // namespace

size_t fuzzy_token_set_scratch(FuzzyLongest longest) { return kWarps * scratch_of_warp(longest); }

void fuzzy_token_set(const FuzzyPairs& pairs, const FuzzyScores& scores, FuzzyLongest longest,
                     FuzzyScratch scratch, int multiprocessors, cudaStream_t stream) {
  const size_t each = fuzzy_token_set_scratch(longest);
  int64_t blocks = std::min<int64_t>((pairs.count() + kWarps - 1) / kWarps,
                                     int64_t{multiprocessors} * kBlocksOfMultiprocessor);
  if (each > 0) blocks = std::min(blocks, static_cast<int64_t>(scratch.bytes / each));
  SharedBytes shared;
  shared.take<uint32_t>(kWarps * kStripeRows);
  launch(stream, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared.total(), score_sets,
         pairs, scores, longest, static_cast<int64_t>(each / kWarps), scratch.data);
}

}  // namespace pytrace::cuda
