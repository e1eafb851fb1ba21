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

// Panels and blocks hold the dimensions in the order in which `ScoreKernels::score` adds them up:
// first all that a vector's first lane would see, then those of the lane that is added to it, and
// so on. So a sum over one lane's dimensions after the other, added up as the lanes are, is the
// score itself to the last bit, though its vectors lie across items.
#if PYTRACE_VECTOR_BYTES == 64
inline constexpr int kLaneOrder[kLanes] = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15};
#elif PYTRACE_VECTOR_BYTES == 32
inline constexpr int kLaneOrder[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7};
#else
inline constexpr int kLaneOrder[kLanes] = {0, 1, 2, 3};
#endif

inline constexpr int kLevels = kLanes == 16 ? 4 : kLanes == 8 ? 3 : 2;

// Where each lane's dimensions begin, and the last one's end.
struct LaneSteps {
  int64_t begin[kLanes + 1];  // in the order of kLaneOrder
  int64_t of_lane[kLanes];
  int64_t whole;      // dimensions in whole vectors
  int64_t tail_lane;  // the lane that the first of the others is in

  explicit LaneSteps(int64_t dim) {
    const int64_t rest = dim % kLanes;
    whole = dim - rest;
    // The last vector overlaps the one before, unless there is none.
    tail_lane = dim < kLanes ? 0 : kLanes - rest;
    int64_t at = 0;
    for (int turn = 0; turn < kLanes; ++turn) {
      const int lane = kLaneOrder[turn];
      begin[turn] = of_lane[lane] = at;
      at += whole / kLanes + (lane >= tail_lane && lane < tail_lane + rest ? 1 : 0);
    }
    begin[kLanes] = at;
  }

  int64_t step(int64_t d) const {
    return d < whole ? of_lane[d % kLanes] + d / kLanes
                     : of_lane[tail_lane + d - whole] + whole / kLanes;
  }
};

void pack_panel(const float* rows, int64_t stride, int64_t count, int64_t dim, const float* factors,
                float* panel) {
  const LaneSteps steps(dim);
  for (int half = 0; half < 2; ++half) {
    const int64_t first = half * kLanes;
    float* to = panel + first;
    int64_t d = 0;
    if (first + kLanes <= count) {
      const VectorF factor = load(factors + first);
      for (; d < steps.whole; d += 4) {
        VectorF four[4];
        load_transposed(rows + first * stride + d, stride * int64_t{sizeof(float)}, four);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) store(to + steps.step(d + j) * kPanelItems, four[j] * factor);
      }
    }
    for (; d < dim; ++d) {
      float* at = to + steps.step(d) * kPanelItems;
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t row = first + i;
        at[i] = row < count ? rows[row * stride + d] * factors[row] : 0.0f;
      }
    }
  }
}

void pack_block(const float* rows, int64_t stride, int64_t count, int64_t dim, float* block) {
  const LaneSteps steps(dim);
  const int64_t together = count >= 4 ? steps.whole : 0;
  // Four rows at a time; the last four overlap those before.
  for (int64_t next = 0; together > 0 && next < count; next += 4) {
    const int64_t q = next + 4 <= count ? next : count - 4;
    const float* row = rows + q * stride;
    for (int64_t d = 0; d < together; d += 4) {
      Vector4F in[4];
      for (int i = 0; i < 4; ++i) std::memcpy(&in[i], row + i * stride + d, sizeof in[i]);
      const Vector4F low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
      const Vector4F high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
      const Vector4F low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
      const Vector4F high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
      const Vector4F out[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                               __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                               __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                               __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int j = 0; j < 4; ++j)
        std::memcpy(block + steps.step(d + j) * count + q, &out[j], sizeof out[j]);
    }
  }
  for (int64_t q = 0; q < count; ++q) {
    for (int64_t d = together; d < dim; ++d)
      block[steps.step(d) * count + q] = rows[q * stride + d];
  }
}

