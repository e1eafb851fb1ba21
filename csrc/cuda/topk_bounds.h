// What the product path of top-k knows of queries and items before it scores them: bounds that no
// score of theirs passes.
//
// The tensor cores multiply numbers of 16 bits, so their sums only bound scores. With q a query, u
// the power of two that brings its largest value into [2^14, 2^15) (the upper end of float16), q^
// and x^ what the tensor cores read of u q and of an item x, and D their sum:
//
//   |u q.x - D| <= |u q - q^| |x^| + |u q| |x - x^|     Cauchy and Schwarz, twice
//                + (dim + 16) 2^-22 |q^| |x^|           D's own sums
//                + 8 roundings(dim) |u q| |x|           the exact score's sums, and the test's
//
// D's sums. A product of two such numbers is exact. PTX promises that they are added "with at least
// single precision", in any order and rounded in any way. Up to now cards add 4 or more products
// and a sum at once, each cut off at 24 bits of the largest (Fasi, Higham, Mikaitis, Pranesh,
// "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7, 2021): six times 2^-23 of
// at most |q^| |x^| for 4 products, hence 1.5 dim 2^-23, below the 2 dim 2^-23 above. PTX leaves
// open, too, whether numbers below the normal range count: they may be read as they are or as 0, so
// what is lost (x - x^) holds them.
//
// The exact score's sums (scores.cuh) add no more than dim / 8 + 16 products one after another, and
// three sums more: a relative error of roundings(dim) of |q| |x| at most (Higham, "Accuracy and
// Stability of Numerical Algorithms", section 3.1). Lengths are added like it. Eight times that
// covers the score, two lengths of a cosine, what the weights below are rounded by, and the test.
//
// Let R be |x - x^|, X be |x|, r be |u q - q^| and K at least 2. Then with the slack
//
//   e = max(r + (dim + 16) 2^-22 |q^| + 8 roundings(dim) |u q|, |u q| / (K - 1))
//
// the right side is at most e (X + K R), since |x^| <= X + R. So one number a query and one an item
// bound what their score may gain, and the test of a pair is
//
//   factor D + unit offset + weight slack >= floor
//
//                    factor    offset             weight                 floor, of the k-th score s
//   inner product    scale     0                  scale (X + K R)        u s
//   cosine           1 / X     0                  (X + K R) / X          u s |q|
//   distance         scale     -(scale X)^2 / 2   scale (X + K R)        u (|q|^2 - s^2) / 2
//
// where a distance d is below s only if q.x - |x|^2 / 2 is above (|q|^2 - s^2) / 2. Everything is
// rounded to the side that lets more items pass. A pair whose bound equals the floor has at most
// the k-th score: its index decides.
//
// Lengths outside of [2^-50, 2^50] (and not 0), where squares leave the range of float32, and
// values that are not finite, are bounded by infinity: such a query or item always passes.
#pragma once

#include <cstdint>

namespace pytrace::cuda {

// At most what a sum over `dim` products in the order of scores.cuh is off by, relative to the sum
// of their absolute values; some more, for what is done with it.
constexpr double roundings(int64_t dim) {
  return (static_cast<double>(dim) / 8.0 + 32.0) * 0x1p-24;
}

inline constexpr float kLeastLength = 0x1p-50f;
inline constexpr float kMostLength = 0x1p50f;

struct alignas(16) QueryBound {
  float floor;    // -inf: there are fewer than k scores
  float slack;    // e
  float unit;     // u
  uint32_t last;  // the index of the k-th score
};

struct alignas(16) ItemBound {
  float factor;
  float offset;
  float weight;
  uint32_t row;  // kNoRow: there is no such item
};

inline constexpr uint32_t kNoRow = 0xffffffffu;

// What a floor is made of.
struct QueryLength {
  double squared;
  float length;      // in the order of scores.cuh
  uint32_t bounded;  // 0: every item passes
};

// The order in which items are visited: chunks of neighbours, spread over all items from the very
// first on, so that an order of the items (sorted, clustered) does not make floors rise late. The
// multiples of about 0.618 times a count lie evenly in it, however few are taken (Knuth, "The Art
// of Computer Programming", volume 3, section 6.4). A chunk is what memory likes to read at once.
struct Visits {
  static constexpr int64_t kChunk = 32;

  int64_t rows = 0;
  int64_t chunks = 0;
  int64_t step = 1;  // has no factor in common with `chunks`

  explicit Visits(int64_t count) : rows(count), chunks((count + kChunk - 1) / kChunk) {
    step = static_cast<int64_t>(static_cast<double>(chunks) * 0.6180339887498949);
    if (step < 1) step = 1;
    while (common_factor(step, chunks) > 1) ++step;
  }
  Visits() = default;

  // Positions are 0 ... positions() - 1; some of the last chunk's have no row.
  constexpr int64_t positions() const { return chunks * kChunk; }

  constexpr int64_t row(int64_t position) const {
    // Both below 2^27.
    const auto product = static_cast<uint64_t>(position / kChunk) * static_cast<uint64_t>(step);
    return static_cast<int64_t>(product % static_cast<uint64_t>(chunks)) * kChunk +
           position % kChunk;
  }

 private:
  static constexpr int64_t common_factor(int64_t a, int64_t b) {
    while (b != 0) {
      const int64_t rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }
};

}  // namespace pytrace::cuda
