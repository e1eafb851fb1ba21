// Alignment along anti-diagonals in vectors of whole numbers: the part of align.h that is compiled
// per instruction set.
//
// All cells of an anti-diagonal i + j = d depend on d - 1 and d - 2 alone, so they are computed
// side by side. Row d of a table holds diagonal d, indexed by i; `b` is stored reversed, so that
// the symbols that meet on a diagonal are two contiguous loads. A cell costs 5 loads, 1 store and
// about 8 operations for as many cells as a register has lanes.
#pragma once

#include <cstdint>

namespace pytrace {

// Rows may be overrun by less than one vector on the right; 64 bytes is the widest.
inline constexpr int64_t kDiagonalPadding = 64;

// T is int16_t or int32_t. Tables hold `rows` diagonals of `stride` values, the first
// `kDiagonalPadding / sizeof(T)` of which are padding before i = 0. With rows == n + m + 1 every
// diagonal is kept (diagonal d in row d); with rows == 3 they rotate (diagonal d in row d % 3).
template <typename T>
struct DiagonalProblem {
  const T* a;           // n symbols, readable for one vector beyond
  const T* b_reversed;  // m symbols, last first, readable for one vector beyond
  int64_t n;
  int64_t m;
  T match;
  T mismatch;
  T gap;
  T gap_open;
  T lowest;  // below any score, and no sum of it overflows
  T* best;   // table of best scores
  T* up;     // affine only: best score of a path that ends in a blank of b
  T* left;   // affine only: best score of a path that ends in a blank of a
  int64_t rows;
  int64_t stride;
};

#define PYTRACE_DECLARE_DIAGONALS(target)                       \
  namespace target {                                            \
  void fill_diagonals(const DiagonalProblem<int16_t>& problem); \
  void fill_diagonals(const DiagonalProblem<int32_t>& problem); \
  }
PYTRACE_DECLARE_DIAGONALS(baseline)
PYTRACE_DECLARE_DIAGONALS(avx2)
PYTRACE_DECLARE_DIAGONALS(avx512)
#undef PYTRACE_DECLARE_DIAGONALS

}  // namespace pytrace
