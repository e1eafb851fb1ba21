#include "align/align.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "align/align_check.h"
#include "align/align_vector.h"
#include "common/dispatch.h"
#include "common/parallel.h"

namespace pytrace {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// --- What a pair scores: one callable a kind, so that the inner loops are compiled for each.
// -----------------------

struct EqualPairs {
  const int32_t* a;
  const int32_t* b;
  double match;
  double mismatch;
  double operator()(int64_t i, int64_t j) const { return a[i] == b[j] ? match : mismatch; }
};

struct PositionPairs {
  Matrix<const double> matrix;
  double operator()(int64_t i, int64_t j) const { return matrix.row(i)[j]; }
};

struct SymbolPairs {
  const int32_t* a;
  const int32_t* b;
  Matrix<const double> matrix;
  double operator()(int64_t i, int64_t j) const { return matrix.row(a[i])[b[j]]; }
};

struct FunctionPairs {
  const int32_t* a;
  const int32_t* b;
  PairFunction function;
  double operator()(int64_t i, int64_t j) const {
    const double value = function(a[i], b[j]);
    if (value <= kLargestScore && (value >= -kLargestScore || value == kNever)) return value;
    fail("score(" + to_text(a[i]) + ", " + to_text(b[j]) + ") returned " + number_text(value) +
         "; it must return a number up to 1e150, or -inf to never pair the two");
  }
};

// Calls body with the callable for these sequences. A function is asked once for each pair where
// its answers fit `bytes`, because a call costs more than a load and a step is compared up to three
// times.
template <typename Body>
auto with_pairs(Span<const int32_t> a, Span<const int32_t> b, const Scoring& scoring, int64_t bytes,
                std::vector<double>* answers, const Body& body) {
  if (scoring.function != nullptr) {
    const FunctionPairs pairs{a.data, b.data, scoring.function};
    if (b.size > 0 && a.size > bytes / 8 / b.size) return body(pairs);
    answers->resize(static_cast<size_t>(a.size * b.size));
    for (int64_t i = 0; i < a.size; ++i) {
      for (int64_t j = 0; j < b.size; ++j) {
        (*answers)[static_cast<size_t>(i * b.size + j)] = pairs(i, j);
      }
    }
    return body(PositionPairs{{answers->data(), a.size, b.size, b.size}});
  }
  if (scoring.matrix.data != nullptr) {
    if (scoring.by_position) return body(PositionPairs{scoring.matrix});
    return body(SymbolPairs{a.data, b.data, scoring.matrix});
  }
  return body(EqualPairs{a.data, b.data, scoring.match, scoring.mismatch});
}

// --- Rows in double.
// ----------------------------------------------------------------------------------------------

// A cell of the table is reached in one of three states: its best score, the best that ends in a
// blank of b (up), and the best that ends in a blank of a (left). With linear gaps only the first
// exists.
enum State : int { kBest = 0, kUpState = 1, kLeftState = 2 };

struct Place {
  int64_t i = 0;
  int64_t j = 0;
  State state = kBest;
};

// A stretch of the table: paths run from `start`, which is worth `value`, to `end`.
struct Stretch {
  Place start;
  double value = 0.0;
  Place end;
};

struct Rows {
  std::vector<double> best;
  std::vector<double> up;
  std::vector<double> left;

