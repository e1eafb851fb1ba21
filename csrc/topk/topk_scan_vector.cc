#include <cstring>

#include "topk/topk_scan.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"
#include "topk/topk_panels.h"

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
        load_transposed(rows + first * stride + d, stride * int64_t{sizeof(float)}, four);
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
  uint32_t found = 0;
#pragma GCC unroll 16
  for (int q = 0; q < kQueries; ++q) {
    hits[q] = passing(sums[q], test, q);
    found |= hits[q];
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
