// The score of one pair by any scorer.
#include <algorithm>

#include "fuzzy/fuzzy_text.h"
#include "fuzzy/fuzzy_weighted.h"
#include "fuzzy/fuzzy_words.h"

namespace pytrace {
namespace {

double ratio(const Text& a, const Text& b, double cutoff) {
  return fuzzy_apply_cutoff(fuzzy_ratio_of(fuzzy_lcs(a, b), a.size + b.size), cutoff);
}

double quick_ratio(const Text& a, const Text& b, double cutoff) {
  return a.size == 0 || b.size == 0 ? 0.0 : ratio(a, b, cutoff);
}

double partial_ratio(const Text& a, const Text& b, double cutoff) {
  const Text& needle = a.size <= b.size ? a : b;
  const Text& text = a.size <= b.size ? b : a;
  const int64_t m = needle.size;
  if (m == 0) return fuzzy_apply_cutoff(text.size == 0 ? 100.0 : 0.0, cutoff);
  FuzzyWindow best = fuzzy_best_window(needle, text);
  if (text.size == m && best.lcs < m) {
    const FuzzyWindow other = fuzzy_best_window(text, needle);
    if (fuzzy_better(other, best, m)) best = other;
  }
  return fuzzy_apply_cutoff(fuzzy_ratio_of(best.lcs, m + best.length), cutoff);
}

}  // namespace

double fuzzy_score(FuzzyScorer scorer, const Text& a, const Text& b, double cutoff) {
  if (a.missing || b.missing) return 0.0;
  if (scorer == FuzzyScorer::kRatio) return ratio(a, b, cutoff);
  if (scorer == FuzzyScorer::kPartialRatio) return partial_ratio(a, b, cutoff);
  if (scorer == FuzzyScorer::kQuickRatio) return quick_ratio(a, b, cutoff);
  return FuzzyPair().of(scorer, a, b, cutoff);
}

double FuzzyPair::of(FuzzyScorer scorer, const Text& a, const Text& b, double cutoff) {
  if (a.missing || b.missing || cutoff > 100.0) return 0.0;
  switch (scorer) {
    case FuzzyScorer::kRatio:
      return ratio(a, b, cutoff);
    case FuzzyScorer::kPartialRatio:
      return partial_ratio(a, b, cutoff);
    case FuzzyScorer::kQuickRatio:
      return quick_ratio(a, b, cutoff);
    case FuzzyScorer::kWeightedRatio:
      return fuzzy_apply_cutoff(weighted(a, b, cutoff), cutoff);
    default:
      break;
  }
  a_.assign(a);
  b_.assign(b);
  switch (scorer) {
    case FuzzyScorer::kTokenSortRatio:
      return ratio(sorted(a_, &joined_a_), sorted(b_, &joined_b_), cutoff);
    case FuzzyScorer::kPartialTokenSortRatio:
      return partial_ratio(sorted(a_, &joined_a_), sorted(b_, &joined_b_), cutoff);
    case FuzzyScorer::kTokenRatio:
      return token(cutoff);
    case FuzzyScorer::kPartialTokenRatio:
      return partial_token(cutoff);
    case FuzzyScorer::kPartialTokenSetRatio:
      if (a_.size() == 0 || b_.size() == 0) return 0.0;
      if (share_a_word()) return 100.0;
      return partial_ratio(distinct(a_, &joined_a_), distinct(b_, &joined_b_), cutoff);
    default:
      return token_set_.of(a_, b_, cutoff);
  }
}

double FuzzyPair::token(double cutoff) {
  const double in_order = ratio(sorted(a_, &joined_a_), sorted(b_, &joined_b_), cutoff);
  if (in_order == 100.0) return in_order;
  return std::max(in_order, token_set_.of(a_, b_, std::max(cutoff, in_order)));
}

double FuzzyPair::partial_token(double cutoff) {
  if (share_a_word()) return 100.0;
  const double in_order = partial_ratio(sorted(a_, &joined_a_), sorted(b_, &joined_b_), cutoff);
  if (!a_.repeats() && !b_.repeats()) return in_order;
  const double best = std::max(cutoff, in_order);
  return std::max(in_order,
                  partial_ratio(distinct(a_, &joined_a_), distinct(b_, &joined_b_), best));
}

double FuzzyPair::weighted(const Text& a, const Text& b, double cutoff) {
  const double scale = fuzzy_partial_scale(a, b);
  if (scale == 0.0) return 0.0;
  double best = ratio(a, b, cutoff);
  // What cannot win any more is not computed.
  const auto least = [&](double weight) {
    return fuzzy_weighted_cutoff(std::max(best, cutoff), weight);
  };
  if (scale == kFuzzyNear) {
    if (least(kFuzzyTokenScale) > 100.0) return best;
    a_.assign(a);
    b_.assign(b);
    return fuzzy_weighted_near(best, token(least(kFuzzyTokenScale)));
  }
  if (least(scale) > 100.0) return best;
  double limit = 0.0;
  best = fuzzy_weighted_partial(best, partial_ratio(a, b, least(scale)), scale, &limit);
  if (least(kFuzzyTokenScale * scale) > 100.0) return best;
  a_.assign(a);
  b_.assign(b);
  return fuzzy_weighted_token(best, partial_token(least(kFuzzyTokenScale * scale)), scale, limit);
}

bool FuzzyPair::share_a_word() const {
  for (int64_t x = 0, y = 0; x < a_.size() && y < b_.size();) {
    const int order = a_.compare(a_.word(x), b_, b_.word(y));
    if (order == 0) return true;
    if (order < 0) ++x;
    if (order > 0) ++y;
  }
  return false;
}

Text FuzzyPair::distinct(const WordSet& words, std::vector<uint32_t>* out) const {
  words.join(nullptr, out);
  return {out->data(), static_cast<int64_t>(out->size()), 4, false};
}

Text FuzzyPair::sorted(const WordSet& words, std::vector<uint32_t>* out) const {
  words.join_sorted(out);
  return {out->data(), static_cast<int64_t>(out->size()), 4, false};
}

}  // namespace pytrace
