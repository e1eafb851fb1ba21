// Exact look-up of many names in many texts, the longest first.
//
// Names and texts are words with single spaces between them. A name is known by a hash of 64 bits
// of its words: each word's by FNV-1a (Fowler, Noll and Vo) with the finaliser of splitmix64
// (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), folded from left
// to right, so that one more word costs one step. They are stored in files: the same on every
// machine. The names of a table lie in the order of their hashes, and beside them, for the first
// word of names, how many words such names have: a word of a text at which no name begins is passed
// over after one look-up, and elsewhere only those lengths are tried. What has the right hash is
// compared byte by byte, so that names that share one are told apart.
//
// Texts of few words search the sorted hashes where they lie, O(log names) a look-up, which may be
// a mapped file. For many words the hashes are first put into tables with open addressing, O(1) a
// look-up. Results are the same, whatever the batch and the threads.
#pragma once

#include <cstdint>
#include <vector>

#include "common/views.h"

namespace pytrace {

// Names and first words of more words than a mask has bits are not looked for.
inline constexpr int kLongestName = 64;

// `hashes` rise; `names` are in their order. `firsts` are the hashes of names' first words, rising,
// and bit i of lengths[j] tells that a name which begins with word j has i + 1 words.
struct NameTable {
  Span<const uint64_t> hashes;
  Strings names;
  Span<const uint64_t> firsts;
  Span<const uint64_t> lengths;
};

struct NameHits {
  std::vector<int64_t> offsets;  // of each text
  std::vector<int64_t> names;    // places in the table
  std::vector<int64_t> starts;   // the first word, within the text
  std::vector<int64_t> ends;     // behind the last
};

// A table that is made, each name once, and the row in it of each name that was given.
struct BuiltNames {
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> bytes;
  std::vector<int64_t> offsets;
  std::vector<uint64_t> firsts;
  std::vector<uint64_t> lengths;
  std::vector<int64_t> rows;
};

// Names that share a hash stand by their bytes, whatever order they were given in; spaces beside
// those between words are left out. Time O(names * log(names)). Throws std::invalid_argument for a
// name of no word, or of more than kLongestName.
BuiltNames build_names(const Strings& names, int threads);

// At each word the longest name that begins there is taken, and the search goes on behind it.
// `index` says whether tables are built first; both ways find the same. Throws
// std::invalid_argument where the offsets of names do not lie within their bytes.
NameHits find_names(const NameTable& table, const Strings& texts, bool index, int threads);

}  // namespace pytrace
