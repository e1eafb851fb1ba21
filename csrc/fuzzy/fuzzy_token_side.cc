// Many texts as words.
#include "fuzzy/fuzzy_token_side.h"

#include <cstring>

#include "common/parallel.h"

namespace pytrace {
namespace {

// Words by number, the same number for the same word.
class Numbering {
 public:
  static constexpr uint32_t kUnknown = 0xffffffff;

  uint32_t add(const WordSet& set, const WordSet::Word& word) {
    if (slots_.size() < 2 * (known_.size() + 1)) {
      slots_.assign(std::max<size_t>(64, 2 * slots_.size()), kUnknown);
      for (uint32_t number = 0; number < known_.size(); ++number) {
        slots_[probe(*known_[number].set, known_[number].word)] = number;
      }
    }
    uint32_t& number = slots_[probe(set, word)];
    if (number == kUnknown) {
      number = static_cast<uint32_t>(known_.size());
      known_.push_back({&set, word});
    }
    return number;
  }

  uint32_t find(const WordSet& set, const WordSet::Word& word) const {
    return slots_.empty() ? kUnknown : slots_[probe(set, word)];
  }

  size_t size() const { return known_.size(); }

 private:
  struct Known {
    const WordSet* set;
    WordSet::Word word;
  };

  size_t probe(const WordSet& set, const WordSet::Word& word) const {
    uint64_t hash = 0;
    const uint32_t* characters = set.characters(word);
    for (int64_t i = 0; i < word.size(); ++i) {
      hash = (hash ^ characters[i]) * uint64_t{0x9E3779B97F4A7C15};
      hash ^= hash >> 32;
    }
    const size_t mask = slots_.size() - 1;
    for (size_t at = static_cast<size_t>(hash) & mask;; at = (at + 1) & mask) {
      if (slots_[at] == kUnknown) return at;
      const Known& known = known_[slots_[at]];
      if (set.compare(word, *known.set, known.word) == 0) return at;
    }
  }

  std::vector<uint32_t> slots_;
  std::vector<Known> known_;
};

template <typename Character>
void narrow(const std::vector<uint32_t>& from, char* to) {
  auto* out = reinterpret_cast<Character*>(to);
  for (size_t i = 0; i < from.size(); ++i) out[i] = static_cast<Character>(from[i]);
}

// A text of `kind` bytes a character, at `to`.
Text written(const std::vector<uint32_t>& characters, int kind, char* to) {
  if (kind == 1) narrow<uint8_t>(characters, to);
  if (kind == 2) narrow<uint16_t>(characters, to);
  if (kind == 4) narrow<uint32_t>(characters, to);
  return {to, static_cast<int64_t>(characters.size()), kind, false};
}

}  // namespace

TokenSide::TokenSide(Span<const Text> texts, int threads)
    : words_(static_cast<size_t>(texts.size)),
      distinct_(static_cast<size_t>(texts.size)),
      sorted_(static_cast<size_t>(texts.size)),
      characters_(static_cast<size_t>(texts.size)) {
  parallel_for(texts.size, 64, threads, [&](int64_t begin, int64_t end, int) {
    std::vector<uint32_t> joined;
    for (int64_t i = begin; i < end; ++i) {
      const auto k = static_cast<size_t>(i);
      distinct_[k].missing = true;
      sorted_[k].missing = texts[i].missing;
      if (texts[i].missing) continue;
      WordSet& words = words_[k];
      words.assign(texts[i]);
      if (words.size() == 0) continue;
      const int kind = texts[i].kind;
      const int64_t size = words.joined_size() + (words.repeats() ? words.sorted_size() : 0);
      characters_[k].resize(static_cast<size_t>(size * kind));
      words.join(nullptr, &joined);
      distinct_[k] = sorted_[k] = written(joined, kind, characters_[k].data());
      if (!words.repeats()) continue;
      words.join_sorted(&joined);
      sorted_[k] = written(joined, kind, characters_[k].data() + words.joined_size() * kind);
    }
  });
}

CommonWords::CommonWords(const TokenSide& rows, const TokenSide& columns)
    : numbers_(static_cast<size_t>(rows.size())) {
  Numbering numbering;
  for (int64_t row = 0; row < rows.size(); ++row) {
    const WordSet& words = rows.words(row);
    std::vector<uint32_t>& numbers = numbers_[static_cast<size_t>(row)];
    numbers.reserve(static_cast<size_t>(words.size()));
    for (int64_t k = 0; k < words.size(); ++k) {
      numbers.push_back(numbering.add(words, words.word(k)));
    }
  }
  columns_.resize(numbering.size());
  for (int64_t column = 0; column < columns.size(); ++column) {
    const WordSet& words = columns.words(column);
    for (int64_t k = 0; k < words.size(); ++k) {
      const uint32_t number = numbering.find(words, words.word(k));
      if (number != Numbering::kUnknown) columns_[number].push_back(column);
    }
  }
}

}  // namespace pytrace