  void resize(int64_t size, bool affine) {
    if (static_cast<int64_t>(best.size()) < size) best.resize(static_cast<size_t>(size));
    if (affine && static_cast<int64_t>(up.size()) < size) {
      up.resize(static_cast<size_t>(size));
      left.resize(static_cast<size_t>(size));
    }
  }
};

// The row of the start: only moves to the left-hand symbols' side.
template <bool kAffine>
void first_row(const Stretch& stretch, const Scoring& scoring, double* best, double* up,
               double* left) {
  const int64_t width = stretch.end.j - stretch.start.j + 1;
  if constexpr (kAffine) {
    best[0] = stretch.start.state == kBest ? stretch.value : kNever;
    up[0] = stretch.start.state == kUpState ? stretch.value : kNever;
    left[0] = stretch.start.state == kLeftState ? stretch.value : kNever;
    for (int64_t j = 1; j < width; ++j) {
      up[j] = kNever;
      left[j] = std::max(best[j - 1] + scoring.gap_open, left[j - 1] + scoring.gap);
      best[j] = left[j];
    }
  } else {
    best[0] = stretch.value;
    for (int64_t j = 1; j < width; ++j) best[j] = best[j - 1] + scoring.gap;
  }
}

// Row i from row i - 1; the arrays begin at the stretch's first column. In and out may be the same
// arrays.
template <bool kAffine, typename Pairs>
void next_row(const Stretch& stretch, const Scoring& scoring, const Pairs& pairs, int64_t i,
              const double* best1, const double* up1, const double* left1, double* best, double* up,
              double* left) {
  const int64_t first = stretch.start.j;
  const int64_t width = stretch.end.j - first + 1;
  const double gap = scoring.gap;
  const double open = scoring.gap_open;
  double diagonal = best1[0];
  if constexpr (kAffine) {
    const double from_up = std::max(best1[0] + open, up1[0] + gap);
    up[0] = from_up;
    left[0] = kNever;
    best[0] = from_up;
    double best_left = from_up;
    double run_left = kNever;
    for (int64_t j = 1; j < width; ++j) {
      const double pair = diagonal + pairs(i - 1, first + j - 1);
      diagonal = best1[j];
      const double above = std::max(diagonal + open, up1[j] + gap);
      run_left = std::max(best_left + open, run_left + gap);
      best_left = std::max(pair, std::max(above, run_left));
      up[j] = above;
      left[j] = run_left;
      best[j] = best_left;
    }
  } else {
    (void)up1;
    (void)left1;
    (void)up;
    (void)left;
    double best_left = diagonal + gap;
    best[0] = best_left;
    for (int64_t j = 1; j < width; ++j) {
      const double pair = diagonal + pairs(i - 1, first + j - 1);
      diagonal = best1[j];
      best_left = std::max(std::max(pair, diagonal + gap), best_left + gap);
      best[j] = best_left;
    }
  }
}

// Reads a path back from `end` to `start`, last column first. `cell(state, i, j)` gives a score of
// the table and `pair(i, j)` the score of a[i - 1] beside b[j - 1], in the arithmetic that filled
// it, so that equality is exact. The borders are checked before scores, so that even a score
// function that changes its mind yields an alignment.
template <bool kAffine, typename Value, typename Cell, typename Pair>
void read_back(const Place& start, const Place& end, Value gap, Value open, const Cell& cell,
               const Pair& pair, std::vector<Step>* reversed) {
  int64_t i = end.i;
  int64_t j = end.j;
  State state = end.state;
  while (i > start.i || j > start.j) {
    if (state == kBest) {
      const Value here = cell(kBest, i, j);
      if (i > start.i && j > start.j && here == cell(kBest, i - 1, j - 1) + pair(i, j)) {
        reversed->push_back(kPair);
        --i;
        --j;
        continue;
      }
      if constexpr (kAffine) {
        state =
            i > start.i && (j == start.j || here == cell(kUpState, i, j)) ? kUpState : kLeftState;
      } else if (i > start.i && (j == start.j || here == cell(kBest, i - 1, j) + gap)) {
        reversed->push_back(kUp);
        --i;
        continue;
      } else {
        reversed->push_back(kLeft);
        --j;
        continue;
      }
    }
    if ((state == kUpState && i > start.i) || j == start.j) {
      if (cell(kUpState, i, j) == cell(kBest, i - 1, j) + open) state = kBest;
      reversed->push_back(kUp);
      --i;
    } else {
      if (cell(kLeftState, i, j) == cell(kBest, i, j - 1) + open) state = kBest;
      reversed->push_back(kLeft);
      --j;
    }
  }
}

// The whole table of a stretch, kept and read back. Returns the score of its end.
template <bool kAffine, typename Pairs>
double solve_table(const Stretch& stretch, const Scoring& scoring, const Pairs& pairs, Rows* table,
                   std::vector<Step>* reversed) {
  const int64_t height = stretch.end.i - stretch.start.i + 1;
  const int64_t width = stretch.end.j - stretch.start.j + 1;
  table->resize(height * width, kAffine);
  double* const best = table->best.data();
  double* const up = table->up.data();
  double* const left = table->left.data();
  first_row<kAffine>(stretch, scoring, best, up, left);
  for (int64_t row = 1; row < height; ++row) {
    const int64_t to = row * width;
    const int64_t from = to - width;
    if constexpr (kAffine) {
      next_row<true>(stretch, scoring, pairs, stretch.start.i + row, best + from, up + from,
                     left + from, best + to, up + to, left + to);
    } else {
      next_row<false>(stretch, scoring, pairs, stretch.start.i + row, best + from, nullptr, nullptr,
                      best + to, nullptr, nullptr);
    }
  }
  const auto cell = [&](State state, int64_t i, int64_t j) {
    const int64_t at = (i - stretch.start.i) * width + (j - stretch.start.j);
    return !kAffine || state == kBest ? best[at] : state == kUpState ? up[at] : left[at];
  };
  if (reversed != nullptr) {
    read_back<kAffine>(
        stretch.start, stretch.end, scoring.gap, scoring.gap_open, cell,
        [&](int64_t i, int64_t j) { return pairs(i - 1, j - 1); }, reversed);
  }
  return cell(stretch.end.state, stretch.end.i, stretch.end.j);
}

// Where the path to a cell crossed the middle row.
struct Crossing {
  int64_t j;
  State state;
};

struct CrossingRows {
  std::vector<Crossing> best;
  std::vector<Crossing> up;
  std::vector<Crossing> left;
};

// Memory that the levels of the recursion share: a level is done with its rows before it goes
// deeper.
struct Workspace {
  Rows table;
  Rows row;
  Rows above;
  CrossingRows crossing;
};

// Divide and conquer. The lower part is read first, because paths are gathered from the end.
template <bool kAffine, typename Pairs>
double solve(const Stretch& stretch, const Scoring& scoring, const Pairs& pairs,
             int64_t trace_bytes, Workspace* space, std::vector<Step>* reversed) {
  const int64_t height = stretch.end.i - stretch.start.i + 1;
  const int64_t width = stretch.end.j - stretch.start.j + 1;
  if (height <= 2 || height <= trace_bytes / (kAffine ? 24 : 8) / width) {
    return solve_table<kAffine>(stretch, scoring, pairs, &space->table, reversed);
  }
  const int64_t middle = stretch.start.i + height / 2;
  Rows& row = space->row;
  Rows& above = space->above;
  row.resize(width, kAffine);
  above.resize(width, kAffine);
  first_row<kAffine>(stretch, scoring, row.best.data(), row.up.data(), row.left.data());
  for (int64_t i = stretch.start.i + 1; i <= middle; ++i) {
    next_row<kAffine>(stretch, scoring, pairs, i, row.best.data(), row.up.data(), row.left.data(),
                      row.best.data(), row.up.data(), row.left.data());
  }
  // Below the middle, each state also carries the crossing of its path. The middle row's scores are
  // needed once more, for the value at the crossing.
  const Rows at_middle = row;
  CrossingRows& crossing = space->crossing;
  crossing.best.resize(static_cast<size_t>(width));
  crossing.up.resize(static_cast<size_t>(kAffine ? width : 0));
  crossing.left.resize(static_cast<size_t>(kAffine ? width : 0));
  for (int64_t j = 0; j < width; ++j) {
    const auto at = static_cast<size_t>(j);
    crossing.best[at] = {stretch.start.j + j, kBest};
    if (kAffine) {
      crossing.up[at] = {stretch.start.j + j, kUpState};
      crossing.left[at] = {stretch.start.j + j, kLeftState};
    }
  }
  const double gap = scoring.gap;
  const double open = scoring.gap_open;
  for (int64_t i = middle + 1; i <= stretch.end.i; ++i) {
    std::swap(row, above);
    next_row<kAffine>(stretch, scoring, pairs, i, above.best.data(), above.up.data(),
                      above.left.data(), row.best.data(), row.up.data(), row.left.data());
    Crossing diagonal = crossing.best[0];
    for (int64_t j = 0; j < width; ++j) {
      const auto at = static_cast<size_t>(j);
      const Crossing straight = crossing.best[at];
      if constexpr (kAffine) {
        if (row.up[at] == above.best[at] + open) crossing.up[at] = straight;
        if (j > 0) {
          crossing.left[at] = row.left[at] == row.best[at - 1] + open ? crossing.best[at - 1]
                                                                      : crossing.left[at - 1];
        }
        if (j > 0 && row.best[at] == above.best[at - 1] + pairs(i - 1, stretch.start.j + j - 1)) {
          crossing.best[at] = diagonal;
        } else {
          crossing.best[at] =
              j == 0 || row.best[at] == row.up[at] ? crossing.up[at] : crossing.left[at];
        }
      } else if (j > 0) {
        if (row.best[at] == above.best[at - 1] + pairs(i - 1, stretch.start.j + j - 1)) {
          crossing.best[at] = diagonal;
        } else if (row.best[at] != above.best[at] + gap) {
          crossing.best[at] = crossing.best[at - 1];
        }
      }
      diagonal = straight;
    }
  }
  const auto last = static_cast<size_t>(width - 1);
  const auto of_state = [last](State state, const auto& rows) {
    return state == kBest ? rows.best[last] : state == kUpState ? rows.up[last] : rows.left[last];
  };
  const double score = of_state(stretch.end.state, row);
  const Crossing crossed = of_state(stretch.end.state, crossing);
  const Place half{middle, crossed.j, crossed.state};
  const auto column = static_cast<size_t>(crossed.j - stretch.start.j);
  const double value = crossed.state == kBest      ? at_middle.best[column]
                       : crossed.state == kUpState ? at_middle.up[column]
                                                   : at_middle.left[column];
  solve<kAffine>({half, value, stretch.end}, scoring, pairs, trace_bytes, space, reversed);
  solve<kAffine>({stretch.start, stretch.value, half}, scoring, pairs, trace_bytes, space,
                 reversed);
  return score;
}

template <typename Pairs>
double solve_rows(int64_t n, int64_t m, const Scoring& scoring, const Pairs& pairs,
                  int64_t trace_bytes, Workspace* space, std::vector<Step>* reversed) {
  const Stretch whole{{0, 0, kBest}, 0.0, {n, m, kBest}};
  if (reversed != nullptr) {
    return scoring.affine() ? solve<true>(whole, scoring, pairs, trace_bytes, space, reversed)
                            : solve<false>(whole, scoring, pairs, trace_bytes, space, reversed);
  }
  Rows& row = space->row;
  row.resize(m + 1, scoring.affine());
  double* const best = row.best.data();
  double* const up = row.up.data();
  double* const left = row.left.data();
  if (scoring.affine()) {
    first_row<true>(whole, scoring, best, up, left);
    for (int64_t i = 1; i <= n; ++i) {
      next_row<true>(whole, scoring, pairs, i, best, up, left, best, up, left);
    }
  } else {
    first_row<false>(whole, scoring, best, up, left);
    for (int64_t i = 1; i <= n; ++i) {
      next_row<false>(whole, scoring, pairs, i, best, up, left, best, up, left);
    }
  }
  return best[m];
}

// --- Anti-diagonals in whole numbers.
// -----------------------------------------------------------------------------

// Below this many cells the set-up of the vectors costs more than they save.
constexpr int64_t kSmallTable = 256;

// The largest |score| that a path may reach in T, leaving room for `lowest` and one more step below
// it.
template <typename T>
constexpr int64_t kRange = std::numeric_limits<T>::max() / 2 - 1000;
template <typename T>
constexpr T kLowest = static_cast<T>(-std::numeric_limits<T>::max() / 2 - 600);

void fill_diagonals(const DiagonalProblem<int16_t>& problem) {
  using Function = void (*)(const DiagonalProblem<int16_t>&);
#if defined(__x86_64__)
  select_isa<Function>(baseline::fill_diagonals, avx2::fill_diagonals,
                       avx512::fill_diagonals)(problem);
#else
  select_isa<Function>(baseline::fill_diagonals, nullptr, nullptr)(problem);
#endif
}

void fill_diagonals(const DiagonalProblem<int32_t>& problem) {
  using Function = void (*)(const DiagonalProblem<int32_t>&);
#if defined(__x86_64__)
  select_isa<Function>(baseline::fill_diagonals, avx2::fill_diagonals,
                       avx512::fill_diagonals)(problem);
#else
  select_isa<Function>(baseline::fill_diagonals, nullptr, nullptr)(problem);
#endif
}

// Uninitialised memory: a table of diagonals is written before it is read wherever a value counts.
template <typename T>
std::unique_ptr<T[]> allocate(int64_t size) {
  return std::unique_ptr<T[]>(new T[static_cast<size_t>(size)]);
}

template <typename T>
double solve_diagonals(Span<const int32_t> a, Span<const int32_t> b, const Scoring& scoring,
                       std::vector<Step>* reversed) {
  constexpr int64_t kPadding = kDiagonalPadding / static_cast<int64_t>(sizeof(T));
  const int64_t n = a.size;
  const int64_t m = b.size;
  const bool affine = scoring.affine();
  std::vector<T> symbols(static_cast<size_t>(n + m + 2 * kPadding));
  T* const a_symbols = symbols.data();
  T* const b_reversed = symbols.data() + n + kPadding;
  for (int64_t i = 0; i < n; ++i) a_symbols[i] = static_cast<T>(a[i]);
  for (int64_t j = 0; j < m; ++j) b_reversed[j] = static_cast<T>(b[m - 1 - j]);

  const int64_t stride = n + 1 + 2 * kPadding;
  const int64_t rows = reversed != nullptr ? n + m + 1 : 3;
  const int64_t size = rows * stride;
  const auto memory = allocate<T>(size * (affine ? 3 : 1));
  if (rows == 3) std::fill_n(memory.get(), size * (affine ? 3 : 1), T{0});
  T* const best = memory.get();
  T* const up = affine ? best + size : nullptr;
  T* const left = affine ? best + 2 * size : nullptr;
  const T gap = static_cast<T>(scoring.gap);
  const T open = static_cast<T>(scoring.gap_open);
  fill_diagonals(DiagonalProblem<T>{a_symbols, b_reversed, n, m, static_cast<T>(scoring.match),
                                    static_cast<T>(scoring.mismatch), gap, open, kLowest<T>, best,
                                    up, left, rows, stride});
  if (reversed == nullptr) return best[((n + m) % 3) * stride + kPadding + n];

  const auto cell = [&](State state, int64_t i, int64_t j) {
    const int64_t at = (i + j) * stride + kPadding + i;
    return static_cast<int>(state == kBest || !affine ? best[at]
                            : state == kUpState       ? up[at]
                                                      : left[at]);
  };
  const auto pair = [&](int64_t i, int64_t j) {
    return static_cast<int>(a[i - 1] == b[j - 1] ? scoring.match : scoring.mismatch);
  };
  if (affine) {
    read_back<true, int>({0, 0, kBest}, {n, m, kBest}, gap, open, cell, pair, reversed);
  } else {
    read_back<false, int>({0, 0, kBest}, {n, m, kBest}, gap, open, cell, pair, reversed);
  }
  return cell(kBest, n, m);
}

template <typename T>
bool symbols_fit(Span<const int32_t> symbols) {
  int32_t low = 0;
  int32_t high = 0;
  for (int32_t symbol : symbols) {
    low = std::min(low, symbol);
    high = std::max(high, symbol);
  }
  return low >= std::numeric_limits<T>::min() && high <= std::numeric_limits<T>::max();
}

// The best score, and with `reversed` its path from the end.
double solve_pair(Span<const int32_t> a, Span<const int32_t> b, const Scoring& scoring,
                  int64_t largest, int64_t trace_bytes, Workspace* space,
                  std::vector<double>* answers, std::vector<Step>* reversed) {
  if (reversed != nullptr) reversed->clear();
  if (largest >= 0 && b.size > 0 && a.size >= kSmallTable / b.size) {
    // (n + m + 2) steps bound every cell, also those that no best path visits.
    const int64_t bound = (a.size + b.size + 2) * largest;
    const int64_t cells =
        (a.size + b.size + 1) * (a.size + 1 + kDiagonalPadding) * (scoring.affine() ? 3 : 1);
    if (bound <= kRange<int16_t> && (reversed == nullptr || cells <= trace_bytes / 2) &&
        symbols_fit<int16_t>(a) && symbols_fit<int16_t>(b)) {
      return solve_diagonals<int16_t>(a, b, scoring, reversed);
    }
    if (bound <= kRange<int32_t> && (reversed == nullptr || cells <= trace_bytes / 4)) {
      return solve_diagonals<int32_t>(a, b, scoring, reversed);
    }
  }
  return with_pairs(a, b, scoring, trace_bytes, answers, [&](const auto& pairs) {
    return solve_rows(a.size, b.size, scoring, pairs, trace_bytes, space, reversed);
  });
}

// --- A few whole-number steps: what most reasoning paths are.
// ------------------------------------------------------

// A path of at most this many steps fits tables on the stack.
constexpr int64_t kFewSteps = 16;

// Linear gaps alone. Row 0 and column 0 of the table stand before the borders and are below every
// score, so that the way back needs no border checks and no branch that a processor would have to
// guess.
class FewSteps {
 public:
  FewSteps(const Scoring& scoring)
      : match_(static_cast<int32_t>(scoring.match)),
        mismatch_(static_cast<int32_t>(scoring.mismatch)),
        gap_(static_cast<int32_t>(scoring.gap)) {
    std::fill(std::begin(table_[0]), std::end(table_[0]), kBelow);
    for (int i = 1; i < kSide; ++i) {
      table_[i][0] = kBelow;
      table_[1][i] = table_[i][1] = (i - 1) * gap_;
    }
  }

