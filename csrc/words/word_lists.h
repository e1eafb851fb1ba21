// The words of texts as numbers, and the postings of words turned around into the words of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "common/views.h"

namespace pytrace {

struct NumberedWords {
  std::vector<uint32_t> ids;      // of the words of all texts, in order
  std::vector<uint32_t> lengths;  // how many each text has
  std::vector<uint8_t> bytes;     // each distinct word once, in the order of their numbers
  std::vector<int64_t> offsets;
};

// Numbers the words of texts, which spaces part, from 0 as they first come. Time O(bytes), one
// look-up a word in a table with open addressing; what has the same hash is compared byte by byte.
// Throws std::length_error for more distinct words than 32 bits number.
NumberedWords number_words(const Strings& texts);

struct RowTerms {
  std::vector<uint16_t> steps;
  std::vector<uint32_t> ends;  // of each row's steps
};

// Turns the postings of terms (term t has rows[starts[t]] to rows[starts[t + 1]]) into the terms of
// each of `count` rows, numbered from `first` and rising. Only what each adds to the one before is
// kept, the first of a row to 0; where that is `far` or more, `far` stands before it as often as it
// goes into it. Time O(postings). Throws std::invalid_argument where postings do not lie within
// `rows`, or rows within `count`.
RowTerms turn_postings(Span<const uint16_t> rows, Span<const uint32_t> starts, int64_t count,
                       int64_t first, uint16_t far);

struct TermLists {
  std::vector<int64_t> offsets;
  std::vector<int32_t> terms;
};

// What is known of the terms of a part's rows: the steps of row r stand from starts[r] to
// starts[r + 1], and a term's number among those of all parts is numbers[term].
struct RowTermsPart {
  Span<const uint16_t> steps;
  Span<const uint32_t> starts;
  Span<const int32_t> numbers;
};

// The other way: the numbers of the terms of some rows, number i of which is rows[i] of
// parts[owners[i]]. What does not lie within the arrays, as in a damaged file, is left out. Throws
// std::invalid_argument where there is no such row.
TermLists terms_of_rows(const std::vector<RowTermsPart>& parts, Span<const int64_t> owners,
                        Span<const int64_t> rows, uint16_t far, int threads);

}  // namespace pytrace
