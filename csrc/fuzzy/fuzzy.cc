#include "fuzzy/fuzzy.h"

#include <utility>

#include "common/dispatch.h"
#include "fuzzy/fuzzy_text.h"

namespace pytrace {

const FuzzyVector& active_fuzzy_vector() { return PYTRACE_SELECT_ISA(fuzzy_vector)(); }

uint32_t WideCharacters::add(uint32_t character, uint32_t number) {
  if (slots_.size() < 2 * (count_ + 1)) {
    std::vector<Slot> old(std::max<size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number != 0) slots_[probe(slot.character)] = slot;
    }
  }
  Slot& slot = slots_[probe(character)];
  if (slot.number == 0) {
    slot = {character, number};
    ++count_;
  }
  return slot.number;
}

void WideCharacters::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  count_ = 0;
}

namespace {

// Cuts what both begin and end with: an optimal alignment may always match it. Returns its length.
int64_t cut_common_ends(Text* a, Text* b) {
  return with_characters(*a, [&](const auto* x) {
    return with_characters(*b, [&](const auto* y) {
      const int64_t shorter = std::min(a->size, b->size);
      int64_t prefix = 0;
      while (prefix < shorter && x[prefix] == y[prefix]) ++prefix;
      int64_t suffix = 0;
      while (suffix < shorter - prefix && x[a->size - 1 - suffix] == y[b->size - 1 - suffix])
        ++suffix;
      *a = fuzzy_part(*a, prefix, a->size - suffix);
      *b = fuzzy_part(*b, prefix, b->size - suffix);
      return prefix + suffix;
    });
  });
}

template <typename Mask>
int64_t mask_lcs(const MatchTable<Mask>& table, const Text& text) {
  uint64_t state = ~uint64_t{0};
  with_characters(text, [&](const auto* characters) {
    for (int64_t i = 0; i < text.size; ++i) {
      const uint64_t mask = table.find(characters[i]);
      state = (state + (state & mask)) | (state & ~mask);
    }
  });
  return __builtin_popcountll(~state);
}

// A narrow table is sooner filled; its masks are widened, because the recurrence leaves bits that
// no mask sets alone.
template <typename Mask>
int64_t short_lcs(const Text& needle, const Text& text) {
  MatchTable<Mask> table;
  table.assign(needle);
  return mask_lcs(table, text);
}

// counts[w] for all windows of a needle of at most 64 characters.
template <typename Mask>
void lane_windows(const Text& needle, const Text& text, std::vector<int32_t>& counts) {
  const FuzzyLanes<Mask>& lanes = fuzzy_lanes<Mask>(active_fuzzy_vector());
  MatchTable<Mask> table;
  table.assign(needle);
  // Shortened windows are whole ones over zeros around the text: a mask of zero changes nothing.
  const int64_t m = needle.size;
  const int64_t windows = text.size + m - 1;
  const auto room = static_cast<size_t>(windows + m - 1 + lanes.slack);
  std::vector<Mask> masks(room, 0);
  std::vector<Mask> narrow(room);
  table.fill(text, masks.data() + m - 1);
  lanes.windows(masks.data(), windows, m, narrow.data());
  counts.assign(narrow.data(), narrow.data() + windows);
}

void all_windows(const Text& needle, const Text& text, std::vector<int32_t>& counts) {
  if (needle.size > 64) {
    fuzzy_comb_windows(needle, text, counts);
    return;
  }
  with_mask(needle.size, [&](auto mask) { lane_windows<decltype(mask)>(needle, text, counts); });
}

template <typename Strand, typename Comb>
void comb(const Text& needle, const Text& text, Comb run, int64_t slack,
          std::vector<int32_t>& counts) {
  const int64_t m = needle.size;
  const int64_t n = text.size;
  Alphabet alphabet;
  std::vector<Strand> backwards(static_cast<size_t>(m + slack));
  with_characters(needle, [&](const auto* characters) {
    for (int64_t i = 0; i < m; ++i) {
      backwards[static_cast<size_t>(m - 1 - i)] = static_cast<Strand>(alphabet.add(characters[i]));
    }
  });
  std::vector<Strand> numbers(static_cast<size_t>(n + slack));
  alphabet.number(text, numbers.data());
  std::vector<Strand> left(static_cast<size_t>(m + slack));
  std::vector<Strand> below(static_cast<size_t>(n + slack));
  run(backwards.data(), m, numbers.data(), n, left.data(), below.data());

  // LCS(needle, text[l:r]) = (r - l) - the strands that go in at the top of column l or later and
  // come out at the bottom before column r. One from column s to column j counts in the windows
  // that hold both: those whose start is in [j - m + 1, s]. Window w starts at w - (m - 1).
  counts.assign(static_cast<size_t>(m + n), 0);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t s = static_cast<int64_t>(below[static_cast<size_t>(j)]) - m;
    if (s < 0 || s < j - m + 1) continue;
    ++counts[static_cast<size_t>(j)];
    --counts[static_cast<size_t>(s + m)];
  }
  counts.pop_back();
  int32_t inside = 0;
  for (int64_t w = 0; w < m + n - 1; ++w) {
    inside += counts[static_cast<size_t>(w)];
    const int64_t length = std::min(w + 1, n) - std::max<int64_t>(w - (m - 1), 0);
    counts[static_cast<size_t>(w)] = static_cast<int32_t>(length) - inside;
  }
}