  int32_t fill(Span<const int32_t> a, Span<const int32_t> b) {
    const auto n = static_cast<int>(a.size);
    const auto m = static_cast<int>(b.size);
    for (int i = 0; i < n; ++i) {
      const int32_t* above = table_[i + 1] + 1;
      int32_t* row = table_[i + 2] + 1;
      const int32_t symbol = a[i];
      int32_t best = row[0];
      for (int j = 0; j < m; ++j) {
        const int32_t pair = above[j] + (symbol == b[j] ? match_ : mismatch_);
        best = std::max(std::max(pair, above[j + 1] + gap_), best + gap_);
        row[j + 1] = best;
      }
    }
    return table_[n + 1][m + 1];
  }

  // The path through the table last filled, from the end; returns its length.
  int read_back(Span<const int32_t> a, Span<const int32_t> b, Step* reversed,
                int64_t* matches) const {
    auto i = static_cast<int>(a.size);
    auto j = static_cast<int>(b.size);
    int32_t first[kSide] = {};
    int32_t second[kSide] = {};
    std::copy(a.begin(), a.end(), first + 1);
    std::copy(b.begin(), b.end(), second + 1);
    int length = 0;
    int64_t equal_pairs = 0;
    while ((i | j) != 0) {
      const int32_t here = table_[i + 1][j + 1];
      const bool equal = first[i] == second[j];
      const bool pair = here == table_[i][j] + (equal ? match_ : mismatch_);
      const bool up = here == table_[i][j + 1] + gap_;
      const int step = pair ? kPair : up ? kUp : kLeft;
      reversed[length++] = static_cast<Step>(step);
      equal_pairs += pair & equal;
      i -= step != kLeft;
      j -= step != kUp;
    }
    *matches = equal_pairs;
    return length;
  }

