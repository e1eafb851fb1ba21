// Numbers the symbols of sequences, so that alignments compare int32 alone.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace pytrace {

// Numbers texts from 0 in the order of their first appearance: equal ones get equal numbers. Open
// addressing, a hash and mostly one comparison a text. Texts are not copied: they must stay where
// they are as long as the table is used.
class SymbolTable {
 public:
  // A seed that nobody can guess keeps texts from being chosen so that they collide.
  explicit SymbolTable(uint64_t seed) : seed_(seed), slots_(kFirstSlots) {}

  // `width` is the bytes of one character: texts of different widths differ.
  int32_t number(const void* data, int64_t bytes, int width) {
    const uint64_t hash = hash_of(static_cast<const uint8_t*>(data), bytes, width);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    size_t at = static_cast<size_t>(hash) & (slots_.size() - 1);
    for (; slots_[at].number >= 0; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].tag != tag) continue;
      const Symbol& symbol = symbols_[static_cast<size_t>(slots_[at].number)];
      if (symbol.bytes == bytes && symbol.width == width &&
          std::memcmp(symbol.data, data, static_cast<size_t>(bytes)) == 0) {
        return slots_[at].number;
      }
    }
    const auto number = static_cast<int32_t>(symbols_.size());
    symbols_.push_back({data, bytes, hash, width});
    slots_[at] = {tag, number};
    if (2 * symbols_.size() > slots_.size()) grow();
    return number;
  }

 private:
  static constexpr size_t kFirstSlots = 64;

  struct Symbol {
    const void* data;
    int64_t bytes;
    uint64_t hash;
    int width;
  };

  struct Slot {
    uint32_t tag = 0;
    int32_t number = -1;
  };

  // Both halves of the product of two numbers of 64 bits.
  static uint64_t folded(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{a} * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  uint64_t hash_of(const uint8_t* data, int64_t bytes, int width) const {
    uint64_t hash = seed_ ^ static_cast<uint64_t>(bytes) << 3 ^ static_cast<uint64_t>(width);
    uint64_t word;
    for (; bytes > 8; bytes -= 8, data += 8) {
      std::memcpy(&word, data, 8);
      hash = folded(hash ^ word, 0x9e3779b97f4a7c15ull);
    }
    word = 0;
    std::memcpy(&word, data, static_cast<size_t>(bytes));
    return folded(hash ^ word ^ 0xd6e8feb86659fd93ull, 0xa0761d6478bd642full ^ seed_);
  }

  void grow() {
    std::vector<Slot> slots(2 * slots_.size());
    for (size_t i = 0; i < symbols_.size(); ++i) {
      size_t at = static_cast<size_t>(symbols_[i].hash) & (slots.size() - 1);
      while (slots[at].number >= 0) at = (at + 1) & (slots.size() - 1);
      slots[at] = {static_cast<uint32_t>(symbols_[i].hash >> 32), static_cast<int32_t>(i)};
    }
    slots_.swap(slots);
  }

  uint64_t seed_;
  std::vector<Slot> slots_;
  std::vector<Symbol> symbols_;
};

}  // namespace pytrace
