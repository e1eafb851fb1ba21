#include "late_interaction/max_sim_vector.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"

// A tile of rows meets two vectors of lanes: that many running sums, and registers for the two
// vectors, a broadcast value and, where there is no fused multiply-add, a product. Every broadcast
// is used twice, so that multiply-adds and not loads are what takes time.
#if PYTRACE_VECTOR_BYTES == 64 || defined(__aarch64__)
inline constexpr int kTileRows = 12;  // 24 sums of 32 registers
#elif PYTRACE_VECTOR_BYTES == 32
inline constexpr int kTileRows = 6;  // 12 of 16
#else
inline constexpr int kTileRows = 5;  // 10 of 16
#endif

struct Tile {
  const float* rows[kTileRows];
  float scale[kTileRows];
};

// Raises `best` by a tile's products, and spoils `sound` (zeros otherwise) if one is not finite.
template <int kVectors, int kRows>
void raise(const float* panel, const Tile& tile, int64_t dim, float* best, float* sound) {
  VectorF sums[kRows][kVectors] = {};
  const float* rows[kRows];
  for (int i = 0; i < kRows; ++i) rows[i] = tile.rows[i];
  for (int64_t d = 0; d < dim; ++d) {
    VectorF query[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      query[v] = load(panel + (d * kVectors + v) * kLanes);
      hold_in_register(query[v]);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const VectorF value = splat(rows[i][d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[i][v] += query[v] * value;
    }
  }
  VectorF largest[kVectors], zero = load(sound);
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) largest[v] = load(best + v * kLanes);
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const VectorF product = sums[i][v] * splat(tile.scale[i]);
      zero += product * 0.0f;
      largest[v] = larger(largest[v], product);
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) store(best + v * kLanes, largest[v]);
  store(sound, zero);
}

// Tiles of fewer rows have functions of their own: passages are short, and rows that are not there
// would cost as much as others.
template <int kVectors, int kRows = kTileRows>
void raise_rows(int64_t count, const float* panel, const Tile& tile, int64_t dim, float* best,
                float* sound) {
  if (count == kRows) return raise<kVectors, kRows>(panel, tile, dim, best, sound);
  if constexpr (kRows > 1) raise_rows<kVectors, kRows - 1>(count, panel, tile, dim, best, sound);
}

inline const float* widened_row(const float* from, int64_t, float*) { return from; }

template <typename T>
const float* widened_row(const T* from, int64_t dim, float* to) {
  int64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) store(to + at, load(from + at));
  if (at < dim) {
    const VectorF last = load_first(from + at, dim - at);
    std::memcpy(to + at, &last, sizeof(float) * static_cast<size_t>(dim - at));
  }
  return to;
}

template <typename T>
bool largest_of(const MaxSimPanels& panels, const Items& documents, int64_t first, int64_t last,
                float* widened, float* best) {
  const int64_t dim = panels.dim;
  const VectorF nothing = splat(-__builtin_inff());
  for (int64_t lane = 0; lane < panels.lanes_used; lane += kLanes) store(best + lane, nothing);
  float sound[kLanes] = {};
  for (int64_t row = first; row < last; row += kTileRows) {
    const int64_t count = last - row < kTileRows ? last - row : kTileRows;
    Tile tile{};
    // The next tile, while this one is worked on: rows are read a value at a time, by which the
    // processor does not see far ahead.
    for (int64_t i = 0; i < kTileRows && row + kTileRows + i < last; ++i) {
      const char* const later = reinterpret_cast<const char*>(
          static_cast<const T*>(documents.data) + (row + kTileRows + i) * documents.stride);
      for (int64_t at = 0; at < dim * static_cast<int64_t>(sizeof(T)); at += 64)
        __builtin_prefetch(later + at);
    }
    for (int64_t i = 0; i < count; ++i) {
      const T* const from = static_cast<const T*>(documents.data) + (row + i) * documents.stride;
      tile.rows[i] = widened_row(from, dim, widened + i * dim);
      tile.scale[i] = documents.scale != nullptr ? documents.scale[row + i] : 1.0f;
    }
    int64_t lane = 0;
    for (; lane + 2 * kLanes <= panels.lanes_used; lane += 2 * kLanes)
      raise_rows<2>(count, panels.values + lane * dim, tile, dim, best + lane, sound);
    if (lane < panels.lanes_used)
      raise_rows<1>(count, panels.values + lane * dim, tile, dim, best + lane, sound);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(sound[lane] == 0.0f)) return false;
  }
  return true;
}

bool largest(const MaxSimPanels& panels, const Items& documents, int64_t first, int64_t last,
             float* widened, float* best) {
  switch (documents.type) {
    case ItemType::kFloat16:
      return largest_of<uint16_t>(panels, documents, first, last, widened, best);
    case ItemType::kInt8:
      return largest_of<int8_t>(panels, documents, first, last, widened, best);
    case ItemType::kFloat32:
      break;
  }
  return largest_of<float>(panels, documents, first, last, widened, best);
}

extern const MaxSimKernels kMaxSimKernels;
const MaxSimKernels kMaxSimKernels = {&largest, kLanes, kTileRows};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