// Adds the products of some dimensions of a block and a panel.
template <int kQueries>
PYTRACE_INLINE void add_products(const float* block, const float* panel, int64_t dim,
                                 VectorF (&sums)[kQueries][2]) {
// The loop's own additions take turns on the pipes that multiply: 4 steps a turn.
#pragma GCC unroll 4
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
}

// Asks for one of kLanes parts of the lines, so that they come evenly.
PYTRACE_INLINE void fetch(const Ahead& ahead, int64_t part) {
  const int64_t last = ahead.lines * (part + 1) / kLanes;
  for (int64_t line = ahead.lines * part / kLanes; line < last; ++line)
    __builtin_prefetch(ahead.first + line * kLineBytes, 0, 2);
}

template <int kQueries>
void score_block(const float* block, const float* panel, const LaneSteps& steps, const Ahead& ahead,
                 float* scores, int64_t stride) {
  // Sums of one lane, of two, of four, ... that wait for their like.
  VectorF waiting[kLevels + 1][kQueries][2];
  for (int turn = 0; turn < kLanes; ++turn) {
    const int64_t begin = steps.begin[turn];
    fetch(ahead, turn);
    VectorF sums[kQueries][2] = {};
    add_products<kQueries>(block + begin * kQueries, panel + begin * kPanelItems,
                           steps.begin[turn + 1] - begin, sums);
    int level = 0;
    for (; (turn >> level & 1) != 0; ++level) {
#pragma GCC unroll 16
      for (int q = 0; q < kQueries; ++q) {
        sums[q][0] += waiting[level][q][0];
        sums[q][1] += waiting[level][q][1];
      }
    }
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
      waiting[level][q][0] = sums[q][0];
      waiting[level][q][1] = sums[q][1];
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    store(scores + q * stride, waiting[kLevels][q][0]);
    store(scores + q * stride + kLanes, waiting[kLevels][q][1]);
  }
}

template <int kQueries>
void score_count(int64_t count, const float* block, const float* panel, const LaneSteps& steps,
                 const Ahead& ahead, float* scores, int64_t stride) {
  if (count == kQueries) return score_block<kQueries>(block, panel, steps, ahead, scores, stride);
  if constexpr (kQueries > 1) {
    score_count<kQueries - 1>(count, block, panel, steps, ahead, scores, stride);
  }
}

void score(const float* block, int64_t count, const float* panel, int64_t dim, const Ahead& ahead,
           float* scores, int64_t stride) {
  score_count<kBlockQueries>(count, block, panel, LaneSteps(dim), ahead, scores, stride);
}

template <int kQueries>
bool scan_block(const float* block, const float* panel, int64_t dim, const ScanTest& test,
                const Ahead& ahead, uint32_t* hits) {
  VectorF sums[kQueries][2] = {};
  for (int64_t part = 0; part < kLanes; ++part) {
    fetch(ahead, part);
    const int64_t begin = dim * part / kLanes;
    add_products<kQueries>(block + begin * kQueries, panel + begin * kPanelItems,
                           dim * (part + 1) / kLanes - begin, sums);
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
                const ScanTest& test, const Ahead& ahead, uint32_t* hits) {
  if (count == kQueries) return scan_block<kQueries>(block, panel, dim, test, ahead, hits);
  if constexpr (kQueries > 1) {
    return scan_count<kQueries - 1>(count, block, panel, dim, test, ahead, hits);
  }
  return false;
}

bool scan(const float* block, int64_t count, const float* panel, int64_t dim, const ScanTest& test,
          const Ahead& ahead, uint32_t* hits) {
  return scan_count<kBlockQueries>(count, block, panel, dim, test, ahead, hits);
}

extern const ScanKernels kScanKernels;
const ScanKernels kScanKernels = {&pack_panel, &pack_block, &scan,
                                  &score,      kPanelItems, kBlockQueries};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
