#include "words/word_lists.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "common/parallel.h"
#include "common/spaced_words.h"

namespace pytrace {
namespace {

// Only for the table: FNV-1a (Fowler, Noll and Vo) with its high bits folded in.
uint64_t table_hash(const uint8_t* word, int64_t size) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int64_t i = 0; i < size; ++i) hash = (hash ^ word[i]) * 0x100000001b3ull;
  return hash ^ hash >> 32;
}

class WordNumbers {
 public:
  explicit WordNumbers(NumberedWords& words) : words_(words), slots_(1024, kFree) {
    words_.offsets.push_back(0);
  }

  uint32_t number(const uint8_t* word, int64_t size) {
    size_t at = table_hash(word, size) & (slots_.size() - 1);
    for (; slots_[at] != kFree; at = (at + 1) & (slots_.size() - 1)) {
      if (is(slots_[at], word, size)) return slots_[at];
    }
    const size_t count = words_.offsets.size() - 1;
    if (count >= kFree)
      throw std::length_error("there are more distinct words than 32 bits number");
    slots_[at] = static_cast<uint32_t>(count);
    words_.bytes.insert(words_.bytes.end(), word, word + size);
    words_.offsets.push_back(static_cast<int64_t>(words_.bytes.size()));
    if (2 * (count + 1) > slots_.size()) grow();
    return static_cast<uint32_t>(count);
  }

 private:
  static constexpr uint32_t kFree = std::numeric_limits<uint32_t>::max();

  bool is(uint32_t number, const uint8_t* word, int64_t size) const {
    const int64_t begin = words_.offsets[number];
    return words_.offsets[number + 1] - begin == size &&
           std::memcmp(words_.bytes.data() + begin, word, static_cast<size_t>(size)) == 0;
  }

  void grow() {
    std::vector<uint32_t> slots(2 * slots_.size(), kFree);
    for (const uint32_t number : slots_) {
      if (number == kFree) continue;
      const int64_t begin = words_.offsets[number];
      size_t at = table_hash(words_.bytes.data() + begin, words_.offsets[number + 1] - begin) &
                  (slots.size() - 1);
      while (slots[at] != kFree) at = (at + 1) & (slots.size() - 1);
      slots[at] = number;
    }
    slots_.swap(slots);
  }

  NumberedWords& words_;
  std::vector<uint32_t> slots_;
};

}  // namespace

NumberedWords number_words(const Strings& texts) {
  require_offsets(texts.offsets, texts.bytes.size, "offsets");
  NumberedWords words;
  WordNumbers numbers(words);
  for (int64_t text = 0; text < texts.size(); ++text) {
    const size_t before = words.ids.size();
    const uint8_t* const bytes = texts.bytes.data;
    const auto add = [&](int64_t begin, int64_t end) {
      words.ids.push_back(numbers.number(bytes + begin, end - begin));
    };
    for_words(bytes, texts.offsets[text], texts.offsets[text + 1], add);
    words.lengths.push_back(static_cast<uint32_t>(words.ids.size() - before));
  }
  return words;
}

