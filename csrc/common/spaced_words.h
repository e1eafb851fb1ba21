// The words of a text, which spaces part.
#pragma once

#include <cstdint>
#include <cstring>

namespace pytrace {

// Calls body(first, last) for each word of bytes [begin, end); empty ones, as of two spaces in a
// row, are none.
template <typename Body>
void for_words(const uint8_t* bytes, int64_t begin, int64_t end, const Body& body) {
  while (begin < end) {
    const void* space = std::memchr(bytes + begin, ' ', static_cast<size_t>(end - begin));
    const int64_t stop = space == nullptr ? end : static_cast<const uint8_t*>(space) - bytes;
    if (stop > begin) body(begin, stop);
    begin = stop + 1;
  }
}

}  // namespace pytrace
