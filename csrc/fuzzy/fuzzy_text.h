// What all portable parts of the fuzzy kernel need: texts read in place, tables from characters to
// masks, and the LCS and score of one pair.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fuzzy/fuzzy.h"
#include "fuzzy/fuzzy_score.h"
#include "fuzzy/fuzzy_vector.h"

namespace pytrace {

// The vector loops of the instruction set that runs now.
const FuzzyVector& active_fuzzy_vector();

// Calls body(const Character*) with the text's own character type.
template <typename Body>
decltype(auto) with_characters(const Text& text, Body&& body) {
  switch (text.kind) {
    case 1:
      return body(static_cast<const uint8_t*>(text.data));
    case 2:
      return body(static_cast<const uint16_t*>(text.data));
    default:
      return body(static_cast<const uint32_t*>(text.data));
  }
}

// text[begin:end]
inline Text fuzzy_part(const Text& text, int64_t begin, int64_t end) {
  return {static_cast<const char*>(text.data) + begin * text.kind, end - begin, text.kind, false};
}

// Numbers the characters above U+00FF that it is given: an open hash table that is at most half
// full.
class WideCharacters {
 public:
  // Gives a character that has no number yet `number`, which is not 0; returns the number it has.
  uint32_t add(uint32_t character, uint32_t number);

  // 0 for a character that was not added.
  uint32_t find(uint32_t character) const {
    return count_ == 0 ? 0 : slots_[probe(character)].number;
  }

  bool empty() const { return count_ == 0; }
  void clear();

 private:
  struct Slot {
    uint32_t character = 0;
    uint32_t number = 0;  // 0: empty
  };

  // The slot that holds the character, or the empty one where it would go.
  size_t probe(uint32_t character) const {
    const size_t mask = slots_.size() - 1;
    size_t at = ((character * uint32_t{0x9E3779B1}) >> 8) & mask;
    while (slots_[at].number != 0 && slots_[at].character != character) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// Numbers characters 1, 2, … in order of first appearance; 0 is every other character.
class Alphabet {
 public:
  uint32_t add(uint32_t character) {
    if (character >= 256) {
      const uint32_t number = wide_.add(character, size_ + 1);
      size_ = std::max(size_, number);
      return number;
    }
    if (latin_[character] == 0) latin_[character] = ++size_;
    return latin_[character];
  }

  template <typename Character>
  uint32_t find(Character character) const {
    if constexpr (sizeof(Character) > 1) {
      if (character >= 256) return wide_.find(character);
    }
    return latin_[character];
  }

  // out[i] = number of the text's character i.
  template <typename Number>
  void number(const Text& text, Number* out) const {
    const int64_t size = text.size;
    with_characters(text, [&](const auto* characters) {
      for (int64_t i = 0; i < size; ++i) out[i] = static_cast<Number>(find(characters[i]));
    });
  }

 private:
  uint32_t latin_[256] = {};
  WideCharacters wide_;
  uint32_t size_ = 0;
};

// The masks of a needle of at most 8 * sizeof(Mask) characters: bit r of a character's mask is set
// where needle[r] is that character.
template <typename Mask>
class MatchTable {
 public:
  void assign(const Text& needle) {
    std::fill(std::begin(latin_), std::end(latin_), Mask{0});
    if (!wide_.empty()) {
      wide_.clear();
      wide_masks_.assign(1, Mask{0});
    }
    with_characters(needle, [&](const auto* characters) {
      for (int64_t r = 0; r < needle.size; ++r) add(characters[r], static_cast<Mask>(Mask{1} << r));
    });
  }

  template <typename Character>
  Mask find(Character character) const {
    if constexpr (sizeof(Character) > 1) {
      if (character >= 256) return wide_.empty() ? Mask{0} : wide_masks_[wide_.find(character)];
    }
    return latin_[character];
  }

  // The masks of the first 256 characters.
  const Mask* latin() const { return latin_; }

  // out[i] = mask of the text's character i.
  void fill(const Text& text, Mask* out) const {
    const int64_t size = text.size;
    with_characters(text, [&](const auto* characters) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < size; ++i) out[i] = find(characters[i]);
    });
  }

  // The same with `stride` entries from one to the next.
  void fill(const Text& text, Mask* out, int64_t stride) const {
    const int64_t size = text.size;
    with_characters(text, [&](const auto* characters) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < size; ++i) out[i * stride] = find(characters[i]);
    });
  }

 private:
  void add(uint32_t character, Mask bit) {
    if (character < 256) {
      latin_[character] = static_cast<Mask>(latin_[character] | bit);
      return;
    }
    if (wide_masks_.empty()) wide_masks_.push_back(Mask{0});
    const uint32_t number = wide_.add(character, static_cast<uint32_t>(wide_masks_.size()));
    if (number == wide_masks_.size()) wide_masks_.push_back(Mask{0});
    wide_masks_[number] = static_cast<Mask>(wide_masks_[number] | bit);
  }

  Mask latin_[256];
  WideCharacters wide_;
  std::vector<Mask> wide_masks_;  // by number; the first is of every other character
};

// Length of the longest common subsequence.
int64_t fuzzy_lcs(const Text& a, const Text& b);

