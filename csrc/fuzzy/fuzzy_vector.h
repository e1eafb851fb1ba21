// The vector half of the fuzzy kernel: what is compiled once per instruction set.
#pragma once

#include <cstdint>

namespace pytrace {

// How often each of 64 classes of characters (the lowest six bits of their code points) stands in a
// text. The sum of two bags' minima bounds the LCS of their texts from above: characters that share
// a class only raise it.
struct alignas(64) FuzzyBag {
  uint8_t counts[64];
};

// The shortened windows that count: those at the text's beginning, at its end, or both.
inline constexpr int kFuzzyPrefixes = 1;
inline constexpr int kFuzzySuffixes = 2;

// The best window of a needle of m characters: its ratio is 200 * lcs / (m + length).
struct FuzzyWindow {
  int64_t lcs = 0;
  int64_t length = 0;
};

// The loops for needles of at most 8 * sizeof(Mask) characters. Bit r of a mask says that character
// r of the needle is the character that the mask belongs to.
template <typename Mask>
struct FuzzyLanes {
  // lcs[w] = LCS of a needle of `steps` characters with the characters whose masks are masks[w .. w
  // + steps - 1], for every w in [0, windows). Reads masks and writes lcs up to `slack` entries
  // further than that needs.
  void (*windows)(const Mask* masks, int64_t windows, int64_t steps, Mask* lcs);

  // The best of all whole windows, and of the shortened ones of `ends`, of a needle of m characters
  // beside n >= m characters: `masks` are theirs, and `lcs` the n - m + 1 counts of the whole
  // windows.
  FuzzyWindow (*best)(const Mask* lcs, const Mask* masks, int64_t n, int64_t m, int ends);

  // lcs[k] = LCS of needle k of a pack with a text of n characters; rows[i] is the number of the
  // table row of character i, and a row holds one mask for each of the pack's needles. A pack is
  // `pack` needles wide, or `narrow` for narrow_pack().
  void (*pack)(const Mask* table, const uint32_t* rows, int64_t n, Mask* lcs);
  void (*narrow_pack)(const Mask* table, const uint32_t* rows, int64_t n, Mask* lcs);

  int64_t pack_size;
  int64_t narrow_size;
  int64_t slack;
};

struct FuzzyVector {
  FuzzyLanes<uint8_t> lanes8;
  FuzzyLanes<uint16_t> lanes16;
  FuzzyLanes<uint32_t> lanes32;
  FuzzyLanes<uint64_t> lanes64;

  // scores[k] = 100 * (1 - distance / total) with total = sizes[k] + n and distance = total - 2
  // lcs[k]; 100 for total 0. If `percent`, rounded as 100 - 100 * distance / total is.
  void (*scores8)(const uint8_t* lcs, const int32_t* sizes, int64_t n, int64_t count, bool percent,
                  double* scores);
  void (*scores16)(const uint16_t* lcs, const int32_t* sizes, int64_t n, int64_t count,
                   bool percent, double* scores);
  void (*scores32)(const uint32_t* lcs, const int32_t* sizes, int64_t n, int64_t count,
                   bool percent, double* scores);
  void (*scores64)(const uint64_t* lcs, const int32_t* sizes, int64_t n, int64_t count,
                   bool percent, double* scores);

  // Combs the strands of a needle (given backwards, m symbols) and a text (n symbols) through each
  // other. On return `below[j]` is the strand that leaves at the bottom of column j, where strands
  // 0 to m - 1 came in at the left, the last row's first, and strand m + j at the top of column j.
  // `left` is scratch of m entries. Type int16_t needs m + n below 2^15.
  void (*comb16)(const int16_t* backwards, int64_t m, const int16_t* text, int64_t n, int16_t* left,
                 int16_t* below);
  void (*comb32)(const int32_t* backwards, int64_t m, const int32_t* text, int64_t n, int32_t* left,
                 int32_t* below);
  int64_t comb_slack;

  // bounds[k] = sum of the minima of `needle`, which counts 255 characters at most, and bags[k].
  void (*bag_bounds)(const FuzzyBag& needle, const FuzzyBag* bags, int64_t count, uint8_t* bounds);
};

namespace baseline {
const FuzzyVector& fuzzy_vector();
}
namespace avx2 {
const FuzzyVector& fuzzy_vector();
}
namespace avx512 {
const FuzzyVector& fuzzy_vector();
}

}  // namespace pytrace
