// A set of nodes that is taken out in ascending order while it grows: a bit a node, and above them
// a bit a word, so that a pass over few nodes does not read as much as there are nodes.
#pragma once

#include <cstdint>
#include <vector>

namespace pytrace {

class NodeSet {
 public:
  explicit NodeSet(int64_t nodes)
      : words_(static_cast<size_t>(nodes / 64 + 1)), summary_(words_.size() / 64 + 1) {}

  void add(int64_t node) {
    const auto at = static_cast<uint64_t>(node);
    uint64_t& word = words_[at / 64];
    if (word == 0) summary_[at / 4096] |= uint64_t{1} << at / 64 % 64;
    word |= uint64_t{1} << at % 64;
  }

  // Takes nodes out from the lowest to the highest, with those that `visit` adds ahead; what it
  // adds behind stays for the next pass. Returns whether there was any.
  template <typename Visit>
  bool pass(const Visit& visit) {
    bool any = false;
    for (size_t block = 0; block < summary_.size(); ++block) {
      for (uint64_t ahead = ~uint64_t{0}; (summary_[block] & ahead) != 0;) {
        const int word = __builtin_ctzll(summary_[block] & ahead);
        ahead = above(word);
        any |= pass_word(block * 64 + static_cast<size_t>(word), visit);
      }
    }
    return any;
  }

  void clear() {
    pass([](int64_t) {});
  }

 private:
  static uint64_t above(int bit) { return bit == 63 ? 0 : ~uint64_t{0} << (bit + 1); }

  template <typename Visit>
  bool pass_word(size_t index, const Visit& visit) {
    bool any = false;
    for (uint64_t ahead = ~uint64_t{0}; (words_[index] & ahead) != 0;) {
      const int bit = __builtin_ctzll(words_[index] & ahead);
      ahead = above(bit);
      words_[index] &= ~(uint64_t{1} << bit);
      any = true;
      visit(static_cast<int64_t>(index) * 64 + bit);
    }
    if (words_[index] == 0) summary_[index / 64] &= ~(uint64_t{1} << index % 64);
    return any;
  }

  std::vector<uint64_t> words_;
  std::vector<uint64_t> summary_;
};

}  // namespace pytrace