 private:
  static constexpr int kSide = kFewSteps + 2;
  static constexpr int32_t kBelow = std::numeric_limits<int32_t>::min() / 2;

  int32_t match_;
  int32_t mismatch_;
  int32_t gap_;
  int32_t table_[kSide][kSide];
};

// Numbers the symbols of a sequence from 0; others are -1. Small symbols, which most are, are
// looked up in a table.
class SymbolNumbers {
 public:
  explicit SymbolNumbers(Span<const int32_t> symbols) : small_(kSmall, -1) {
    for (int32_t symbol : symbols) {
      if (static_cast<uint32_t>(symbol) < kSmall) {
        int32_t& number = small_[static_cast<size_t>(symbol)];
        if (number < 0) number = static_cast<int32_t>(size_++);
      } else if (others_.try_emplace(symbol, size_).second) {
        ++size_;
      }
    }
  }

  int64_t size() const { return size_; }

  int64_t operator[](int32_t symbol) const {
    if (static_cast<uint32_t>(symbol) < kSmall) return small_[static_cast<size_t>(symbol)];
    const auto found = others_.find(symbol);
    return found == others_.end() ? -1 : found->second;
  }

 private:
  static constexpr uint32_t kSmall = 512;
  std::vector<int32_t> small_;
  std::unordered_map<int32_t, int64_t> others_;
  int64_t size_ = 0;
};

int64_t count_matches(Span<const int32_t> a, Span<const int32_t> b,
                      const std::vector<Step>& reversed) {
  int64_t matches = 0;
  int64_t i = a.size;
  int64_t j = b.size;
  for (Step step : reversed) {
    if (step != kLeft) --i;
    if (step != kUp) --j;
    if (step == kPair && a[i] == b[j]) ++matches;
  }
  return matches;
}

}  // namespace

