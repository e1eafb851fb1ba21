#include "walk/dense_vector.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"

using VectorD = double __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
inline constexpr int kParts = 64 / PYTRACE_VECTOR_BYTES;  // of a line

// How many rows ahead links are asked for: where rows between are passed over, the processor does
// not read ahead by itself. kDenseAhead is the same for targets' lines, some ten of which are on
// their way at a time.
inline constexpr int64_t kRowsAhead = 4;

// A Vector is one of several values, or a value.
template <typename Vector, typename Real>
PYTRACE_INLINE Vector load_as(const Real* from) {
  Vector out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

template <typename Vector, typename Real>
PYTRACE_INLINE void store_as(Real* to, Vector value) {
  std::memcpy(to, &value, sizeof value);
}

template <typename Vector>
PYTRACE_INLINE Vector distance(Vector a, Vector b) {
  const Vector difference = a - b;
  return difference < Vector{} ? -difference : difference;
}

// The product, rounded: fused with an addition on some instruction sets and not on others, it would
// make scores depend on them.
template <typename Vector, typename Real>
PYTRACE_INLINE Vector product(Vector value, Real factor) {
  Vector rounded = value * factor;
#if defined(__x86_64__)
  __asm__("" : "+v"(rounded));
#elif defined(__aarch64__)
  __asm__("" : "+w"(rounded));
#endif
  return rounded;
}

PYTRACE_INLINE bool any_of(bool comparison) { return comparison; }

template <typename Comparison>
PYTRACE_INLINE bool any_of(Comparison comparison) {
  return any((VectorI)comparison);
}

template <typename Real, typename Vector, int parts>
int64_t find(const Real* masses, int64_t begin, int64_t end, const Real* least, Real* sums,
             int32_t* nodes) {
  constexpr int64_t part = sizeof(Vector) / sizeof(Real), lanes = part * parts;
  Vector total[parts] = {}, bar[parts];
  for (int p = 0; p < parts; ++p) bar[p] = load_as<Vector>(least + p * part);
  int64_t count = 0;
  for (int64_t node = begin; node < end; ++node) {
    bool found = false;
    for (int p = 0; p < parts; ++p) {
      const Vector mass = load_as<Vector>(masses + node * lanes + p * part);
      total[p] += mass;
      found |= any_of(mass >= bar[p]);
    }
    nodes[count] = static_cast<int32_t>(node);
    count += found;
  }
  for (int p = 0; p < parts; ++p) store_as(sums + p * part, total[p]);
  return count;
}

// Asks for the masses of a node, which may be any: where links were not copied yet, nothing stands.
template <typename Real>
PYTRACE_INLINE void prefetch(const Real* masses, int32_t node, int64_t lanes) {
  __builtin_prefetch(reinterpret_cast<const void*>(
      reinterpret_cast<uintptr_t>(masses) +
      static_cast<uintptr_t>(node) * static_cast<uintptr_t>(lanes) * sizeof(Real)));
}

template <typename Real, typename Vector, int parts>
void push(const DenseStep<Real>& given, const int32_t* nodes, int64_t count, Real* sums) {
  constexpr int64_t part = sizeof(Vector) / sizeof(Real), lanes = part * parts;
  const DenseStep<Real> step = given;
  Vector total[parts] = {}, changed[parts] = {}, added[parts] = {};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t later = nodes[i + kRowsAhead < count ? i + kRowsAhead : count - 1];
    __builtin_prefetch(step.links + step.rows[later].begin);
    const int64_t node = nodes[i];
    Real* before = step.before + node * lanes;
    Vector mass[parts], held[parts];
    for (int p = 0; p < parts; ++p) {
      mass[p] = load_as<Vector>(step.now + node * lanes + p * part);
      total[p] += mass[p];
      changed[p] += distance(mass[p], load_as<Vector>(before + p * part));
      store_as(before + p * part, Vector{});
      held[p] = mass[p] > Vector{} ? Vector{} + 1 : Vector{};
    }
    const DenseLink<Real>* const end = step.links + step.rows[node].end;
    for (const DenseLink<Real>* link = step.links + step.rows[node].begin; link < end; ++link) {
      prefetch(step.next, link[kDenseAhead].target, lanes);
      Real* next = step.next + link->target * lanes;
      const Real share = link->share;
      for (int p = 0; p < parts; ++p) {
        const Vector sum = load_as<Vector>(next + p * part) + product(mass[p], share);
        store_as(next + p * part, sum);
        added[p] += held[p] * sum;
      }
    }
  }
  for (int p = 0; p < parts; ++p) {
    store_as(sums + p * part, total[p]);
    store_as(sums + lanes + p * part, changed[p]);
    store_as(sums + 2 * lanes + p * part, added[p]);
  }
}

const DenseTable kDenseTable = {
    {find<float, VectorF, kParts>, push<float, VectorF, kParts>},
    {find<float, float, 1>, push<float, float, 1>},
    {find<double, VectorD, kParts>, push<double, VectorD, kParts>},
    {find<double, double, 1>, push<double, double, 1>},
};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
