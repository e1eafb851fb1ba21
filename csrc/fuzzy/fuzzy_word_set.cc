// Texts as sets of words.
#include <algorithm>

#include "fuzzy/fuzzy_words.h"

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
      words_.push_back({begin, at, key, 1});
    }
  });
  const auto below = [&](const Word& x, const Word& y) { return compare(x, *this, y) < 0; };
  const auto equal = [&](const Word& x, const Word& y) { return compare(x, *this, y) == 0; };
  std::sort(words_.begin(), words_.end(), below);
  sorted_size_ = words_.empty() ? 0 : size() - 1;
  for (const Word& word : words_) sorted_size_ += word.size();
  size_t distinct = 0;
  for (size_t k = 0; k < words_.size(); ++k) {
    if (distinct > 0 && equal(words_[distinct - 1], words_[k])) {
      ++words_[distinct - 1].count;
    } else {
      words_[distinct++] = words_[k];
    }
  }
  repeats_ = distinct < words_.size();
  words_.resize(distinct);
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

void WordSet::join_sorted(std::vector<uint32_t>* out) const {
  out->clear();
  for (const Word& word : words_) {
    const uint32_t* at = characters(word);
    for (int64_t i = 0; i < word.count; ++i) {
      if (!out->empty()) out->push_back(' ');
      out->insert(out->end(), at, at + word.size());
    }
  }
}

}  // namespace pytrace
