#include "bags/bags_vector.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"

// Sums of one block of dimensions: additions take four cycles, two a cycle, and fewer blocks are
// fewer passes over the rows.
#if PYTRACE_VECTOR_BYTES == 64 || defined(__aarch64__)
inline constexpr int kBlock = 16;
#else
inline constexpr int kBlock = 8;
#endif
// How many rows ahead are asked for: they lie anywhere in a table larger than the caches.
inline constexpr int64_t kRowsAhead = 4;

// Dimensions [at, at + kVectors * kLanes), or fewer than kLanes from `at` on where kVectors is 0.
template <typename T, int kVectors>
void mean_of(const Items& table, const int64_t* rows, const float* factors, int64_t count,
             int64_t known, int64_t at, float* out) {
  constexpr int kSums = kVectors == 0 ? 1 : kVectors;
  const T* const base = static_cast<const T*>(table.data) + at;
  VectorF sums[kSums] = {};
  for (int64_t i = 0; i < count; ++i) {
    const T* const row = base + rows[i] * table.stride;
    const T* const later = base + rows[i + kRowsAhead < known ? i + kRowsAhead : i] * table.stride;
    const float factor = factors == nullptr ? 1.0f : factors[i];
#pragma GCC unroll 16
    for (int v = 0; v < kSums; ++v) {
      if (v * kLanes * static_cast<int>(sizeof(T)) % 64 == 0)  // once a line of the cache
        __builtin_prefetch(later + v * kLanes);
      const VectorF value =
          kVectors == 0 ? load_first(row, table.cols - at) : load(row + v * kLanes);
      sums[v] += value * factor;
    }
  }
  const auto divisor = static_cast<float>(count);
  if constexpr (kVectors == 0) {
    const VectorF mean = sums[0] / divisor;
    std::memcpy(out + at, &mean, sizeof(float) * static_cast<size_t>(table.cols - at));
  } else {
    for (int v = 0; v < kVectors; ++v) store(out + at + v * kLanes, sums[v] / divisor);
  }
}

template <typename T>
void mean_typed(const Items& table, const int64_t* rows, const float* factors, int64_t count,
                int64_t known, float* out) {
  int64_t at = 0;
  for (; at + kBlock * kLanes <= table.cols; at += kBlock * kLanes)
    mean_of<T, kBlock>(table, rows, factors, count, known, at, out);
  for (; at + kLanes <= table.cols; at += kLanes)
    mean_of<T, 1>(table, rows, factors, count, known, at, out);
  if (at < table.cols) mean_of<T, 0>(table, rows, factors, count, known, at, out);
}

void mean(const Items& table, const int64_t* rows, const float* factors, int64_t count,
          int64_t known, float* out) {
  switch (table.type) {
    case ItemType::kFloat32:
      return mean_typed<float>(table, rows, factors, count, known, out);
    case ItemType::kFloat16:
      return mean_typed<uint16_t>(table, rows, factors, count, known, out);
    case ItemType::kInt8:
      return mean_typed<int8_t>(table, rows, factors, count, known, out);
  }
}

extern const BagKernels kBagKernels;
const BagKernels kBagKernels = {&mean};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
