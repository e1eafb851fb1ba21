// Hashes of words that are stored in files: BLAKE2b of their bytes, 64 bits of it, the same on
// every machine (Saarinen and Aumasson, RFC 7693, 2015; digests of 8 bytes, no key). Any two of a
// million words share one with a chance of 3 in 10^8. Some 150 ns a word.
#pragma once

#include <cstdint>
#include <vector>

#include "common/views.h"

namespace pytrace {

// Fills hashes, [texts], each of a whole text.
void hash_texts(const Strings& texts, int threads, uint64_t* hashes);

struct HashedWords {
  std::vector<int64_t> offsets;  // of each text
  std::vector<uint64_t> hashes;
};

// Hashes of the words of texts, which spaces part: each once a text, in the order in which they
// first stand there. The words of a text are compared with each other: these are names.
HashedWords hash_words(const Strings& texts, int threads);

}  // namespace pytrace