// Where RapidFuzz finds the best of the whole windows that start before the last one. It halves the
// range of starts level by level and keeps the first best one it meets.
int64_t first_best_start(const std::vector<int32_t>& counts, int64_t m, int64_t starts) {
  const auto count = [&](int64_t start) { return counts[static_cast<size_t>(start + m - 1)]; };
  int32_t top = -1;
  for (int64_t start = 0; start < starts; ++start) top = std::max(top, count(start));
  std::vector<std::pair<int64_t, int64_t>> level{{0, starts - 1}};
  std::vector<std::pair<int64_t, int64_t>> next;
  while (true) {
    next.clear();
    for (const auto& [first, last] : level) {
      if (count(first) == top) return first;
      if (count(last) == top) return last;
      const int64_t width = last - first;
      if (width < 2) continue;
      next.emplace_back(first, first + width / 2);
      next.emplace_back(first + width / 2, last);
    }
    level.swap(next);
  }
}

struct PlacedWindow {
  double score = 0;
  int64_t start = 0;
  int64_t end = 0;
};

// The window that RapidFuzz reports for a needle: whole windows first, then prefixes from short to
// long, then suffixes from the last whole window to short; a later one only if it is better.
PlacedWindow place_window(const Text& needle, const Text& text) {
  const int64_t m = needle.size;
  const int64_t n = text.size;
  std::vector<int32_t> counts;
  all_windows(needle, text, counts);
  FuzzyWindow best{0, m};
  PlacedWindow placed{0, 0, m};
  const auto consider = [&](int64_t start, int64_t end, int64_t w) {
    const FuzzyWindow window{counts[static_cast<size_t>(w)], end - start};
    if (!fuzzy_better(window, best, m)) return;
    best = window;
    placed = {0, start, end};
  };
  if (n > m) {
    const int64_t start = first_best_start(counts, m, n - m);
    consider(start, start + m, start + m - 1);
  }
  for (int64_t length = 1; length < m; ++length) consider(0, length, length - 1);
  for (int64_t start = n - m; start < n; ++start) consider(start, n, start + m - 1);
  placed.score = fuzzy_ratio_of(best.lcs, m + best.length);
  return placed;
}

}  // namespace

int64_t fuzzy_lcs(const Text& first, const Text& second) {
  Text a = first;
  Text b = second;
  const int64_t common = cut_common_ends(&a, &b);
  if (a.size > b.size) std::swap(a, b);
  if (a.size == 0) return common;
  if (a.size > 64) return common + LcsQuery(a).lcs(b);
  return common + with_mask(a.size, [&](auto mask) { return short_lcs<decltype(mask)>(a, b); });
}