RowTerms turn_postings(Span<const uint16_t> rows, Span<const uint32_t> starts, int64_t count,
                       int64_t first, uint16_t far) {
  if (starts.size < 1) fail("starts is empty; it needs at least the value 0");
  if (far < 1) fail("far is 0; it must be at least 1");
  // Copies: what is counted must be what is filled in, whoever else writes to what was given.
  const std::vector<uint16_t> of(rows.begin(), rows.end());
  const std::vector<uint32_t> bounds(starts.begin(), starts.end());
  if (bounds.back() > of.size()) {
    fail("starts ends at " + to_text(bounds.back()) + ", but there are " + to_text(rows.size) +
         " postings");
  }
  std::vector<int64_t> last(static_cast<size_t>(count), 0);
  RowTerms turned;
  turned.ends.assign(static_cast<size_t>(count), 0);
  const auto each = [&](const auto& visit) {
    for (size_t term = 0; term + 1 < bounds.size(); ++term) {
      for (uint32_t p = bounds[term]; p < bounds[term + 1]; ++p) {
        const uint16_t row = of[p];
        const int64_t number = first + static_cast<int64_t>(term);
        visit(row, number - last[row]);
        last[row] = number;
      }
    }
  };
  for (size_t term = 0; term + 1 < bounds.size(); ++term) {
    if (bounds[term] > bounds[term + 1]) {
      fail("starts goes back at " + to_text(static_cast<int64_t>(term) + 1));
    }
  }
  for (const uint16_t row : of) {
    if (row >= count) fail("a posting is of row " + to_text(row) + " of " + to_text(count));
  }
  uint64_t total = 0;
  each([&](uint16_t row, int64_t added) {
    const auto steps = static_cast<uint32_t>(1 + added / far);
    turned.ends[row] += steps;
    total += steps;
  });
  if (total > std::numeric_limits<uint32_t>::max()) {
    throw std::length_error("rows have more terms than 32 bits count");
  }
  turned.steps.resize(total);
  uint32_t end = 0;
  for (uint32_t& row : turned.ends) {
    const uint32_t size = row;
    row = end;
    end += size;
  }
  last.assign(last.size(), 0);
  // Each row's end moves from where it begins to where it ends.
  each([&](uint16_t row, int64_t added) {
    for (int64_t i = 0; i < added / far; ++i) turned.steps[turned.ends[row]++] = far;
    turned.steps[turned.ends[row]++] = static_cast<uint16_t>(added % far);
  });
  return turned;
}

TermLists terms_of_rows(const std::vector<RowTermsPart>& parts, Span<const int64_t> owners,
                        Span<const int64_t> rows, uint16_t far, int threads) {
  if (owners.size != rows.size) {
    fail("there are " + to_text(rows.size) + " rows, but " + to_text(owners.size) + " owners");
  }
  const auto count = static_cast<int64_t>(parts.size());
  TermLists found;
  found.offsets.assign(static_cast<size_t>(rows.size) + 1, 0);
  constexpr int64_t kRowsAtOnce = 256;  // some 50 us
  const int64_t chunks = (rows.size + kRowsAtOnce - 1) / kRowsAtOnce;
  std::vector<std::vector<int32_t>> terms(static_cast<size_t>(chunks));
  parallel_for(chunks, 1, threads, [&](int64_t begin, int64_t stop, int) {
    for (int64_t i = begin * kRowsAtOnce; i < std::min(rows.size, stop * kRowsAtOnce); ++i) {
      if (owners[i] < 0 || owners[i] >= count) {
        fail("there is no part " + to_text(owners[i]) + " among " + to_text(count));
      }
      const RowTermsPart& part = parts[static_cast<size_t>(owners[i])];
      if (rows[i] < 0 || rows[i] >= part.starts.size - 1) {
        fail("there is no row " + to_text(rows[i]) + " among " + to_text(part.starts.size - 1));
      }
      std::vector<int32_t>& numbers = terms[static_cast<size_t>(i / kRowsAtOnce)];
      const size_t before = numbers.size();
      const int64_t end = std::min<int64_t>(part.starts[rows[i] + 1], part.steps.size);
      int64_t term = 0;
      for (int64_t s = part.starts[rows[i]]; s < end; ++s) {
        const uint16_t step = part.steps[s];
        term += step;
        if (step != far && term < part.numbers.size) numbers.push_back(part.numbers[term]);
      }
      found.offsets[static_cast<size_t>(i) + 1] = static_cast<int64_t>(numbers.size() - before);
    }
  });
  for (size_t i = 1; i < found.offsets.size(); ++i) found.offsets[i] += found.offsets[i - 1];
  found.terms.reserve(static_cast<size_t>(found.offsets.back()));
  for (const auto& numbers : terms) {
    found.terms.insert(found.terms.end(), numbers.begin(), numbers.end());
  }
  return found;
}

}  // namespace pytrace
