// Bags of characters: what tells without any LCS that a window cannot reach a cutoff.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzzy_text.h"

namespace pytrace {

inline void fuzzy_fill_bag(const Text& text, FuzzyBag* bag) {
  std::fill(std::begin(bag->counts), std::end(bag->counts), uint8_t{0});
  with_characters(text, [&](const auto* characters) {
    for (int64_t i = 0; i < text.size; ++i) ++bag->counts[characters[i] & 63];
  });
}

// The bags of a text beside needles of at most `width` (8, 16, 32 or 64) characters. Bag j holds
// all windows that start in [j * width, (j + 1) * width); behind these come one bag of all prefixes
// and one of all suffixes that are shorter than `width`. No bag has more than 128 characters.
inline int64_t fuzzy_block_count(int64_t size, int64_t width) {
  return (size + width - 1) / width + 2;
}

inline void fuzzy_fill_blocks(const Text& text, int64_t width, FuzzyBag* bags) {
  const int64_t blocks = fuzzy_block_count(text.size, width) - 2;
  for (int64_t j = 0; j < blocks; ++j) {
    fuzzy_fill_bag(fuzzy_part(text, j * width, std::min((j + 1) * width, text.size)), bags + j);
  }
  if (blocks > 0) {
    bags[blocks] = bags[0];
  } else {
    bags[blocks] = {};
  }
  fuzzy_fill_bag(fuzzy_part(text, std::max<int64_t>(text.size - width, 0), text.size),
                 bags + blocks + 1);
  for (int64_t j = 0; j + 1 < blocks; ++j) {
    for (int c = 0; c < 64; ++c) {
      bags[j].counts[c] = static_cast<uint8_t>(bags[j].counts[c] + bags[j + 1].counts[c]);
    }
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
