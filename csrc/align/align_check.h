// What an alignment's parameters must be like, wherever it runs; throws std::invalid_argument
// otherwise (see align.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "align/align.h"

namespace pytrace {

inline bool whole(double value) { return value == std::floor(value) && std::fabs(value) < 1e6; }

// The largest |parameter| if all are whole numbers and pairs are judged by equality; -1 otherwise.
inline int64_t largest_whole(const Scoring& scoring) {
  if (scoring.function != nullptr || scoring.matrix.data != nullptr) return -1;
  double largest = 0.0;
  for (double value : {scoring.match, scoring.mismatch, scoring.gap, scoring.gap_open}) {
    if (!whole(value)) return -1;
    largest = std::max(largest, std::fabs(value));
  }
  return static_cast<int64_t>(largest);
}

// Throws for parameters that are not finite, too large, or where gap_open is above gap.
inline void require_scoring(const Scoring& scoring) {
  const std::pair<const char*, double> parameters[] = {{"match", scoring.match},
                                                       {"mismatch", scoring.mismatch},
                                                       {"gap", scoring.gap},
                                                       {"gap_open", scoring.gap_open}};
  for (const auto& [name, value] : parameters) {
    if (!(std::fabs(value) <= kLargestScore)) {
      fail(std::string(name) + " is " + number_text(value) +
           "; it must be a finite number of at most 1e150");
    }
  }
  if (scoring.gap_open > scoring.gap) {
    fail("gap_open (" + number_text(scoring.gap_open) + ") is above gap (" +
         number_text(scoring.gap) +
         "); the first blank of a gap must not score better than a further one");
  }
}

// Throws for NaN, +inf and too large values, with the place.
inline void require_score_matrix(Matrix<const double> matrix) {
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.cols; ++j) {
      const double value = matrix.row(i)[j];
      if (value <= kLargestScore &&
          (value >= -kLargestScore || value == -std::numeric_limits<double>::infinity()))
        continue;
      fail("score[" + to_text(i) + ", " + to_text(j) + "] is " + number_text(value) +
           "; it must be a number up to 1e150, or -inf to never pair the two");
    }
  }
}

// Throws if a symbol is outside the matrix, or its shape does not fit two sequences by position.
inline void require_symbols_in_matrix(const Scoring& scoring, Span<const int32_t> a,
                                      Span<const int32_t> b) {
  const Matrix<const double>& matrix = scoring.matrix;
  if (scoring.by_position) {
    if (matrix.rows == a.size && matrix.cols == b.size) return;
    fail("score has shape (" + to_text(matrix.rows) + ", " + to_text(matrix.cols) +
         "), but the sequences have lengths " + to_text(a.size) + " and " + to_text(b.size));
  }
  const auto check = [](Span<const int32_t> symbols, int64_t size, const char* what,
                        const char* axis) {
    for (int64_t i = 0; i < symbols.size; ++i) {
      if (symbols[i] >= 0 && symbols[i] < size) continue;
      fail(std::string("symbol ") + to_text(symbols[i]) + " at " + to_text(i) + " of " + what +
           " is outside the " + to_text(size) + " " + axis + " of score");
    }
  };
  check(a, matrix.rows, "the first sequences", "rows");
  check(b, matrix.cols, "the second sequences", "columns");
}

}  // namespace pytrace
