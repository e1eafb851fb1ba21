// Bags of characters: what tells without any LCS that a window cannot reach a cutoff.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzzy/fuzzy_text.h"

namespace pytrace {

inline void fuzzy_fill_bag(const Text& text, FuzzyBag* bag) {
  std::fill(std::begin(bag->counts), std::end(bag->counts), uint8_t{0});
  with_characters(text, [&](const auto* characters) {
    for (int64_t i = 0; i < text.size; ++i) ++bag->counts[characters[i] & 63];
  });
}

inline void fuzzy_add_bag(const FuzzyBag& bag, FuzzyBag* sum) {
  for (int c = 0; c < 64; ++c) {
    sum->counts[c] = static_cast<uint8_t>(sum->counts[c] + bag.counts[c]);
  }
}

// Below this cutoff nearly every window passes, and asking costs more than it saves.
inline constexpr double kFuzzyBagCutoff = 65.0;

// The bags of a text beside needles of at most `width` (8, 16, 32 or 64) characters. The first one
// holds the whole text and counts to 255, which is more than such a needle has. Four hold the
// prefixes of 1 to 4 quarters of the width, four the suffixes; and bag 9 + j holds all windows that
// start in [j * width / 2, (j + 1) * width / 2).
inline constexpr int64_t kFuzzyEndBags = 9;

inline int64_t fuzzy_block_count(int64_t size, int64_t width) {
  return (size + width / 2 - 1) / (width / 2) + kFuzzyEndBags;
}

inline void fuzzy_fill_blocks(const Text& text, int64_t width, FuzzyBag* bags) {
  const int64_t n = text.size;
  const int64_t half = width / 2;
  const int64_t blocks = fuzzy_block_count(n, width) - kFuzzyEndBags;
  FuzzyBag* windows = bags + kFuzzyEndBags;
  *bags = {};
  for (int64_t j = 0; j < blocks; ++j) {
    fuzzy_fill_bag(fuzzy_part(text, j * half, std::min((j + 1) * half, n)), windows + j);
    for (int c = 0; c < 64; ++c) {
      const int sum = bags->counts[c] + windows[j].counts[c];
      bags->counts[c] = static_cast<uint8_t>(std::min(sum, 255));
    }
  }
  for (int64_t j = 0; j < blocks; ++j) {
    if (j + 1 < blocks) fuzzy_add_bag(windows[j + 1], windows + j);
    if (j + 2 < blocks) fuzzy_add_bag(windows[j + 2], windows + j);
  }
  FuzzyBag* prefixes = bags + 1;
  FuzzyBag* suffixes = bags + 5;
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t from = std::min(k * width / 4, n);
    const int64_t to = std::min((k + 1) * width / 4, n);
    fuzzy_fill_bag(fuzzy_part(text, from, to), prefixes + k);
    fuzzy_fill_bag(fuzzy_part(text, n - to, n - from), suffixes + k);
    if (k == 0) continue;
    fuzzy_add_bag(prefixes[k - 1], prefixes + k);
    fuzzy_add_bag(suffixes[k - 1], suffixes + k);
  }
}

// Whether partial_ratio of a needle of any length may reach the cutoff, as far as the whole texts'
// characters tell.
inline bool fuzzy_may_reach(const Text& needle, const Text& text, double cutoff) {
  int64_t left[64] = {};
  with_characters(needle, [&](const auto* characters) {
    for (int64_t i = 0; i < needle.size; ++i) ++left[characters[i] & 63];
  });
  int64_t common = needle.size;
  with_characters(text, [&](const auto* characters) {
    for (int64_t i = 0; i < text.size; ++i) --left[characters[i] & 63];
  });
  for (const int64_t missing : left) common -= std::max<int64_t>(missing, 0);
  const int64_t m = needle.size;
  const int64_t shortened = std::min(common, m - 1);
  return fuzzy_ratio_of(common, 2 * m) >= cutoff ||
         fuzzy_ratio_of(shortened, m + shortened) >= cutoff;
}

// The narrowest width for a needle of at most 64 characters, as with_mask chooses masks.
inline int64_t fuzzy_width(int64_t size) {
  return size <= 8 ? 8 : size <= 16 ? 16 : size <= 32 ? 32 : 64;
}

}  // namespace pytrace
