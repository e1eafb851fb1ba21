#include <cstring>

#include "topk/topk_scan.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"

// A block of kBlockQueries x 2 vectors of running sums, the two item vectors and one query value:
// 14 x 2 + 3 = 31 of AVX-512's 32 registers, 6 x 2 + 3 = 15 of AVX2's 16; SSE2 needs one more for
// each product. Both pipes of two fused multiply-adds a cycle are fed by (2 + queries) loads for 2
// * queries of them.
inline constexpr int kPanelItems = 2 * kLanes;
#if PYTRACE_VECTOR_BYTES == 64
inline constexpr int kBlockQueries = 14;
#elif defined(__aarch64__)
inline constexpr int kBlockQueries = 12;
#else
inline constexpr int kBlockQueries = 6;
#endif

// Four dimensions of kLanes rows, as vectors of one dimension each.
PYTRACE_INLINE void load_transposed(const float* rows, int64_t stride, VectorF (&out)[4]) {
  // Vector r holds rows r, r + 4, r + 8, ... in its 128-bit parts, so that the 4 x 4 transpositions
  // stay within the parts.
  VectorF in[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
#if PYTRACE_VECTOR_BYTES == 64
    __m512i parts = _mm512_castsi128_si512(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + r * stride)));
    parts = _mm512_inserti32x4(
        parts, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (r + 4) * stride)), 1);
    parts = _mm512_inserti32x4(
        parts, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (r + 8) * stride)), 2);
    parts = _mm512_inserti32x4(
        parts, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (r + 12) * stride)), 3);
    in[r] = (VectorF)parts;
#elif PYTRACE_VECTOR_BYTES == 32
    __m256i parts = _mm256_castsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + r * stride)));
    parts = _mm256_inserti128_si256(
        parts, _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (r + 4) * stride)), 1);
    in[r] = (VectorF)parts;
#else
    in[r] = load(rows + r * stride);
#endif
  }
#if PYTRACE_VECTOR_BYTES == 64
  const VectorF low01 = __builtin_shufflevector(in[0], in[1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9,
                                                25, 12, 28, 13, 29);
  const VectorF high01 = __builtin_shufflevector(in[0], in[1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26,
                                                 11, 27, 14, 30, 15, 31);
  const VectorF low23 = __builtin_shufflevector(in[2], in[3], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9,
                                                25, 12, 28, 13, 29);
  const VectorF high23 = __builtin_shufflevector(in[2], in[3], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26,
                                                 11, 27, 14, 30, 15, 31);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13,
                                   28, 29);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15,
                                   30, 31);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13,
                                   28, 29);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14,
                                   15, 30, 31);
#elif PYTRACE_VECTOR_BYTES == 32
  const VectorF low01 = __builtin_shufflevector(in[0], in[1], 0, 8, 1, 9, 4, 12, 5, 13);
  const VectorF high01 = __builtin_shufflevector(in[0], in[1], 2, 10, 3, 11, 6, 14, 7, 15);
  const VectorF low23 = __builtin_shufflevector(in[2], in[3], 0, 8, 1, 9, 4, 12, 5, 13);
  const VectorF high23 = __builtin_shufflevector(in[2], in[3], 2, 10, 3, 11, 6, 14, 7, 15);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 8, 9, 4, 5, 12, 13);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 10, 11, 6, 7, 14, 15);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 8, 9, 4, 5, 12, 13);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 10, 11, 6, 7, 14, 15);
#else
  const VectorF low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const VectorF high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const VectorF low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const VectorF high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
#endif
}

void pack_panel(const float* rows, int64_t stride, int64_t count, int64_t dim, const float* factors,
                float* panel) {
  for (int half = 0; half < 2; ++half) {
    const int64_t first = half * kLanes;
    float* to = panel + first;
    int64_t d = 0;
    if (first + kLanes <= count) {
      const VectorF factor = load(factors + first);
      for (; d + 4 <= dim; d += 4) {
        VectorF four[4];
        load_transposed(rows + first * stride + d, stride, four);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) store(to + (d + j) * kPanelItems, four[j] * factor);
      }
    }
    for (; d < dim; ++d) {
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t row = first + i;
        to[d * kPanelItems + i] = row < count ? rows[row * stride + d] * factors[row] : 0.0f;
      }
    }
  }
}

void pack_block(const float* rows, int64_t stride, int64_t count, int64_t dim, float* block) {
  for (int64_t q = 0; q < count; ++q) {
    const float* row = rows + q * stride;
    for (int64_t d = 0; d < dim; ++d) block[d * count + q] = row[d];
  }
}

template <int kQueries>
bool scan_block(const float* block, const float* panel, int64_t dim, const ScanTest& test,
                uint32_t* hits) {
  VectorF sums[kQueries][2] = {};
  for (int64_t d = 0; d < dim; ++d) {
    const VectorF first = load(panel);
    const VectorF second = load(panel + kLanes);
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
      VectorF query = splat(block[q]);
      sums[q][0] += query * first;
      sums[q][1] += query * second;
    }
    panel += kPanelItems;
    block += kQueries;
  }
  const VectorF weights[2] = {load(test.weights), load(test.weights + kLanes)};
  const VectorF offsets[2] = {load(test.offsets), load(test.offsets + kLanes)};
  uint32_t found = 0;
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
    const VectorF slack = splat(test.slacks[q]);
    const VectorF floor = splat(test.floors[q]);
    uint32_t bits = 0;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const VectorF reach = sums[q][half] + (offsets[half] + slack * weights[half]);
      // Not "at least": a NaN must pass, to be found out.
      const VectorI below = (VectorI)(reach < floor);
      bits |= bits_of(~below) << (half * kLanes);
    }
    hits[q] = bits;
    found |= bits;
  }
  return found != 0;
}

template <int kQueries>
bool scan_count(int64_t count, const float* block, const float* panel, int64_t dim,
                const ScanTest& test, uint32_t* hits) {
  if (count == kQueries) return scan_block<kQueries>(block, panel, dim, test, hits);
  if constexpr (kQueries > 1) {
    return scan_count<kQueries - 1>(count, block, panel, dim, test, hits);
  }
  return false;
}

bool scan(const float* block, int64_t count, const float* panel, int64_t dim, const ScanTest& test,
          uint32_t* hits) {
  return scan_count<kBlockQueries>(count, block, panel, dim, test, hits);
}

extern const ScanKernels kScanKernels;
const ScanKernels kScanKernels = {&pack_panel, &pack_block, &scan, kPanelItems, kBlockQueries};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
