// What the fuzzy kernels read and write, and the functions that queue them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "fuzzy/fuzzy.h"

namespace pytrace::cuda {

// A word of a text: its number (the same for the same word) and its place among the characters.
struct FuzzyWord {
  uint32_t number;
  int32_t begin;
  int32_t size;
};

// Some texts on the card: text i is characters[begins[i] .. begins[i + 1]), its words are
// words[word_begins[i] .. word_begins[i + 1]). For token_set_ratio the characters are those of the
// words, joined.
struct FuzzyTexts {
  const uint32_t* characters = nullptr;
  const int64_t* begins = nullptr;
  const uint8_t* missing = nullptr;
  const FuzzyWord* words = nullptr;
  const int64_t* word_begins = nullptr;
};

// Where scores go, as the processor's FuzzyOutput has it.
struct FuzzyScores {
  double cutoff = 0;
  double multiplier = 1;
  double missing = 0;
  FuzzyType type = FuzzyType::kFloat32;
  void* data = nullptr;
};

// The pairs of one launch: every text of `firsts` beside every one of `seconds`, stored at first *
// stride + second; or, if `paired`, firsts[k] beside seconds[k], stored at firsts[k].
struct FuzzyPairs {
  FuzzyTexts a;
  FuzzyTexts b;
  const int32_t* firsts = nullptr;
  const int32_t* seconds = nullptr;
  int64_t first_count = 0;
  int64_t second_count = 0;
  int64_t stride = 0;
  bool paired = false;

  int64_t count() const { return paired ? first_count : first_count * second_count; }
};

// Memory for blocks that need more than registers and shared memory.
struct FuzzyScratch {
  char* data = nullptr;
  size_t bytes = 0;
};

// The longest texts of a launch.
struct FuzzyLongest {
  int64_t a = 0;
  int64_t b = 0;
};

// Bytes of scratch that one block takes, for texts of these lengths, by the kernel for that scorer
// and needle. A launch runs as many blocks as its scratch has room for, and needs room for one.
size_t fuzzy_ratio_scratch(FuzzyLongest longest);
size_t fuzzy_comb_scratch(FuzzyLongest longest);
size_t fuzzy_token_set_scratch(FuzzyLongest longest);

// ratio of texts of any length.
void fuzzy_ratio(const FuzzyPairs& pairs, const FuzzyScores& scores, FuzzyLongest longest,
                 FuzzyScratch scratch, int multiprocessors, cudaStream_t stream);

// ratio where the shorter text of every pair has at most kFuzzyNarrow characters.
void fuzzy_ratio_short(const FuzzyPairs& pairs, const FuzzyScores& scores, int multiprocessors,
                       cudaStream_t stream);

// partial_ratio where the shorter text of every pair has at most kFuzzyNarrow or kFuzzyWide
// characters.
inline constexpr int64_t kFuzzyNarrow = 32;
inline constexpr int64_t kFuzzyWide = 64;
void fuzzy_windows(const FuzzyPairs& pairs, const FuzzyScores& scores, bool narrow,
                   int multiprocessors, cudaStream_t stream);

// partial_ratio of texts of any length.
void fuzzy_comb(const FuzzyPairs& pairs, const FuzzyScores& scores, FuzzyLongest longest,
                FuzzyScratch scratch, int multiprocessors, cudaStream_t stream);

void fuzzy_token_set(const FuzzyPairs& pairs, const FuzzyScores& scores, FuzzyLongest longest,
                     FuzzyScratch scratch, int multiprocessors, cudaStream_t stream);

}  // namespace pytrace::cuda
