// The cells of an alignment: W lanes fill the rows of a pair, strip by strip; see align.h.
#pragma once

#include <cstdint>
#include <limits>

#include "align/align.h"
#include "cuda/device.cuh"

namespace pytrace::cuda {

// What a cell hands to the cells around it: its best score, the best that ends in a blank of b, and
// for each the matches (upper half) and columns (lower half) of its path.
template <typename Value>
struct Cell {
  Value best;
  Value up;
  unsigned long long best_path;
  unsigned long long up_path;
};

inline constexpr unsigned long long kColumn = 1;
inline constexpr unsigned long long kMatch = 1ull << 32;

template <typename Value>
struct Gaps {
  Value gap;
  Value open;
};

// Below every score, and no sum of it and a gap overflows.
template <typename Value>
inline constexpr Value kLowestOf = -std::numeric_limits<Value>::max() / 2;
template <>
inline constexpr double kLowestOf<double> = -std::numeric_limits<double>::infinity();

// std::max, which for 0 and -0 is not the card's.
template <typename Value>
__device__ __forceinline__ Value greater_of(Value a, Value b) {
  return a < b ? b : a;
}

// What pairs score.
template <typename Value>
struct EqualPairs {
  Value match;
  Value mismatch;
  __device__ Value operator()(int32_t a, int32_t b) const { return a == b ? match : mismatch; }
};

struct MatrixPairs {
  const double* scores;
  int64_t stride;
  __device__ double operator()(int32_t a, int32_t b) const { return scores[a * stride + b]; }
};

// A byte a cell says how its path came there: the state to go on in (kPair, kUp, kLeft), and
// whether the gaps that end here begin here.
inline constexpr int kStateBits = 3;
inline constexpr int kUpOpens = 4;
inline constexpr int kLeftOpens = 8;

// Directions of a strip: W bytes a step of the wavefront, one a lane.
template <int W>
__host__ __device__ inline int64_t strip_bytes(int64_t columns) {
  return (columns + W) * W;
}

// Row 0, column by column, as lane 0 of a pair's first strip comes by.
template <typename Value, bool kAffine>
class FirstRow {
 public:
  explicit __device__ FirstRow(const Gaps<Value>& gaps) : gaps_(gaps) {}

  __device__ Cell<Value> next() {
    if (column_ > 0) {
      if (kAffine) {
        left_ = greater_of<Value>(best_ + gaps_.open, left_ + gaps_.gap);
        best_ = left_;
      } else {
        best_ = best_ + gaps_.gap;
      }
    }
    return {best_, kLowestOf<Value>, static_cast<unsigned long long>(column_++), 0};
  }

