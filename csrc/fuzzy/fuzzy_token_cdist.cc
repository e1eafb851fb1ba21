// token_set_ratio of many texts against many.
#include "fuzzy/fuzzy_matrix.h"
#include "fuzzy/fuzzy_words.h"

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

// The texts of one side as word sets, each word with its number, and all words joined.
struct TokenSide {
  explicit TokenSide(Span<const Text> texts, int threads)
      : sets(static_cast<size_t>(texts.size)),
        numbers(static_cast<size_t>(texts.size)),
        joined(static_cast<size_t>(texts.size)),
        characters(static_cast<size_t>(texts.size)) {
    parallel_for(texts.size, 64, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const auto k = static_cast<size_t>(i);
        joined[k].missing = true;
        if (texts[i].missing) continue;
        sets[k].assign(texts[i]);
        if (sets[k].size() == 0) continue;
        sets[k].join(nullptr, &characters[k]);
        joined[k] = {characters[k].data(), sets[k].joined_size(), 4, false};
      }
    });
  }

  template <typename Number>
  void number(const Number& number_of) {
    for (size_t k = 0; k < sets.size(); ++k) {
      numbers[k].reserve(static_cast<size_t>(sets[k].size()));
      for (int64_t w = 0; w < sets[k].size(); ++w) {
        numbers[k].push_back(number_of(sets[k], sets[k].word(w)));
      }
    }
  }

  Span<const Text> texts() const { return {joined.data(), static_cast<int64_t>(joined.size())}; }

  std::vector<WordSet> sets;
  std::vector<std::vector<uint32_t>> numbers;
  std::vector<Text> joined;  // missing where there is no word
  std::vector<std::vector<uint32_t>> characters;
};

// The words of one text, found by number.
class NumberSet {
 public:
  explicit NumberSet(const std::vector<uint32_t>& numbers) {
    size_t room = 8;
    while (room < 4 * numbers.size()) room *= 2;
    slots_.assign(room, Numbering::kUnknown);
    places_.resize(room);
    for (size_t k = 0; k < numbers.size(); ++k) {
      const size_t at = probe(numbers[k]);
      slots_[at] = numbers[k];
      places_[at] = static_cast<int64_t>(k);
    }
  }

  // Where the number stands among the words; -1 if it does not.
  int64_t find(uint32_t number) const {
    const size_t at = probe(number);
    return slots_[at] == Numbering::kUnknown ? -1 : places_[at];
  }

 private:
  size_t probe(uint32_t number) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (number * uint32_t{0x9E3779B1} >> 16) & mask;
    while (slots_[at] != Numbering::kUnknown && slots_[at] != number) at = (at + 1) & mask;
    return at;
  }

  std::vector<uint32_t> slots_;
  std::vector<int64_t> places_;
};

}  // namespace

// Two texts without a common word score as their joined words do, which packs compute at once for
// all pairs; the pairs that have one are then scored one by one.
void fuzzy_token_set_cdist(Span<const Text> queries, Span<const Text> choices,
                           const FuzzyOutput& output, int threads) {
  TokenSide rows(queries, threads);
  TokenSide columns(choices, threads);
  Numbering numbering;
  rows.number([&](const auto& set, const auto& word) { return numbering.add(set, word); });
  columns.number([&](const auto& set, const auto& word) { return numbering.find(set, word); });
  // Without words the score is 0, which no loop below stores.
  for (int64_t q = 0; q < queries.size; ++q) {
    const bool empty_row = rows.sets[static_cast<size_t>(q)].size() == 0;
    for (int64_t c = 0; c < choices.size; ++c) {
      const bool empty = empty_row || columns.sets[static_cast<size_t>(c)].size() == 0;
      if (empty && !queries[q].missing && !choices[c].missing)
        output.put(0.0, q * choices.size + c);
    }
  }
  fuzzy_ratio_cdist(rows.texts(), columns.texts(), FuzzyRounding::kPercent, output, threads);
  for_fuzzy_tiles(
      queries.size, kFuzzyTileNeedles, choices.size, 16 * kFuzzyTileTexts, threads,
      [&](int64_t q_begin, int64_t q_end, int64_t c_begin, int64_t c_end) {
        TokenSetRatio scorer;
        std::vector<uint8_t> common_row;
        std::vector<uint8_t> common_column;
        for (int64_t q = q_begin; q < q_end; ++q) {
          const auto row = static_cast<size_t>(q);
          const NumberSet set(rows.numbers[row]);
          common_row.assign(rows.numbers[row].size(), 0);
          for (int64_t c = c_begin; c < c_end; ++c) {
            const auto column = static_cast<size_t>(c);
            const std::vector<uint32_t>& numbers = columns.numbers[column];
            bool any = false;
            for (size_t w = 0; w < numbers.size(); ++w) {
              if (numbers[w] == Numbering::kUnknown) continue;
              const int64_t place = set.find(numbers[w]);
              if (place < 0) continue;
              if (!any) common_column.assign(numbers.size(), 0);
              any = true;
              common_column[w] = 1;
              common_row[static_cast<size_t>(place)] = 1;
            }
            if (!any) continue;
            output.put(scorer.of_common(rows.sets[row], common_row.data(), columns.sets[column],
                                        common_column.data(), output.cutoff()),
                       q * choices.size + c);
            std::fill(common_row.begin(), common_row.end(), uint8_t{0});
          }
        }
      });
}

}  // namespace pytrace
