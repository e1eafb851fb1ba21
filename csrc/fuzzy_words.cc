// token_set_ratio: words, their sets, and the score of two sets.
#include <algorithm>
#include <cmath>

#include "fuzzy_text.h"

namespace pytrace {
namespace {

// Unicode's white space as Python's str.split() has it. RapidFuzz leaves U+0085 and U+00A0 inside a
// word if the text has no character above U+00FF (and in bytes), so the same is done here.
template <typename Character>
bool is_space(Character value) {
  const uint32_t c = value;
  if (c <= 0x20) return (c >= 0x09 && c <= 0x0D) || c >= 0x1C;
  if constexpr (sizeof(Character) == 1) return false;
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Below, equal or above zero, as the words are ordered.
int compare(const Words& a, const Words::Word& x, const Words& b, const Words::Word& y) {
  const int64_t shorter = std::min(x.end - x.begin, y.end - y.begin);
  const uint32_t* p = a.characters.data() + x.begin;
  const uint32_t* q = b.characters.data() + y.begin;
  for (int64_t i = 0; i < shorter; ++i) {
    if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
  }
  const int64_t difference = (x.end - x.begin) - (y.end - y.begin);
  return difference == 0 ? 0 : difference < 0 ? -1 : 1;
}

// Words with one blank between them.
void append(const Words& from, const Words::Word& word, std::vector<uint32_t>& joined) {
  if (!joined.empty()) joined.push_back(' ');
  joined.insert(joined.end(), from.characters.begin() + word.begin,
                from.characters.begin() + word.end);
}

double ratio_of_distance(int64_t distance, int64_t total, double cutoff) {
  const double score =
      total > 0 ? 100.0 - 100.0 * static_cast<double>(distance) / static_cast<double>(total)
                : 100.0;
  return fuzzy_apply_cutoff(score, cutoff);
}

}  // namespace

Words fuzzy_split(const Text& text) {
  Words result;
  with_characters(text, [&](const auto* characters) {
    result.characters.assign(characters, characters + text.size);
    int64_t at = 0;
    while (at < text.size) {
      while (at < text.size && is_space(characters[at])) ++at;
      const int64_t begin = at;
      while (at < text.size && !is_space(characters[at])) ++at;
      if (at > begin) result.words.push_back({begin, at});
    }
  });
  const auto below = [&](const Words::Word& x, const Words::Word& y) {
    return compare(result, x, result, y) < 0;
  };
  const auto equal = [&](const Words::Word& x, const Words::Word& y) {
    return compare(result, x, result, y) == 0;
  };
  std::sort(result.words.begin(), result.words.end(), below);
  result.words.erase(std::unique(result.words.begin(), result.words.end(), equal),
                     result.words.end());
  return result;
}

double fuzzy_token_set_ratio(const Words& a, const Words& b, double cutoff) {
  if (a.words.empty() || b.words.empty() || cutoff > 100.0) return 0.0;
  std::vector<uint32_t> only_a;
  std::vector<uint32_t> only_b;
  int64_t common = 0;  // length of the common words, joined
  bool any_common = false;
  auto x = a.words.begin();
  auto y = b.words.begin();
  while (x != a.words.end() || y != b.words.end()) {
    const int order = x == a.words.end() ? 1 : y == b.words.end() ? -1 : compare(a, *x, b, *y);
    if (order < 0) {
      append(a, *x++, only_a);
    } else if (order > 0) {
      append(b, *y++, only_b);
    } else {
      common += (x->end - x->begin) + (any_common ? 1 : 0);
      any_common = true;
      ++x;
      ++y;
    }
  }
  if (any_common && (only_a.empty() || only_b.empty())) return 100.0;

  const int64_t size_a = static_cast<int64_t>(only_a.size());
  const int64_t size_b = static_cast<int64_t>(only_b.size());
  const int64_t blank = any_common ? 1 : 0;
  const int64_t total = 2 * (common + blank) + size_a + size_b;
  double best = 0.0;
  // The common words with either rest need no LCS; they first, because they may show that the dear
  // one cannot win.
  if (any_common) {
    best = std::max(ratio_of_distance(blank + size_a, 2 * common + blank + size_a, cutoff),
                    ratio_of_distance(blank + size_b, 2 * common + blank + size_b, cutoff));
  }
  const int64_t least = size_a > size_b ? size_a - size_b : size_b - size_a;
  if (ratio_of_distance(least, total, cutoff) <= best) return best;
  const int64_t lcs =
      fuzzy_lcs({only_a.data(), size_a, 4, false}, {only_b.data(), size_b, 4, false});
  return std::max(best, ratio_of_distance(size_a + size_b - 2 * lcs, total, cutoff));
}

}  // namespace pytrace