LcsQuery::LcsQuery(const Text& text) : text_(text) {
  if (text.size <= 64) {
    short_.assign(text);
    return;
  }
  words_ = static_cast<size_t>((text.size + 63) / 64);
  table_.reserve(64 * words_);  // few texts have more different characters
  table_.assign(words_, 0);
  state_.resize(words_);
  with_characters(text, [&](const auto* characters) {
    for (int64_t r = 0; r < text.size; ++r) {
      const size_t row = alphabet_.add(characters[r]);
      if ((row + 1) * words_ > table_.size()) table_.resize((row + 1) * words_, 0);
      table_[row * words_ + static_cast<size_t>(r / 64)] |= uint64_t{1} << (r % 64);
    }
  });
}

// Over as many words as the text needs (0: any number), the addition's carry handed on.
template <int kWords>
int64_t LcsQuery::long_lcs(const Text& other) {
  const size_t words = kWords > 0 ? static_cast<size_t>(kWords) : words_;
  uint64_t few[kWords > 0 ? kWords : 1];
  uint64_t* state = kWords > 0 ? few : state_.data();
  std::fill(state, state + words, ~uint64_t{0});
  with_characters(other, [&](const auto* characters) {
    for (int64_t i = 0; i < other.size; ++i) {
      const uint32_t row = alphabet_.find(characters[i]);
      if (row == 0) continue;
      const uint64_t* masks = table_.data() + row * words;
      uint64_t carry = 0;
#pragma GCC unroll 4
      for (size_t k = 0; k < words; ++k) {
        const uint64_t matched = state[k] & masks[k];
        uint64_t sum = 0;
        uint64_t overflow = __builtin_add_overflow(state[k], matched, &sum) ? 1 : 0;
        overflow |= __builtin_add_overflow(sum, carry, &sum) ? 1u : 0u;
        carry = overflow;
        state[k] = sum | (state[k] & ~masks[k]);
      }
    }
  });
  int64_t lcs = 0;
  for (size_t k = 0; k < words; ++k) lcs += __builtin_popcountll(~state[k]);
  return lcs;
}

int64_t LcsQuery::lcs(const Text& other) {
  switch (words_) {
    case 0:
      return mask_lcs(short_, other);
    case 2:
      return long_lcs<2>(other);
    case 3:
      return long_lcs<3>(other);
    case 4:
      return long_lcs<4>(other);
    default:
      return long_lcs<0>(other);
  }
}

// A text's step waits for the one before, so that some texts side by side take little longer than
// one. A text that has ended meets no character any more, which changes nothing. Returns how many
// were done: whole groups of texts of one byte a character.
template <typename Word, int kTexts>
int64_t LcsQuery::lcs_together(const Text* others, int64_t count, int64_t* out) const {
  static constexpr uint64_t kNone[2] = {};
  static constexpr uint8_t kNoCharacter = 0;
  int64_t done = 0;
  for (; done + kTexts <= count; done += kTexts) {
    const uint8_t* characters[kTexts];
    int64_t sizes[kTexts];
    int64_t longest = 0;
    for (int t = 0; t < kTexts; ++t) {
      const Text& other = others[done + t];
      if (other.kind != 1) return done;
      characters[t] = other.size == 0 ? &kNoCharacter : static_cast<const uint8_t*>(other.data);
      sizes[t] = other.size;
      longest = std::max(longest, other.size);
    }
    Word state[kTexts];
    std::fill(state, state + kTexts, ~Word{0});
    for (int64_t i = 0; i < longest; ++i) {
#pragma GCC unroll 4
      for (int t = 0; t < kTexts; ++t) {
        // Without a branch: nobody foresees where a text ends.
        const bool ended = i >= sizes[t];
        const uint8_t character = characters[t][ended ? 0 : i];
        Word mask;
        if constexpr (sizeof(Word) == 8) {
          mask = ended ? 0 : short_.latin()[character];
        } else {
          const uint64_t* masks = table_.data() + 2 * alphabet_.find(character);
          masks = ended ? kNone : masks;
          mask = Word{masks[1]} << 64 | masks[0];
        }
        const Word matched = state[t] & mask;
        state[t] = (state[t] + matched) | (state[t] ^ matched);
      }
    }
    for (int t = 0; t < kTexts; ++t) {
      out[done + t] = __builtin_popcountll(~static_cast<uint64_t>(state[t]));
      if constexpr (sizeof(Word) == 16)
        out[done + t] += __builtin_popcountll(~static_cast<uint64_t>(state[t] >> 64));
    }
  }
  return done;
}

