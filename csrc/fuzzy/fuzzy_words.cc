// token_set_ratio of two sets of words.
#include "fuzzy/fuzzy_words.h"

#include <algorithm>

namespace pytrace {

double TokenSetRatio::of(const WordSet& a, const WordSet& b, double cutoff, LcsQuery* all_of_a) {
  common_a_.assign(static_cast<size_t>(a.size()), 0);
  common_b_.assign(static_cast<size_t>(b.size()), 0);
  for (int64_t x = 0, y = 0; x < a.size() && y < b.size();) {
    const int order = a.compare(a.word(x), b, b.word(y));
    if (order == 0) common_a_[static_cast<size_t>(x)] = common_b_[static_cast<size_t>(y)] = 1;
    if (order <= 0) ++x;
    if (order >= 0) ++y;
  }
  return of_common(a, common_a_.data(), b, common_b_.data(), cutoff, all_of_a);
}

double TokenSetRatio::of_common(const WordSet& a, const uint8_t* common_a, const WordSet& b,
                                const uint8_t* common_b, double cutoff, LcsQuery* all_of_a) {
  if (a.size() == 0 || b.size() == 0 || cutoff > 100.0) return 0.0;
  int64_t count = 0;
  int64_t common = 0;  // length of the common words, joined
  for (int64_t k = 0; k < b.size(); ++k) {
    if (common_b[k] == 0) continue;
    common += b.word(k).size() + (count > 0 ? 1 : 0);
    ++count;
  }
  if (count > 0 && (count == a.size() || count == b.size())) {
    return 100.0;
  }
  const int64_t blank = count > 0 ? 1 : 0;
  const int64_t size_a = a.joined_size() - common - blank;
  const int64_t size_b = b.joined_size() - common - blank;
  const int64_t shared = common + blank;
  const int64_t total = 2 * shared + size_a + size_b;
  double best = 0.0;
  // The common words with either rest need no LCS; they first, because they may show that the dear
  // one cannot win.
  if (count > 0) {
    best = std::max(fuzzy_apply_cutoff(fuzzy_percent_of(common, common + shared + size_a), cutoff),
                    fuzzy_apply_cutoff(fuzzy_percent_of(common, common + shared + size_b), cutoff));
  }
  const int64_t most = shared + std::min(size_a, size_b);
  if (fuzzy_apply_cutoff(fuzzy_percent_of(most, total), cutoff) <= best) return best;
  b.join(common_b, &rest_b_);
  const Text rest_b{rest_b_.data(), size_b, 4, false};
  int64_t lcs = 0;
  if (count == 0 && all_of_a != nullptr) {
    lcs = all_of_a->lcs(rest_b);
  } else {
    a.join(common_a, &rest_a_);
    lcs = fuzzy_lcs({rest_a_.data(), size_a, 4, false}, rest_b);
  }
  return std::max(best, fuzzy_apply_cutoff(fuzzy_percent_of(shared + lcs, total), cutoff));
}

}  // namespace pytrace