// True if the first window's ratio with a needle of m characters is higher. Compared as fractions:
// exact.
inline bool fuzzy_better(const FuzzyWindow& a, const FuzzyWindow& b, int64_t m) {
  return a.lcs * (m + b.length) > b.lcs * (m + a.length);
}

// A needle that is longer than any mask: all its windows by combing.
// counts[w] = LCS with the window that starts at w - (needle.size - 1), for all needle.size +
// text.size - 1 windows.
void fuzzy_comb_windows(const Text& needle, const Text& text, std::vector<int32_t>& counts);

// The whole windows of several needles of at most 8 * sizeof(Mask) characters, each beside one
// text.
//
// The masks stand in one row, and where windows over the seam of two neighbours are few, one vector
// loop runs over all neighbours whose needles have the same length: that fills the registers to the
// last text, and the wide loads come so long after the narrow stores of the masks that they need
// not wait for them.
template <typename Mask>
class WindowRow {
 public:
  explicit WindowRow(const FuzzyLanes<Mask>& lanes) : lanes_(lanes) {}

  void clear() {
    runs_.clear();
    end_ = 0;
  }

  // Characters so far.
  int64_t size() const { return end_; }

  // Appends a needle of m >= 1 characters, given by its masks, beside a text that is no shorter;
  // returns where their masks begin and their counts will begin.
  int64_t add(const MatchTable<Mask>& table, int64_t m, const Text& text) {
    constexpr bool kSeams = sizeof(Mask) <= 2;
    const int64_t begin = end_;
    reserve(begin + text.size);
    table.fill(text, masks_.get() + begin);
    end_ += text.size;
    if (!kSeams || runs_.empty() || runs_.back().m != m) runs_.push_back({begin, end_, m});
    runs_.back().end = end_;
    return begin;
  }

  // Computes the counts; those of a needle of m beside a text of n characters are counts() + begin,
  // n - m + 1 of them.
  void run() {
    for (const Run& run : runs_) {
      lanes_.windows(masks_.get() + run.begin, run.end - run.begin - run.m + 1, run.m,
                     counts_.get() + run.begin);
    }
  }

  const Mask* masks() const { return masks_.get(); }
  const Mask* counts() const { return counts_.get(); }

 private:
  struct Run {
    int64_t begin;
    int64_t end;
    int64_t m;
  };

  // The loop may read and write `slack` entries beyond its last window; a later run overwrites
  // them. Nothing is set to zero ahead: for one short pair that would take longer than the pair.
  void reserve(int64_t size) {
    const int64_t needed = size + lanes_.slack;
    if (room_ >= needed) return;
    const int64_t room = std::max(needed + needed / 2, int64_t{2048});
    std::unique_ptr<Mask[]> masks(new Mask[static_cast<size_t>(room)]);
    counts_.reset(new Mask[static_cast<size_t>(room)]);
    std::copy(masks_.get(), masks_.get() + end_, masks.get());
    masks_.swap(masks);
    room_ = room;
  }

  const FuzzyLanes<Mask>& lanes_;
  int64_t end_ = 0;
  int64_t room_ = 0;
  std::vector<Run> runs_;
  std::unique_ptr<Mask[]> masks_;
  std::unique_ptr<Mask[]> counts_;
};

// The vector loops for one mask width.
template <typename Mask>
const FuzzyLanes<Mask>& fuzzy_lanes(const FuzzyVector& vector) {
  if constexpr (sizeof(Mask) == 1) return vector.lanes8;
  if constexpr (sizeof(Mask) == 2) return vector.lanes16;
  if constexpr (sizeof(Mask) == 4) return vector.lanes32;
  if constexpr (sizeof(Mask) == 8) return vector.lanes64;
}

// Calls body with a value of the narrowest mask type that holds a needle of `size` <= 64
// characters.
template <typename Body>
decltype(auto) with_mask(int64_t size, Body&& body) {
  if (size <= 8) return body(uint8_t{0});
  if (size <= 16) return body(uint16_t{0});
  if (size <= 32) return body(uint32_t{0});
  return body(uint64_t{0});
}

// The characters of one text beside many others: its masks are made once.
class LcsQuery {
 public:
  // `text` must outlive it.
  explicit LcsQuery(const Text& text);
  int64_t size() const { return text_.size; }

  // Length of the longest common subsequence.
  int64_t lcs(const Text& other);

  // The same for at most kTogether others, side by side as far as they can be.
  static constexpr int64_t kTogether = 8;
  void lcs(const Text* others, int64_t count, int64_t* out);

 private:
  template <int kWords>
  int64_t long_lcs(const Text& other);
  template <typename Word, int kTexts>
  int64_t lcs_together(const Text* others, int64_t count, int64_t* out) const;

  Text text_;
  MatchTable<uint64_t> short_;
  Alphabet alphabet_;
  size_t words_ = 0;
  std::vector<uint64_t> table_;  // by the number of a character: its masks, word by word
  std::vector<uint64_t> state_;
};

// The best window of a needle beside a text that is no shorter; neither is empty. Not the other way
// round.
FuzzyWindow fuzzy_best_window(const Text& needle, const Text& text);

}  // namespace pytrace
