// Many texts as words: what the matrices of the token scorers share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzzy/fuzzy_words.h"

namespace pytrace {

// The texts of one side of a matrix, cut into words.
class TokenSide {
 public:
  TokenSide(Span<const Text> texts, int threads);

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  const WordSet& words(int64_t i) const { return words_[static_cast<size_t>(i)]; }
  bool missing(int64_t i) const { return sorted_[static_cast<size_t>(i)].missing; }

  // The distinct words joined by blanks; missing where a text has no word.
  Span<const Text> distinct(int64_t begin, int64_t end) const {
    return {distinct_.data() + begin, end - begin};
  }

  // All words in order, repeated as in the text, joined by blanks; missing where the text is.
  Span<const Text> sorted(int64_t begin, int64_t end) const {
    return {sorted_.data() + begin, end - begin};
  }

 private:
  std::vector<WordSet> words_;
  std::vector<Text> distinct_;
  std::vector<Text> sorted_;
  std::vector<std::vector<char>> characters_;  // of all of these, each of its text's own kind
};

// Which texts of two sides have a word in common.
class CommonWords {
 public:
  CommonWords(const TokenSide& rows, const TokenSide& columns);

  // Calls body(column) for the columns of [begin, end) that share a word with the row: once for
  // every shared word.
  template <typename Body>
  void for_columns(int64_t row, int64_t begin, int64_t end, const Body& body) const {
    for (const uint32_t number : numbers_[static_cast<size_t>(row)]) {
      const std::vector<int64_t>& columns = columns_[number];
      auto at = std::lower_bound(columns.begin(), columns.end(), begin);
      for (; at != columns.end() && *at < end; ++at) body(*at);
    }
  }

 private:
  std::vector<std::vector<uint32_t>> numbers_;  // of the words of each row
  std::vector<std::vector<int64_t>> columns_;   // by the number of a word: who has it, in order
};

}  // namespace pytrace
