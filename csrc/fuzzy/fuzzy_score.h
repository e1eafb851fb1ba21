// From an LCS to a score, and from a cutoff to the LCS that it takes.
//
// Every bound goes through the very arithmetic of the score that it bounds. That arithmetic never
// falls where the LCS rises, so a bound below the cutoff proves the score below it, to the last
// bit.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pytrace {

// 100 * (1 - distance / total), in RapidFuzz's order of operations.
constexpr double fuzzy_ratio_of(int64_t lcs, int64_t total) {
  if (total == 0) return 100.0;
  return (1.0 - static_cast<double>(total - 2 * lcs) / static_cast<double>(total)) * 100.0;
}

// The same in the order of operations that RapidFuzz has in token_set_ratio.
constexpr double fuzzy_percent_of(int64_t lcs, int64_t total) {
  if (total == 0) return 100.0;
  return 100.0 - 100.0 * static_cast<double>(total - 2 * lcs) / static_cast<double>(total);
}

constexpr double fuzzy_apply_cutoff(double score, double cutoff) {
  return score >= cutoff ? score : 0.0;
}

// What windows of a needle of at most 64 characters must share with it to score `cutoff`.
class WindowNeeds {
 public:
  explicit WindowNeeds(double cutoff) { set_cutoff(cutoff); }

  void set_cutoff(double cutoff) {
    if (cutoff == cutoff_) return;
    cutoff_ = cutoff;
    for (Needs& needs : needs_) needs.whole = kUnknown;
  }

  // The least LCS of a whole window, above m if none is enough; and the least number of characters
  // that the needle must share with the longest of the shortened windows of each quarter: those
  // longer than k and at most k + 1 quarters of the needle's width.
  struct Needs {
    uint8_t whole;
    uint8_t shortened[4];
    uint8_t least;  // the least number that is enough for any window, here or the other way round
  };

  // For a needle of m characters, at most `width` of them.
  const Needs& of(int64_t m, int64_t width) {
    Needs& needs = needs_[static_cast<size_t>(m) % kSizes];
    if (needs.whole != kUnknown) return needs;
    int64_t lcs = 0;
    while (lcs <= m && fuzzy_ratio_of(lcs, 2 * m) < cutoff_) ++lcs;
    needs.whole = static_cast<uint8_t>(lcs);
    lcs = 0;
    while (lcs < m && fuzzy_ratio_of(lcs, m + lcs) < cutoff_) ++lcs;
    needs.least = static_cast<uint8_t>(lcs < needs.whole ? lcs : needs.whole);
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t shortest = k * width / 4 + 1;
      const int64_t longest = (k + 1) * width / 4 < m ? (k + 1) * width / 4 : m - 1;
      needs.shortened[k] = kUnknown;
      for (int64_t shared = 0; shared <= longest && shortest <= longest; ++shared) {
        // A window of LCS x is at least x long and scores most if it is no longer.
        const int64_t length = shared < shortest ? shortest : shared;
        if (fuzzy_ratio_of(shared, m + length) < cutoff_) continue;
        needs.shortened[k] = static_cast<uint8_t>(shared);
        break;
      }
    }
    return needs;
  }

 private:
  static constexpr uint8_t kUnknown = 255;  // also: no number is enough
  static constexpr size_t kSizes = 128;     // a power of two above 64

  double cutoff_ = NAN;
  Needs needs_[kSizes];
};

}  // namespace pytrace
