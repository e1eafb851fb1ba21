// Global alignment (Needleman & Wunsch, 1970) of sequences of int32 symbols.
//
// An alignment is a list of columns: a symbol of `a` beside a symbol of `b`, or one of either
// beside a blank. It scores the sum of its paired columns plus, for each maximal run of L blanks in
// one sequence, gap_open + (L - 1) * gap (gap_open == gap: linear gaps; otherwise affine, Gotoh
// 1982). The best score is found by dynamic programming in O(n * m) time.
//
// Ties. The path is read from the end; where several steps reach a cell with the same score,
// diagonal (a pair) is taken before up (a symbol of `a` beside a blank), up before left (a symbol
// of `b` beside a blank), and the opening of a gap before its extension. The same path comes back
// whatever the size, the algorithm, the instruction set or the thread.
//
// Which algorithm runs:
// - whole-number parameters: anti-diagonals in vectors of int16 or int32 (exact: the narrowest type
// that cannot
//   overflow is used), linear memory for the score alone;
// - anything else: row by row in double;
// - with traceback, while the table of scores fits `trace_bytes`, it is kept and read back; beyond,
// divide and conquer
//   in linear memory: the lower half of the rows carries, with each cell, where its path crossed
//   the middle row (Powell, Allison & Dix 1999). Unlike Hirschberg's, which joins two half scores
//   and so loses the order of ties, it finds the very same path as the full table, for affine gaps
//   too. It costs about twice the cells, as Hirschberg's does.
#pragma once

#include <cstdint>
#include <vector>

#include "common/views.h"

namespace pytrace {

// The score of a pair of symbols, as a C function (numba.cfunc, ctypes). Called from any thread.
using PairFunction = double (*)(int32_t, int32_t);

// How pairs and gaps score. The first of `function` and `matrix` that is set decides for pairs;
// else match/mismatch.
struct Scoring {
  double match = 1.0;
  double mismatch = -1.0;
  double gap = -1.0;       // each further blank of a run
  double gap_open = -1.0;  // the first blank of a run; never above `gap`
  Matrix<const double> matrix;
  bool by_position = false;  // matrix[i, j] scores a[i] beside b[j]; otherwise matrix[a[i], b[j]]
  PairFunction function = nullptr;

  bool affine() const { return gap_open != gap; }
};

// No |score| may be above this, so that no sum of them overflows. -inf is allowed in a matrix:
// "never pair these".
inline constexpr double kLargestScore = 1e150;

// Default size of the table that traceback keeps: a few times the outer cache, far below any
// machine's memory.
inline constexpr int64_t kTraceBytes = int64_t{64} << 20;

// One column of an alignment.
enum Step : uint8_t { kPair = 0, kUp = 1, kLeft = 2 };

struct AlignmentPath {
  double score = 0.0;
  int64_t matches = 0;      // paired columns of equal symbols
  std::vector<Step> steps;  // from the first column to the last
};

// The best score alone: O(n * m) time, O(n + m) memory.
double alignment_score(Span<const int32_t> a, Span<const int32_t> b, const Scoring& scoring);

// The best alignment under the tie order above.
AlignmentPath align(Span<const int32_t> a, Span<const int32_t> b, const Scoring& scoring,
                    int64_t trace_bytes = kTraceBytes);

// Levenshtein distance by Myers' bit vectors in blocks of 64 (Myers 1999; Hyyro 2003): O(n * m /
// 64).
int64_t edit_distance(Span<const int32_t> a, Span<const int32_t> b);

// Sequence i is values[offsets[i] : offsets[i + 1]].
struct RaggedSymbols {
  Span<const int32_t> values;
  Span<const int64_t> offsets;

  int64_t size() const { return offsets.size - 1; }
  Span<const int32_t> operator[](int64_t i) const {
    return {values.data + offsets[i], offsets[i + 1] - offsets[i]};
  }
};

// What align_batch fills; every span has one value a candidate. `steps`, if given, gets every best
// path.
struct BatchAlignment {
  Span<int64_t> best;     // the best reference, -1 without references; ties: the lowest
  Span<double> scores;    // -inf without references
  Span<int64_t> matches;  // paired columns of equal symbols
  Span<int64_t> lengths;  // columns of the alignment
  std::vector<std::vector<Step>>* steps = nullptr;
};

// Aligns candidate i with references[groups[i] : groups[i + 1]] and keeps the best. Candidates run
// in parallel.
void align_batch(const RaggedSymbols& candidates, const RaggedSymbols& references,
                 Span<const int64_t> groups, const Scoring& scoring, int threads,
                 const BatchAlignment& out);

}  // namespace pytrace