 private:
  Gaps<Value> gaps_;
  Value best_ = 0;
  Value left_ = kLowestOf<Value>;
  int64_t column_ = 0;
};

// The rows (first, last] of a pair of `columns` symbols b. Row `first` is `top`, or row 0 if that
// is null. Row `last` goes to `bottom` unless that is null; then it is the last of a whole strip.
// Rows between strips go to `between` (two rows, only if there is more than one strip). Whole warps
// only; a warp's pairs run side by side, for as long as the longest of them: `most_columns`, and
// all have one strip unless W is a warp. Lanes without a pair have last == first == 0 and columns
// -1. Returns the last cell of row `last`.
template <int W, typename Value, bool kAffine, bool kDirections, typename Pairs>
__device__ Cell<Value> fill_rows(const int32_t* a, const int32_t* b, int64_t columns,
                                 int64_t most_columns, int64_t first, int64_t last,
                                 const Pairs& pairs, const Gaps<Value>& gaps,
                                 const Cell<Value>* top, Cell<Value>* bottom, Cell<Value>* between,
                                 int64_t pitch, uint8_t* directions) {
  const int lane = static_cast<int>(threadIdx.x) % W;
  Cell<Value> here{};
  int64_t start = first;
  int which = 0;
  do {
    const int64_t row = start + lane + 1;
    const bool in_strip = row <= last;
    const bool more = start + W < last;
    Cell<Value>* const below = more ? between + which * pitch : bottom;
    const int32_t symbol_a = in_strip ? a[row - 1] : 0;
    // Lane 0 of a pair without rows, too: row 0 is all that it has.
    const bool reads_top = lane == 0;
    FirstRow<Value, kAffine> first_row(gaps);
    here = {};
    Cell<Value> diagonal{};
    Value left = kLowestOf<Value>;
    unsigned long long left_path = 0;
    // The symbol and score of the next column are on their way while one is worked on.
    int32_t symbol_b = in_strip && columns > 0 ? b[0] : 0;
    Value score = in_strip && columns > 0 ? pairs(symbol_a, symbol_b) : Value{0};
    for (int64_t step = 0; step < most_columns + W; ++step) {
      const int64_t column = step - lane;
      // Lane 0 gets what is of no use to it, maybe of another pair.
      Cell<Value> above;
      above.best = __shfl_up_sync(kWholeWarp, here.best, 1);
      above.best_path = __shfl_up_sync(kWholeWarp, here.best_path, 1);
      above.up = here.up;
      above.up_path = here.up_path;
      if (kAffine) {
        above.up = __shfl_up_sync(kWholeWarp, here.up, 1);
        above.up_path = __shfl_up_sync(kWholeWarp, here.up_path, 1);
      }
      if (reads_top && column <= columns) {
        above = top != nullptr ? top[column] : first_row.next();
        if (!in_strip) here = above;
      }
      if (in_strip && column >= 0 && column <= columns) {
        const Value opened_up = above.best + gaps.open;
        Value up = opened_up;
        unsigned long long up_path = above.best_path;
        bool opens = true;
        if (kAffine) {
          up = greater_of<Value>(opened_up, above.up + gaps.gap);
          opens = up == opened_up;
          up_path = opens ? above.best_path : above.up_path;
        }
        up_path += kColumn;
        int direction = kUp | (opens ? kUpOpens : 0);
        if (column == 0) {
          here = {up, up, up_path, up_path};
        } else {
          const bool equal = symbol_a == symbol_b;
          const Value pair = diagonal.best + score;
          if (column < columns) {
            symbol_b = b[column];
            score = pairs(symbol_a, symbol_b);
          }
          const Value opened_left = here.best + gaps.open;
          const unsigned long long before_path = here.best_path;
          bool opens_left = true;
          if (kAffine) {
            left = greater_of<Value>(opened_left, left + gaps.gap);
            opens_left = left == opened_left;
          } else {
            left = opened_left;
          }
          left_path = (opens_left ? before_path : left_path) + kColumn;
          const Value best = kAffine ? greater_of<Value>(pair, greater_of<Value>(up, left))
                                     : greater_of<Value>(greater_of<Value>(pair, up), left);
          unsigned long long path = best == up ? up_path : left_path;
          int state = best == up ? kUp : kLeft;
          if (best == pair) {
            path = diagonal.best_path + kColumn + (equal ? kMatch : 0);
            state = kPair;
          }
          here = {best, up, path, up_path};
          direction = state | (opens ? kUpOpens : 0) | (opens_left ? kLeftOpens : 0);
        }
        if (kDirections) directions[step * W + lane] = static_cast<uint8_t>(direction);
        if (below != nullptr && lane == W - 1) below[column] = here;
      }
      diagonal = above;
    }
    if (kDirections) directions += strip_bytes<W>(columns);
    if (W == kWarp) __syncwarp();
    top = below;
    which = 1 - which;
    start += W;
  } while (start < last);
  const int lane_0 = static_cast<int>(threadIdx.x) % kWarp - lane;
  const int owner = lane_0 + (last > first ? static_cast<int>((last - first - 1) % W) : 0);
  here.best = __shfl_sync(kWholeWarp, here.best, owner);
  here.best_path = __shfl_sync(kWholeWarp, here.best_path, owner);
  return here;
}

}  // namespace pytrace::cuda
