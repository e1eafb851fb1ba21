#include "align/align_vector.h"

#include <cstring>
#include <type_traits>

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {
namespace {

// A register of T. Sums are taken unsigned, where a wrap in a lane that nobody reads is no
// undefined behaviour.
template <typename T>
struct Lanes {
  typedef T Signed __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
  typedef std::make_unsigned_t<T> Unsigned __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
  static constexpr int64_t kCount = PYTRACE_VECTOR_BYTES / static_cast<int64_t>(sizeof(T));
};

template <typename T>
inline typename Lanes<T>::Signed load(const T* from) {
  typename Lanes<T>::Signed value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T>
inline void store(T* to, typename Lanes<T>::Signed value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

template <typename T>
inline typename Lanes<T>::Signed broadcast(T value) {
  return value - typename Lanes<T>::Signed{};
}

template <typename T>
inline typename Lanes<T>::Signed add(typename Lanes<T>::Signed x, typename Lanes<T>::Signed y) {
  using Unsigned = typename Lanes<T>::Unsigned;
  return (typename Lanes<T>::Signed)((Unsigned)x + (Unsigned)y);
}

template <typename T>
inline typename Lanes<T>::Signed larger(typename Lanes<T>::Signed x, typename Lanes<T>::Signed y) {
  return x > y ? x : y;
}

template <typename T, bool kAffine>
void fill(const DiagonalProblem<T>& problem) {
  using Vector = typename Lanes<T>::Signed;
  constexpr int64_t kCount = Lanes<T>::kCount;
  constexpr int64_t kPadding = kDiagonalPadding / static_cast<int64_t>(sizeof(T));
  const int64_t n = problem.n;
  const int64_t m = problem.m;
  const bool keep = problem.rows == n + m + 1;
  const auto row = [&](T* table, int64_t d) {
    return table + (keep ? d : d % 3) * problem.stride + kPadding;
  };
  const Vector mismatch = broadcast(problem.mismatch);
  const Vector bonus = broadcast(static_cast<T>(problem.match - problem.mismatch));
  const Vector gap = broadcast(problem.gap);
  const Vector open = broadcast(problem.gap_open);

  row(problem.best, 0)[0] = 0;
  if (kAffine) {
    row(problem.up, 0)[0] = problem.lowest;
    row(problem.left, 0)[0] = problem.lowest;
  }
  for (int64_t d = 1; d <= n + m; ++d) {
    T* best = row(problem.best, d);
    const T* best1 = row(problem.best, d - 1);
    const T* best2 = d > 1 ? row(problem.best, d - 2) : best1;  // diagonal 1 has no inner cell
    const int64_t shift = m - d;  // b[j - 1] with j = d - i is b_reversed[shift + i]
    const int64_t first = d > m ? d - m : 1;
    const int64_t last = d > n ? n : d - 1;
    if constexpr (kAffine) {
      T* up = row(problem.up, d);
      T* left = row(problem.left, d);
      const T* up1 = row(problem.up, d - 1);
      const T* left1 = row(problem.left, d - 1);
      for (int64_t i = first; i <= last; i += kCount) {
        const Vector equal = load(problem.a + i - 1) == load(problem.b_reversed + shift + i);
        const Vector pair = add<T>(load(best2 + i - 1), add<T>(mismatch, equal & bonus));
        const Vector from_up =
            larger<T>(add<T>(load(best1 + i - 1), open), add<T>(load(up1 + i - 1), gap));
        const Vector from_left =
            larger<T>(add<T>(load(best1 + i), open), add<T>(load(left1 + i), gap));
        store(up + i, from_up);
        store(left + i, from_left);
        store(best + i, larger<T>(pair, larger<T>(from_up, from_left)));
      }
      // The edges: i = 0 is all blanks of a, j = 0 all blanks of b.
      const T edge = static_cast<T>(problem.gap_open + static_cast<T>(d - 1) * problem.gap);
      if (d <= m) {
        best[0] = left[0] = edge;
        up[0] = problem.lowest;
      }
      if (d <= n) {
        best[d] = up[d] = edge;
        left[d] = problem.lowest;
      }
    } else {
      for (int64_t i = first; i <= last; i += kCount) {
        const Vector equal = load(problem.a + i - 1) == load(problem.b_reversed + shift + i);
        const Vector pair = add<T>(load(best2 + i - 1), add<T>(mismatch, equal & bonus));
        const Vector blank = add<T>(larger<T>(load(best1 + i - 1), load(best1 + i)), gap);
        store(best + i, larger<T>(pair, blank));
      }
      const T edge = static_cast<T>(static_cast<T>(d) * problem.gap);
      if (d <= m) best[0] = edge;
      if (d <= n) best[d] = edge;
    }
  }
}

template <typename T>
void choose(const DiagonalProblem<T>& problem) {
  if (problem.gap_open != problem.gap) {
    fill<T, true>(problem);
  } else {
    fill<T, false>(problem);
  }
}

}  // namespace

void fill_diagonals(const DiagonalProblem<int16_t>& problem) { choose(problem); }
void fill_diagonals(const DiagonalProblem<int32_t>& problem) { choose(problem); }

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
