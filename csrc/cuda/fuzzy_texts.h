// Texts as a card reads them: some of a side packed into one piece of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/fuzzy_kernels.h"
#include "fuzzy/fuzzy.h"
#include "fuzzy/fuzzy_words.h"

namespace pytrace::cuda {

// One side of a call, on the host. For token_set_ratio the texts are those of their words, joined.
class FuzzySource {
 public:
  // The texts must outlive it. `words`: for token_set_ratio.
  FuzzySource(Span<const Text> texts, bool words);

  // Gives the words of both sides numbers, the same for the same word.
  static void number(FuzzySource* first, FuzzySource* second);

  int64_t size() const { return texts_.size; }
  // Characters that the card compares; 0 for a missing text.
  int64_t characters(int64_t index) const;
  // Bytes that a text takes in a pack.
  int64_t bytes(int64_t index) const;

 private:
  friend class FuzzyPack;

  Span<const Text> texts_;
  bool has_words_;
  std::vector<WordSet> sets_;
  std::vector<std::vector<uint32_t>> numbers_;
};

// Texts [begin, end) of a side with lists of their numbers, ready to be sent.
class FuzzyPack {
 public:
  // `order`: which of the texts, from 0, the kernels are to take; or any other numbers below 2^31.
  FuzzyPack(const FuzzySource& source, int64_t begin, int64_t end, std::vector<int32_t> order);

  // An upper bound for a pack of so many texts of so many bytes.
  static int64_t room(int64_t texts, int64_t bytes);

  const std::vector<char>& memory() const { return memory_; }
  int64_t longest() const { return longest_; }
  // Where things are once the memory lies at `base`.
  FuzzyTexts texts(const char* base) const;
  const int32_t* order(const char* base) const {
    return reinterpret_cast<const int32_t*>(base + order_);
  }

 private:
  int64_t reserve(int64_t bytes);

  std::vector<char> memory_;
  int64_t longest_ = 0;
  int64_t begins_ = 0;
  int64_t word_begins_ = 0;
  int64_t words_ = 0;
  int64_t characters_ = 0;
  int64_t order_ = 0;
  int64_t missing_ = 0;
};

}  // namespace pytrace::cuda