double alignment_score(Span<const int32_t> a, Span<const int32_t> b, const Scoring& scoring) {
  required_isa();  // whichever way this pair will go
  Workspace space;
  std::vector<double> answers;
  // Memory stays linear, so the function's answers are not kept.
  return solve_pair(a, b, scoring, largest_whole(scoring), 0, &space, &answers, nullptr);
}

AlignmentPath align(Span<const int32_t> a, Span<const int32_t> b, const Scoring& scoring,
                    int64_t trace_bytes) {
  required_isa();
  Workspace space;
  std::vector<double> answers;
  AlignmentPath path;
  path.score =
      solve_pair(a, b, scoring, largest_whole(scoring), trace_bytes, &space, &answers, &path.steps);
  path.matches = count_matches(a, b, path.steps);
  std::reverse(path.steps.begin(), path.steps.end());
  return path;
}

int64_t edit_distance(Span<const int32_t> a, Span<const int32_t> b) {
  // What both ends share costs nothing.
  while (a.size > 0 && b.size > 0 && a[0] == b[0]) {
    ++a.data, --a.size;
    ++b.data, --b.size;
  }
  while (a.size > 0 && b.size > 0 && a[a.size - 1] == b[b.size - 1]) --a.size, --b.size;
  if (a.size > b.size) std::swap(a, b);
  if (a.size == 0) return b.size;

  // Bit i of word w says something of row 64 w + i: where its symbol of `a` stands, and whether the
  // distance rises or falls by one from the row above in the present column.
  const int64_t words = (a.size + 63) / 64;
  const SymbolNumbers numbers(a);
  std::vector<uint64_t> masks(static_cast<size_t>(numbers.size() * words));
  for (int64_t i = 0; i < a.size; ++i) {
    masks[static_cast<size_t>(numbers[a[i]] * words + i / 64)] |= uint64_t{1} << (i % 64);
  }
  const std::vector<uint64_t> nowhere(static_cast<size_t>(words));
  std::vector<uint64_t> rises(static_cast<size_t>(words), ~uint64_t{0});
  std::vector<uint64_t> falls(static_cast<size_t>(words));
  const uint64_t last_row = uint64_t{1} << ((a.size - 1) % 64);
  int64_t distance = a.size;
  for (int64_t j = 0; j < b.size; ++j) {
    const int64_t number = numbers[b[j]];
    const uint64_t* mask = number < 0 ? nowhere.data() : masks.data() + number * words;
    uint64_t rise_in = 1;  // the top row rises by one a column
    uint64_t fall_in = 0;
    for (int64_t w = 0; w < words; ++w) {
      const auto at = static_cast<size_t>(w);
      const uint64_t rise = rises[at];
      const uint64_t fall = falls[at];
      const uint64_t carried = mask[w] | fall_in;
      const uint64_t same = (((carried & rise) + rise) ^ rise) | carried;
      uint64_t rise_out = fall | ~(same | rise);
      uint64_t fall_out = rise & same;
      if (w == words - 1) {
        distance += (rise_out & last_row) != 0;
        distance -= (fall_out & last_row) != 0;
      }
      const uint64_t rise_top = rise_out >> 63;
      const uint64_t fall_top = fall_out >> 63;
      rise_out = (rise_out << 1) | rise_in;
      fall_out = (fall_out << 1) | fall_in;
      const uint64_t crossed = mask[w] | fall;
      rises[at] = fall_out | ~(crossed | rise_out);
      falls[at] = rise_out & crossed;
      rise_in = rise_top;
      fall_in = fall_top;
    }
  }
  return distance;
}