void LcsQuery::lcs(const Text* others, int64_t count, int64_t* out) {
  __extension__ using Word128 = unsigned __int128;
  int64_t done = 0;
  while (done < count) {
    const int64_t left = count - done;
    const int64_t together =
        words_ == 0   ? lcs_together<uint64_t, 4>(others + done, left, out + done)
        : words_ == 2 ? lcs_together<Word128, 2>(others + done, left, out + done)
                      : 0;
    done += together;
    if (together == 0) {
      out[done] = lcs(others[done]);
      ++done;
    }
  }
}

void fuzzy_comb_windows(const Text& needle, const Text& text, std::vector<int32_t>& counts) {
  const FuzzyVector& vector = active_fuzzy_vector();
  if (needle.size + text.size < (1 << 15)) {
    comb<int16_t>(needle, text, vector.comb16, vector.comb_slack, counts);
  } else {
    comb<int32_t>(needle, text, vector.comb32, vector.comb_slack, counts);
  }
}

FuzzyWindow fuzzy_best_window(const Text& needle, const Text& text) {
  const int64_t m = needle.size;
  if (m <= 64) {
    return with_mask(m, [&](auto mask) {
      using Mask = decltype(mask);
      const FuzzyLanes<Mask>& lanes = fuzzy_lanes<Mask>(active_fuzzy_vector());
      MatchTable<Mask> table;
      table.assign(needle);
      WindowRow<Mask> row(lanes);
      row.add(table, m, text);
      row.run();
      return lanes.best(row.counts(), row.masks(), text.size, m, kFuzzyPrefixes | kFuzzySuffixes);
    });
  }
  std::vector<int32_t> counts;
  fuzzy_comb_windows(needle, text, counts);
  FuzzyWindow best{0, m};
  for (int64_t w = 0; w < m + text.size - 1; ++w) {
    const int64_t length = std::min(w + 1, text.size) - std::max<int64_t>(w - (m - 1), 0);
    const FuzzyWindow window{counts[static_cast<size_t>(w)], length};
    if (fuzzy_better(window, best, m)) best = window;
  }
  return best;
}

FuzzyAlignment fuzzy_partial_alignment(const Text& a, const Text& b, double cutoff) {
  if (a.missing || b.missing) return {};
  if (a.size > b.size) {
    FuzzyAlignment result = fuzzy_partial_alignment(b, a, cutoff);
    std::swap(result.a_start, result.b_start);
    std::swap(result.a_end, result.b_end);
    return result;
  }
  const int64_t m = a.size;
  FuzzyAlignment result{true, 0.0, 0, m, 0, m};
  if (m == 0) {
    result.score = b.size == 0 ? 100.0 : 0.0;
  } else {
    const PlacedWindow window = place_window(a, b);
    result.score = window.score;
    result.b_start = window.start;
    result.b_end = window.end;
    if (b.size == m && window.score < 100.0) {
      const PlacedWindow other = place_window(b, a);
      if (other.score > window.score) result = {true, other.score, other.start, other.end, 0, m};
    }
  }
  result.found = result.score >= cutoff;
  return result;
}

}  // namespace pytrace
