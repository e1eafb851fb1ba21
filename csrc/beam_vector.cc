#include "beam_vector.h"

#include <cstring>

#include "target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

using VectorD = double __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
using VectorL = int64_t __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
inline constexpr int kDoubles = PYTRACE_VECTOR_BYTES / 8;
inline constexpr double kInfinity = __builtin_inf();

inline __attribute__((always_inline)) VectorD splat(double value) { return VectorD{} + value; }

inline __attribute__((always_inline)) VectorD load(const double* from) {
  VectorD out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

// exp(x) for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, exp(r) by its Taylor series up to r^13
// (the next term is below 2^-57), times 2^n set into the exponent bits.
inline __attribute__((always_inline)) VectorD exp_of(VectorD x) {
  constexpr double kLog2E = 0x1.71547652b82fep0;
  // ln 2 in two parts, the first with 21 zeros at its end, so that n times it is exact.
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  // Adding it leaves no room for a fraction: the sum's lowest bits are x / ln 2, rounded.
  constexpr double kRound = 0x1.8p52;
  constexpr double kInverseFactorials[] = {1.0 / 6227020800,
                                           1.0 / 479001600,
                                           1.0 / 39916800,
                                           1.0 / 3628800,
                                           1.0 / 362880,
                                           1.0 / 40320,
                                           1.0 / 5040,
                                           1.0 / 720,
                                           1.0 / 120,
                                           1.0 / 24,
                                           1.0 / 6,
                                           0.5,
                                           1.0,
                                           1.0};
  x = x > splat(-700.0) ? x : splat(-700.0);
  const VectorD rounded = x * kLog2E + kRound;
  const VectorD n = rounded - kRound;
  const VectorD r = (x - n * kLn2High) - n * kLn2Low;
  VectorD value = splat(kInverseFactorials[0]);
  for (int i = 1; i < 14; ++i) value = value * r + kInverseFactorials[i];
  const VectorL exponent = (VectorL)rounded << 52;
  return (VectorD)((VectorL)value + exponent);
}

// Returns `count` rounded up to whole vectors.
inline __attribute__((always_inline)) int64_t fill_up(double* values, int64_t count) {
  const int64_t full = (count + kDoubles - 1) / kDoubles * kDoubles;
  for (int64_t i = count; i < full; ++i) values[i] = -kInfinity;
  return full;
}

bool sum_exp(double* values, int64_t count, double* largest, double* sum) {
  const int64_t full = fill_up(values, count);
  VectorD best = splat(-kInfinity);
  VectorL good = VectorL{} - 1;
  for (int64_t at = 0; at < full; at += kDoubles) {
    const VectorD value = load(values + at);
    good &= (VectorL)(value < splat(kInfinity));
    best = value > best ? value : best;
  }
  int64_t all = good[0];
  double top = best[0];
  for (int lane = 1; lane < kDoubles; ++lane) {
    all &= good[lane];
    top = best[lane] > top ? best[lane] : top;
  }
  VectorD sums{};
  for (int64_t at = 0; at < full; at += kDoubles) sums += exp_of(load(values + at) - top);
  double total = sums[0];
  for (int lane = 1; lane < kDoubles; ++lane) total += sums[lane];
  *largest = top;
  *sum = total;
  return all != 0;
}

int64_t best(double* values, int64_t count, int64_t wanted, int64_t* positions) {
  const int64_t full = fill_up(values, count);
  VectorL lane{};
  for (int i = 0; i < kDoubles; ++i) lane[i] = i;
  for (int64_t found = 0; found < wanted; ++found) {
    // Each lane's largest, the first of equals; then the largest of the lanes.
    VectorD tops = splat(-kInfinity);
    VectorL places{};
    for (int64_t at = 0; at < full; at += kDoubles) {
      const VectorD value = load(values + at);
      const VectorL higher = (VectorL)(value > tops);
      tops = higher ? value : tops;
      places = higher ? lane + at : places;
    }
    double top = tops[0];
    int64_t place = places[0];
    for (int i = 1; i < kDoubles; ++i) {
      const bool before = (tops[i] > top) | ((tops[i] == top) & (places[i] < place));
      top = before ? tops[i] : top;
      place = before ? places[i] : place;
    }
    if (top == -kInfinity) return found;
    positions[found] = place;
    values[place] = -kInfinity;
  }
  return wanted;
}

extern const BeamKernels kBeamKernels;
const BeamKernels kBeamKernels = {&sum_exp, &best};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "target_end.h"
