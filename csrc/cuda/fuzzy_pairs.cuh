// A kernel's pairs one by one, and their scores on the way out.
#pragma once

#include "cuda/device.cuh"
#include "cuda/fuzzy_kernels.h"
#include "fuzzy/fuzzy_score.h"

namespace pytrace::cuda {

// No code point, and not each other.
inline constexpr uint32_t kNoRow = 0xffffffffu;
inline constexpr uint32_t kNoColumn = 0xfffffffeu;

struct FuzzyString {
  const uint32_t* characters;
  int64_t size;
};

struct FuzzyPair {
  int64_t a;
  int64_t b;
  int64_t place;
};

__device__ __forceinline__ FuzzyPair pair_of(const FuzzyPairs& pairs, int64_t index) {
  if (pairs.paired) {
    const int64_t k = pairs.firsts[index];
    return {k, pairs.seconds[index], k};
  }
  const int64_t a = pairs.firsts[index / pairs.second_count];
  const int64_t b = pairs.seconds[index % pairs.second_count];
  return {a, b, a * pairs.stride + b};
}

__device__ __forceinline__ int64_t count_of(const FuzzyPairs& pairs) {
  return pairs.paired ? pairs.first_count : pairs.first_count * pairs.second_count;
}

__device__ __forceinline__ FuzzyString text_of(const FuzzyTexts& texts, int64_t index) {
  const int64_t begin = texts.begins[index];
  return {texts.characters + begin, texts.begins[index + 1] - begin};
}

// Halves away from zero. What int64 does not hold becomes its least value, as x86-64 converts it.
__device__ __forceinline__ int64_t round_to_whole(double value) {
  if (!(value > -9223372036854775808.0 && value < 9223372036854775808.0)) return INT64_MIN;
  const auto whole = static_cast<int64_t>(value);
  const double rest = value - static_cast<double>(whole);
  return whole + (rest >= 0.5 ? 1 : rest <= -0.5 ? -1 : 0);
}

__device__ inline void store_value(const FuzzyScores& scores, int64_t place, double value) {
  switch (scores.type) {
    case FuzzyType::kFloat32:
      static_cast<float*>(scores.data)[place] = static_cast<float>(value);
      break;
    case FuzzyType::kFloat64:
      static_cast<double*>(scores.data)[place] = value;
      break;
    case FuzzyType::kInt8:
    case FuzzyType::kUint8:
      static_cast<uint8_t*>(scores.data)[place] = static_cast<uint8_t>(round_to_whole(value));
      break;
    case FuzzyType::kInt16:
    case FuzzyType::kUint16:
      static_cast<uint16_t*>(scores.data)[place] = static_cast<uint16_t>(round_to_whole(value));
      break;
    case FuzzyType::kInt32:
    case FuzzyType::kUint32:
      static_cast<uint32_t*>(scores.data)[place] = static_cast<uint32_t>(round_to_whole(value));
      break;
    case FuzzyType::kInt64:
    case FuzzyType::kUint64:
      static_cast<int64_t*>(scores.data)[place] = round_to_whole(value);
      break;
  }
}

__device__ inline void store_score(const FuzzyScores& scores, int64_t place, double score) {
  store_value(scores, place, fuzzy_apply_cutoff(score, scores.cutoff) * scores.multiplier);
}

// Whether either text is missing.
__device__ __forceinline__ bool is_missing(const FuzzyPairs& pairs, const FuzzyPair& pair) {
  return (pairs.a.missing[pair.a] | pairs.b.missing[pair.b]) != 0;
}

// Stores `score_of(a, b, pair)` for the pairs first, first + step, ...; of the threads that share a
// pair, and all call this, `writes` holds for one.
template <typename ScoreOf>
__device__ __forceinline__ void for_pairs(const FuzzyPairs& pairs, const FuzzyScores& scores,
                                          int64_t first, int64_t step, bool writes,
                                          const ScoreOf& score_of) {
  const int64_t count = count_of(pairs);
  for (int64_t index = first; index < count; index += step) {
    const FuzzyPair pair = pair_of(pairs, index);
    if (is_missing(pairs, pair)) {
      if (writes) store_value(scores, pair.place, scores.missing);
      continue;
    }
    const double score = score_of(text_of(pairs.a, pair.a), text_of(pairs.b, pair.b), pair);
    if (writes) store_score(scores, pair.place, score);
  }
}

// The shorter text in front; of equal lengths, b.
struct NeedleAndText {
  FuzzyString needle;
  FuzzyString text;
};

__device__ __forceinline__ NeedleAndText ordered(FuzzyString a, FuzzyString b) {
  return a.size < b.size ? NeedleAndText{a, b} : NeedleAndText{b, a};
}

// The best window so far: its LCS, and the needle's characters and its own together.
struct FuzzyBest {
  int64_t lcs;
  int64_t total;
};

// Windows of one ratio have one score, to the last bit: a quotient is rounded once.
__device__ __forceinline__ void keep_better(FuzzyBest* best, int64_t lcs, int64_t total) {
  if (lcs * best->total > best->lcs * total) *best = {lcs, total};
}

// The best that `offer_windows(needle, text, &best)` finds; of equal lengths both ways.
template <typename OfferWindows>
__device__ __forceinline__ FuzzyBest best_both_ways(FuzzyString a, FuzzyString b,
                                                    const OfferWindows& offer_windows) {
  const auto [needle, text] = ordered(a, b);
  if (needle.size == 0) return {0, text.size};
  FuzzyBest best{0, 1};
  for (int way = 0; way < (needle.size == text.size ? 2 : 1); ++way) {
    offer_windows(way == 0 ? needle : text, way == 0 ? text : needle, &best);
  }
  return best;
}

__device__ __forceinline__ FuzzyBest best_of_warp(FuzzyBest best) {
  PYTRACE_UNROLL
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    const auto lcs = __shfl_xor_sync(kWholeWarp, static_cast<long long>(best.lcs), apart);
    const auto total = __shfl_xor_sync(kWholeWarp, static_cast<long long>(best.total), apart);
    keep_better(&best, lcs, total);
  }
  return best;
}

}  // namespace pytrace::cuda
