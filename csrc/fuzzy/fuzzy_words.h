// Texts as sets of words, and the score of two of them.
#pragma once

#include <cstdint>
#include <vector>

#include "fuzzy/fuzzy_text.h"

namespace pytrace {

// The distinct words of a text, in order of code points.
class WordSet {
 public:
  struct Word {
    int64_t begin;
    int64_t end;
    uint64_t key;  // its first two characters: most words differ there

    int64_t size() const { return end - begin; }
  };

  // May be called again: what was allocated is used again.
  void assign(const Text& text);

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  const Word& word(int64_t k) const { return words_[static_cast<size_t>(k)]; }
  const uint32_t* characters(const Word& word) const { return characters_.data() + word.begin; }

  // The length of all words with one blank between neighbours.
  int64_t joined_size() const { return joined_size_; }

  // Writes words with one blank between neighbours; only those that are not `common`, if that is
  // given.
  void join(const uint8_t* common, std::vector<uint32_t>* out) const;

  // Below, equal or above zero as x of this set is in order beside y of another.
  int compare(const Word& x, const WordSet& other, const Word& y) const;

 private:
  std::vector<uint32_t> characters_;
  std::vector<Word> words_;
  int64_t joined_size_ = 0;
};

// token_set_ratio of many pairs, one at a time; it keeps what it allocates.
class TokenSetRatio {
 public:
  // `all_of_a`, if given, is a's words joined.
  double of(const WordSet& a, const WordSet& b, double cutoff, LcsQuery* all_of_a = nullptr);

  // The same where it is known which words are common: common_a[k] != 0 if word k of a is in b, and
  // so for b.
  double of_common(const WordSet& a, const uint8_t* common_a, const WordSet& b,
                   const uint8_t* common_b, double cutoff, LcsQuery* all_of_a = nullptr);

 private:
  std::vector<uint8_t> common_a_;
  std::vector<uint8_t> common_b_;
  std::vector<uint32_t> rest_a_;
  std::vector<uint32_t> rest_b_;
};

}  // namespace pytrace
