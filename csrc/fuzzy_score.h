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
inline double fuzzy_ratio_of(int64_t lcs, int64_t total) {
  if (total == 0) return 100.0;
  return (1.0 - static_cast<double>(total - 2 * lcs) / static_cast<double>(total)) * 100.0;
}

// The same in the order of operations that RapidFuzz has in token_set_ratio.
inline double fuzzy_percent_of(int64_t lcs, int64_t total) {
  if (total == 0) return 100.0;
  return 100.0 - 100.0 * static_cast<double>(total - 2 * lcs) / static_cast<double>(total);
}

inline double fuzzy_apply_cutoff(double score, double cutoff) {
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

  // The least LCS of a window of m characters; above m if none is enough.
  int whole(int64_t m) { return of(m).whole; }

  // The same for shortened windows of any length: one of LCS x is at least x long and scores most
  // if it is no longer.
  int shortened(int64_t m) { return of(m).shortened; }

 private:
  static constexpr uint8_t kUnknown = 255;
  static constexpr size_t kSizes = 128;  // a power of two above 64
  struct Needs {
    uint8_t whole;
    uint8_t shortened;
  };

  const Needs& of(int64_t m) {
    Needs& needs = needs_[static_cast<size_t>(m) % kSizes];
    if (needs.whole != kUnknown) return needs;
    int64_t lcs = 0;
    while (lcs <= m && fuzzy_ratio_of(lcs, 2 * m) < cutoff_) ++lcs;
    needs.whole = static_cast<uint8_t>(lcs);
    lcs = 0;
    while (lcs < m && fuzzy_ratio_of(lcs, m + lcs) < cutoff_) ++lcs;
    needs.shortened = static_cast<uint8_t>(lcs < m ? lcs : m + 1);
    return needs;
  }

  double cutoff_ = NAN;
  Needs needs_[kSizes];
};

}  // namespace pytrace
