#include "beam/beam_vector.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"

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

// As `exp_of`, in float32: the series goes up to r^7, and the next term is below 2^-27.
PYTRACE_INLINE VectorF exp_of(VectorF x) {
  constexpr float kLog2E = 0x1.715476p0f;
  // ln 2 in two parts, the first with 16 zeros at its end, so that n times it is exact.
  constexpr float kLn2High = 0x1.62p-1f;
  constexpr float kLn2Low = 0x1.c85fdep-10f;
  constexpr float kRound = 0x1.8p23f;
  constexpr float kInverseFactorials[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                          1.0f / 6,    0.5f,       1.0f,       1.0f};
  x = larger(x, splat(-87.0f));
  const VectorF rounded = x * kLog2E + kRound;
  const VectorF n = rounded - kRound;
  const VectorF r = (x - n * kLn2High) - n * kLn2Low;
  VectorF value = splat(kInverseFactorials[0]);
  for (int i = 1; i < 8; ++i) value = value * r + kInverseFactorials[i];
  const VectorI exponent = (VectorI)rounded << 23;
  return (VectorF)((VectorI)value + exponent);
}

// The first `count` values (fewer than kLanes), -inf behind them.
PYTRACE_INLINE VectorF load_rest(const float* from, int64_t count) {
  float padded[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    padded[lane] = lane < count ? from[lane] : -__builtin_inff();
  }
  return load(padded);
}

bool sum_exp_floats(const float* values, int64_t count, float* largest, double* sum) {
  const int64_t full = count / kLanes * kLanes;
  const VectorF rest = load_rest(values + full, count - full);
  // Two of each: one would wait for itself.
  VectorF bests[2] = {rest, rest};
  VectorI good[2] = {rest < splat(__builtin_inff()), rest < splat(__builtin_inff())};
  int64_t at = 0;
  for (; at + 2 * kLanes <= full; at += 2 * kLanes) {
    for (int i = 0; i < 2; ++i) {
      const VectorF value = load(values + at + i * kLanes);
      good[i] &= value < splat(__builtin_inff());
      bests[i] = larger(value, bests[i]);
    }
  }
  for (; at < full; at += kLanes) {
    const VectorF value = load(values + at);
    good[0] &= value < splat(__builtin_inff());
    bests[0] = larger(value, bests[0]);
  }
  const VectorF best = larger(bests[0], bests[1]);
  float top = best[0];
  for (int lane = 1; lane < kLanes; ++lane) top = best[lane] > top ? best[lane] : top;
  *largest = top;
  *sum = 0.0;
  if (any(~(good[0] & good[1]))) return false;
  // -inf less -inf would be NaN.
  if (top == -__builtin_inff()) return true;
  // Float32 over a few vectors, float64 over those sums: a vocabulary's is as exact as its terms.
  constexpr int64_t kBlock = int64_t{32} * kLanes;
  double total = 0.0;
  for (int64_t start = 0; start < full; start += kBlock) {
    const int64_t end = start + kBlock < full ? start + kBlock : full;
    VectorF sums{};
    for (int64_t i = start; i < end; i += kLanes) sums += exp_of(load(values + i) - splat(top));
    for (int lane = 0; lane < kLanes; ++lane) total += static_cast<double>(sums[lane]);
  }
  for (int64_t i = full; i < count; ++i) {
    total += static_cast<double>(exp_of(splat(values[i] - top))[0]);
  }
  *sum = total;
  return true;
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
const BeamKernels kBeamKernels = {&sum_exp, &sum_exp_floats, &best};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
