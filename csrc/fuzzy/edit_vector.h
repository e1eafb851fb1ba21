// The vector half of the edit distances: what is compiled once per instruction set.
#pragma once

#include <cstdint>

namespace pytrace {

// Loops for a pack of needles of at most 8 * sizeof(Mask) characters, side by side in the lanes of
// vector registers, beside one text of n characters. Row r of a table holds one mask for each
// needle of the pack; rows[i] is the row of the text's character i. A pack is `pack` needles wide,
// or `narrow` for the functions of that name.
template <typename Mask>
struct EditLanes {
  // up[k] and down[k]: how many cells of the last column of needle k's matrix are one more, and one
  // less, than the cell above; the Levenshtein distance is n + up - down. `ends` has a bit for
  // every character of a needle. If `sizes` is given, lane k has a text of its own, of sizes[k] <=
  // n characters.
  using Levenshtein = void (*)(const Mask* table, const Mask* ends, const Mask* sizes,
                               const uint32_t* rows, int64_t n, Mask* up, Mask* down);
  Levenshtein levenshtein;
  Levenshtein narrow_levenshtein;

  // common[k]: the characters that Jaro's windows let needle k have in common with the text;
  // matching[k]: those of them that are at their place among them on both sides. A character at i
  // of the text may meet one of the needle from i - bounds[k] to i + bounds[k]; no needle meets one
  // at n or behind. If `together`, all bounds are bounds[0], which may then not fit a Mask and is
  // given by itself. `hits` is scratch of n * pack entries.
  using Jaro = void (*)(const Mask* table, const Mask* bounds, bool together, int64_t bound,
                        const uint32_t* rows, int64_t n, Mask* hits, Mask* common, Mask* matching);
  Jaro jaro;
  Jaro narrow_jaro;

  int64_t pack_size;
  int64_t narrow_size;
};

// The same for needles of `words` 64-bit words: a row holds word 0 of every needle, then word 1.
// The results are the distances' `n + up - down` as the sum up - down, and the LCS. `state` is
// scratch of 2 * words * pack_size entries.
struct EditLongLanes {
  using Levenshtein = void (*)(const uint64_t* table, const uint64_t* ends, const uint64_t* sizes,
                               int64_t words, const uint32_t* rows, int64_t n, uint64_t* state,
                               int64_t* rise);
  Levenshtein levenshtein;
  Levenshtein narrow_levenshtein;
  using Lcs = void (*)(const uint64_t* table, int64_t words, const uint32_t* rows, int64_t n,
                       uint64_t* state, int64_t* lcs);
  Lcs lcs;
  Lcs narrow_lcs;
  int64_t pack_size;
  int64_t narrow_size;
};

struct EditVector {
  EditLanes<uint8_t> lanes8;
  EditLanes<uint16_t> lanes16;
  EditLanes<uint32_t> lanes32;
  EditLanes<uint64_t> lanes64;
  EditLongLanes long_lanes;

  // scores[k] = distances[k] / most[k], or 0 where most[k] is 0; 1 less that if `similarity`.
  void (*normalized)(const int32_t* distances, const int32_t* most, int64_t count, bool similarity,
                     double* scores);

  // scores[k] = Jaro similarity of a needle of sizes[k] and a text of n characters.
  void (*jaro_scores)(const int32_t* common, const int32_t* matching, const int32_t* sizes,
                      int64_t n, int64_t count, double* scores);
};

namespace baseline {
const EditVector& edit_vector();
}
namespace avx2 {
const EditVector& edit_vector();
}
namespace avx512 {
const EditVector& edit_vector();
}

}  // namespace pytrace