void align_batch(const RaggedSymbols& candidates, const RaggedSymbols& references,
                 Span<const int64_t> groups, const Scoring& scoring, int threads,
                 const BatchAlignment& out) {
  required_isa();
  const int64_t largest = largest_whole(scoring);
  // Small paths take well under a microsecond: chunks of 64 keep the scheduling below a hundredth.
  parallel_for(candidates.size(), 64, threads, [&](int64_t begin, int64_t end, int) {
    Workspace space;
    std::vector<double> answers;
    std::vector<Step> reversed;
    const bool whole_linear = largest >= 0 && !scoring.affine();
    FewSteps few(whole_linear ? scoring : Scoring{});
    Step steps[2 * kFewSteps];
    for (int64_t c = begin; c < end; ++c) {
      const Span<const int32_t> a = candidates[c];
      const int64_t first = groups[c];
      const int64_t last = groups[c + 1];
      int64_t best = -1;
      double score = kNever;
      int64_t longest = whole_linear ? a.size : kFewSteps + 1;
      for (int64_t r = first; r < last; ++r) longest = std::max(longest, references[r].size);
      if (longest <= kFewSteps && first < last) {
        int64_t matches = 0;
        int length = 0;
        for (int64_t r = first; r < last; ++r) {
          const double other = few.fill(a, references[r]);
          if (best >= 0 && other <= score) continue;
          best = r;
          score = other;
          length = few.read_back(a, references[r], steps, &matches);
        }
        out.best[c] = best;
        out.scores[c] = score;
        out.matches[c] = matches;
        out.lengths[c] = length;
        if (out.steps != nullptr) {
          (*out.steps)[static_cast<size_t>(c)].assign(std::make_reverse_iterator(steps + length),
                                                      std::make_reverse_iterator(steps));
        }
        continue;
      }
      if (last - first == 1) {
        best = first;
      } else {
        for (int64_t r = first; r < last; ++r) {
          const double other =
              solve_pair(a, references[r], scoring, largest, 0, &space, &answers, nullptr);
          if (best < 0 || other > score) {
            best = r;
            score = other;
          }
        }
      }
      int64_t matches = 0;
      reversed.clear();
      if (best >= 0) {
        const Span<const int32_t> b = references[best];
        score = solve_pair(a, b, scoring, largest, kTraceBytes, &space, &answers, &reversed);
        matches = count_matches(a, b, reversed);
      }
      out.best[c] = best;
      out.scores[c] = score;
      out.matches[c] = matches;
      out.lengths[c] = static_cast<int64_t>(reversed.size());
      if (out.steps != nullptr) {
        (*out.steps)[static_cast<size_t>(c)].assign(reversed.rbegin(), reversed.rend());
      }
    }
  });
}

}  // namespace pytrace
