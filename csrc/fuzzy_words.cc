// token_set_ratio: words, their sets, and the score of two sets.
#include "fuzzy_words.h"

#include <algorithm>

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

}  // namespace

void WordSet::assign(const Text& text) {
  words_.clear();
  with_characters(text, [&](const auto* characters) {
    characters_.assign(characters, characters + text.size);
    int64_t at = 0;
    while (at < text.size) {
      while (at < text.size && is_space(characters[at])) ++at;
      const int64_t begin = at;
      while (at < text.size && !is_space(characters[at])) ++at;
      if (at == begin) continue;
      // Characters are below 2^31, and one is added so that a word of one is below its extensions.
      uint64_t key = (uint64_t{characters[begin]} + 1) << 32;
      if (at - begin > 1) key |= uint64_t{characters[begin + 1]} + 1;
      words_.push_back({begin, at, key});
    }
  });
  const auto below = [&](const Word& x, const Word& y) { return compare(x, *this, y) < 0; };
  const auto equal = [&](const Word& x, const Word& y) { return compare(x, *this, y) == 0; };
  std::sort(words_.begin(), words_.end(), below);
  words_.erase(std::unique(words_.begin(), words_.end(), equal), words_.end());
  joined_size_ = words_.empty() ? 0 : size() - 1;
  for (const Word& word : words_) joined_size_ += word.size();
}

int WordSet::compare(const Word& x, const WordSet& other, const Word& y) const {
  if (x.key != y.key) return x.key < y.key ? -1 : 1;
  const int64_t shorter = std::min(x.size(), y.size());
  const uint32_t* p = characters(x);
  const uint32_t* q = other.characters(y);
  for (int64_t i = 2; i < shorter; ++i) {
    if (p[i] != q[i]) return p[i] < q[i] ? -1 : 1;
  }
  return x.size() == y.size() ? 0 : x.size() < y.size() ? -1 : 1;
}

void WordSet::join(const uint8_t* common, std::vector<uint32_t>* out) const {
  out->clear();
  for (size_t k = 0; k < words_.size(); ++k) {
    if (common != nullptr && common[k] != 0) continue;
    if (!out->empty()) out->push_back(' ');
    const uint32_t* at = characters(words_[k]);
    out->insert(out->end(), at, at + words_[k].size());
  }
}

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
