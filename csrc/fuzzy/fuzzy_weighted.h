// WRatio: which scores it weighs, and how.
//
// Texts of much the same length (the longer less than 1.5 times the shorter) score the larger of
// their ratio and 0.95 of their token_ratio. Of others partial_ratio counts in place of ratio where
// it is larger, by 0.9 (by 0.6 where one is more than 8 times the other), and partial_token_ratio
// by 0.95 of that. Every step takes a score only if it can still win, in RapidFuzz's order of
// operations, so that the last bit is the same.
#pragma once

#include <algorithm>

#include "fuzzy/fuzzy.h"

namespace pytrace {

inline constexpr double kFuzzyTokenScale = 0.95;
inline constexpr double kFuzzyNear = 1.0;
inline constexpr double kFuzzyFarScale = 0.9;
inline constexpr double kFuzzyFarthestScale = 0.6;

// What a partial score counts; kFuzzyNear where none is asked for; 0 where the score is 0, because
// a text is empty or missing.
inline double fuzzy_partial_scale(const Text& a, const Text& b) {
  if (a.missing || b.missing || a.size == 0 || b.size == 0) return 0.0;
  const auto longer = static_cast<double>(std::max(a.size, b.size));
  const double times = longer / static_cast<double>(std::min(a.size, b.size));
  return times < 1.5 ? kFuzzyNear : times <= 8.0 ? kFuzzyFarScale : kFuzzyFarthestScale;
}

inline double fuzzy_weighted_near(double best, double token) {
  return token < best / kFuzzyTokenScale ? best : std::max(best, token * kFuzzyTokenScale);
}

// `limit` becomes what the next step must beat.
inline double fuzzy_weighted_partial(double best, double partial, double scale, double* limit) {
  *limit = best / scale;
  return partial < *limit ? best : std::max(best, partial * scale);
}

inline double fuzzy_weighted_token(double best, double partial_token, double scale, double limit) {
  const bool wins = partial_token >= std::max(limit, best) / kFuzzyTokenScale;
  // Texts that share a word are not asked whether they win.
  if (!wins && partial_token < 100.0) return best;
  return std::max(best, partial_token * kFuzzyTokenScale * scale);
}

// A cutoff of what is weighted later: a score that reaches the caller's cutoff by its last bit
// stays.
inline double fuzzy_weighted_cutoff(double cutoff, double scale) {
  return cutoff * (1.0 - 1e-12) / scale;
}

}  // namespace pytrace
