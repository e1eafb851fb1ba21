#include "topk/topk_bytes.h"

#include <cstring>

#include "common/dispatch.h"
#if defined(__x86_64__)
#include <immintrin.h>

#define PYTRACE_TARGET_AVX512VNNI
#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"
#include "topk/topk_panels.h"

// As many as the scan in floats has, whose registers these are.
inline constexpr int kPanelItems = 2 * kLanes;
inline constexpr int kBlockQueries = 14;
// What makes a signed byte an unsigned one, which one factor must be.
inline constexpr uint32_t kSigns = 0x80808080;

void pack_panel(const int8_t* rows, int64_t stride, int64_t count, int64_t dim, uint8_t* panel) {
  for (int half = 0; half < 2; ++half) {
    const int64_t first = half * kLanes;
    uint8_t* to = panel + 4 * first;
    int64_t d = 0;
    if (first + kLanes <= count) {
      for (; d + 16 <= dim; d += 16) {
        VectorF four[4];
        load_transposed(rows + first * stride + d, stride, four);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          const VectorI bytes = (VectorI)four[j] ^ static_cast<int32_t>(kSigns);
          std::memcpy(to + (d + 4 * j) * kPanelItems, &bytes, sizeof bytes);
        }
      }
    }
    for (; d < dim; d += 4) {
      const int64_t there = dim - d < 4 ? dim - d : 4;
      for (int64_t i = 0; i < kLanes; ++i) {
        uint32_t bytes = 0;
        if (first + i < count) {
          std::memcpy(&bytes, rows + (first + i) * stride + d, static_cast<size_t>(there));
          bytes ^= kSigns;
        }
        std::memcpy(to + d * kPanelItems + 4 * i, &bytes, sizeof bytes);
      }
    }
  }
}

void pack_block(const int8_t* rows, int64_t stride, int64_t count, int64_t dim, int8_t* block) {
  for (int64_t d = 0; d < dim; d += 4) {
    const int64_t there = dim - d < 4 ? dim - d : 4;
    for (int64_t q = 0; q < count; ++q) {
      uint32_t bytes = 0;
      std::memcpy(&bytes, rows + q * stride + d, static_cast<size_t>(there));
      std::memcpy(block + d * count + 4 * q, &bytes, sizeof bytes);
    }
  }
}

// sum += the four products of unsigned and signed bytes. Written out, since GCC 12 copies the sums
// of _mm512_dpbusd_epi32 to and from the stack.
PYTRACE_INLINE void add_products(__m512i& sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}

template <int kQueries>
bool scan_block(const int8_t* block, const uint8_t* panel, int64_t steps, const ByteTest& test,
                uint32_t* hits) {
  __m512i sums[kQueries][2];
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q)
    sums[q][0] = sums[q][1] = _mm512_set1_epi32(-128 * test.sums[q]);
  for (int64_t step = 0; step < steps; ++step) {
    const __m512i first = _mm512_loadu_si512(panel);
    const __m512i second = _mm512_loadu_si512(panel + PYTRACE_VECTOR_BYTES);
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
      int32_t bytes;
      std::memcpy(&bytes, block + 4 * q, sizeof bytes);
      const __m512i query = _mm512_set1_epi32(bytes);
      add_products(sums[q][0], first, query);
      add_products(sums[q][1], second, query);
    }
    panel += 4 * kPanelItems;
    block += 4 * kQueries;
  }
  uint32_t found = 0;
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
    VectorF products[2];
    const VectorF scale = splat(test.scales[q]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      products[half] = (VectorF)_mm512_maskz_cvtepi32_ps(0xffff, sums[q][half]) *
                       (scale * load(test.factors + half * kLanes));
    }
    hits[q] = passing(products, test.scan, q);
    found |= hits[q];
  }
  return found != 0;
}

template <int kQueries>
bool scan_count(int64_t count, const int8_t* block, const uint8_t* panel, int64_t steps,
                const ByteTest& test, uint32_t* hits) {
  if (count == kQueries) return scan_block<kQueries>(block, panel, steps, test, hits);
  if constexpr (kQueries > 1) {
    return scan_count<kQueries - 1>(count, block, panel, steps, test, hits);
  }
  return false;
}

bool scan(const int8_t* block, int64_t count, const uint8_t* panel, int64_t steps,
          const ByteTest& test, uint32_t* hits) {
  return scan_count<kBlockQueries>(count, block, panel, steps, test, hits);
}

constexpr ByteKernels kByteKernels = {&pack_panel, &pack_block, &scan, kPanelItems, kBlockQueries};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
#endif

namespace pytrace {

const ByteKernels* byte_kernels() {
#if defined(__x86_64__)
  static const bool there = __builtin_cpu_supports("avx512vnni") != 0;
  if (there && required_isa() == Isa::kAvx512) return &avx512vnni::kByteKernels;
#endif
  return nullptr;
}

}  // namespace pytrace
