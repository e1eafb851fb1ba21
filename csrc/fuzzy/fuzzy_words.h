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
    uint64_t key;   // its first two characters: most words differ there
    int64_t count;  // how often it stands in the text

    int64_t size() const { return end - begin; }
  };

  // May be called again: what was allocated is used again.
  void assign(const Text& text);

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  const Word& word(int64_t k) const { return words_[static_cast<size_t>(k)]; }
  const uint32_t* characters(const Word& word) const { return characters_.data() + word.begin; }

  // The length of all words with one blank between neighbours.
  int64_t joined_size() const { return joined_size_; }

  // Whether a word stands in the text more than once.
  bool repeats() const { return repeats_; }

  // The length of all words, repeated as in the text, with one blank between neighbours.
  int64_t sorted_size() const { return sorted_size_; }

  // Writes words with one blank between neighbours; only those that are not `common`, if that is
  // given.
  void join(const uint8_t* common, std::vector<uint32_t>* out) const;

  // Writes all words in order, repeated as in the text, with one blank between neighbours.
  void join_sorted(std::vector<uint32_t>* out) const;

  // Below, equal or above zero as x of this set is in order beside y of another.
  int compare(const Word& x, const WordSet& other, const Word& y) const;

 private:
  std::vector<uint32_t> characters_;
  std::vector<Word> words_;
  int64_t joined_size_ = 0;
  int64_t sorted_size_ = 0;
  bool repeats_ = false;
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

// Any scorer of many pairs, one at a time; it keeps what it allocates.
class FuzzyPair {
 public:
  double of(FuzzyScorer scorer, const Text& a, const Text& b, double cutoff);

 private:
  double token(double cutoff);
  double partial_token(double cutoff);
  double weighted(const Text& a, const Text& b, double cutoff);
  bool share_a_word() const;
  Text distinct(const WordSet& words, std::vector<uint32_t>* out) const;
  Text sorted(const WordSet& words, std::vector<uint32_t>* out) const;

  WordSet a_;
  WordSet b_;
  std::vector<uint32_t> joined_a_;
  std::vector<uint32_t> joined_b_;
  TokenSetRatio token_set_;
};

}  // namespace pytrace
