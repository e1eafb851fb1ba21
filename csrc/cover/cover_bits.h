// Sets of features as rows of bits.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cover/cover.h"

namespace pytrace {

using Word = uint64_t;

inline int count_bits(Word word) {
  // Without a popcount instruction in the baseline the built-in would be a call.
  word -= (word >> 1) & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
  return static_cast<int>((word * 0x0101010101010101u) >> 56);
}

// A fixed number of words a row, in one block.
class BitRows {
 public:
  BitRows() = default;
  BitRows(int64_t rows, int64_t bits)
      : words_((bits + 63) / 64), data_(static_cast<size_t>(rows * words_)) {}

  int64_t words() const { return words_; }
  Word* operator[](int64_t row) { return data_.data() + row * words_; }
  const Word* operator[](int64_t row) const { return data_.data() + row * words_; }

 private:
  int64_t words_ = 0;
  std::vector<Word> data_;
};

inline void set_bit(Word* bits, int64_t i) { bits[i / 64] |= Word{1} << (i % 64); }
inline void clear_bit(Word* bits, int64_t i) { bits[i / 64] &= ~(Word{1} << (i % 64)); }
inline bool has_bit(const Word* bits, int64_t i) { return (bits[i / 64] >> (i % 64) & 1) != 0; }

inline bool empty(const Word* bits, int64_t words) {
  for (int64_t w = 0; w < words; ++w) {
    if (bits[w] != 0) return false;
  }
  return true;
}

inline int count(const Word* bits, int64_t words) {
  int total = 0;
  for (int64_t w = 0; w < words; ++w) total += count_bits(bits[w]);
  return total;
}

inline bool subset(const Word* x, const Word* y, int64_t words) {
  for (int64_t w = 0; w < words; ++w) {
    if ((x[w] & ~y[w]) != 0) return false;
  }
  return true;
}

// Calls body(i) for every set bit, ascending; a body that returns false ends the walk.
template <typename Body>
void each_bit(const Word* bits, int64_t words, const Body& body) {
  for (int64_t w = 0; w < words; ++w) {
    for (Word rest = bits[w]; rest != 0; rest &= rest - 1) {
      if (!body(w * 64 + __builtin_ctzll(rest))) return;
    }
  }
}

// The features that some set has.
inline std::vector<Word> coverable(const CoverProblem& problem) {
  std::vector<Word> all(static_cast<size_t>(problem.words));
  for (int64_t s = 0; s < problem.sets; ++s) {
    for (int64_t w = 0; w < problem.words; ++w) {
      all[static_cast<size_t>(w)] |= problem.members[s * problem.words + w];
    }
  }
  return all;
}

// Whether all weights are whole numbers, and then the greatest that divides them all: a cover can
// only be lighter than another by that much.
struct WeightSteps {
  bool whole = true;
  double step = 0.0;
};
WeightSteps weight_steps(const CoverProblem& problem);

}  // namespace pytrace
