#include <cstring>

#include "topk/topk_select.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"

inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kMostFloat = 3.40282347e38f;
// What `select` holds: all of its scores and a few vectors more.
inline constexpr int64_t kSelectRoom = kMaxSelected + 4 * kLanes;

bool finish(float* scores, int64_t count, Metric metric, const float* scale, const float* lengths,
            float query_length) {
  // x - x is 0 for a finite x and NaN for any other. Adding 0 makes +0 of -0, which would rank
  // below it.
  int32_t bad = 0;
  switch (metric) {
    case Metric::kInnerProduct:
      for (int64_t i = 0; i < count; ++i) {
        const float value = scale != nullptr ? scores[i] * scale[i] : scores[i];
        bad |= value - value != 0.0f;
        scores[i] = value + 0.0f;
      }
      break;
    case Metric::kCosine:
      for (int64_t i = 0; i < count; ++i) {
        const float length = lengths[i] * query_length;
        bad |= (scores[i] - scores[i]) + (length - length) != 0.0f;
        float value = length > 0.0f ? scores[i] / length : 0.0f;
        value = value > 1.0f ? 1.0f : value;
        scores[i] = (value < -1.0f ? -1.0f : value) + 0.0f;
      }
      break;
    case Metric::kEuclidean:
      for (int64_t i = 0; i < count; ++i) {
        bad |= scores[i] - scores[i] != 0.0f;
        scores[i] = 0.0f - __builtin_sqrtf(scores[i]);
      }
      break;
  }
  return bad == 0;
}

int64_t find_above(const float* scores, int64_t count, float threshold, int32_t* positions) {
  const VectorF least = splat(threshold);
  int64_t found = 0;
#if defined(PYTRACE_TARGET_AVX512)
  __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t at = 0; at < count; at += kLanes) {
    __mmask16 mask = _mm512_movepi32_mask((__m512i)(VectorI)(load(scores + at) > least));
    if (count - at < kLanes) mask = static_cast<__mmask16>(mask & ((1 << (count - at)) - 1));
    _mm512_storeu_si512(positions + found, _mm512_maskz_compress_epi32(mask, place));
    found += __builtin_popcount(mask);
    place = _mm512_add_epi32(place, _mm512_set1_epi32(kLanes));
  }
#else
  constexpr int kTogether = 32 / kLanes;
  for (int64_t at = 0; at < count; at += 32) {
    uint32_t bits = 0;
#pragma GCC unroll 8
    for (int v = 0; v < kTogether; ++v)
      bits |= bits_of((VectorI)(load(scores + at + v * kLanes) > least)) << (v * kLanes);
    if (count - at < 32) bits &= (uint32_t{1} << (count - at)) - 1;
    for (; bits != 0; bits &= bits - 1)
      positions[found++] = static_cast<int32_t>(at) + __builtin_ctz(bits);
  }
#endif
  return found;
}

// ranks[i]: how many scores stand before scores[i] (higher, or as high with a lower index). All
// pairs are compared. Both arrays must have room for `count` rounded up to kTogether.
void rank(const float* scores, int64_t count, int32_t* ranks) {
  // Several vectors share each score that they are compared with.
  constexpr int kVectors = PYTRACE_VECTOR_BYTES == 64 ? 2 : 4;
  constexpr int64_t kTogether = kVectors * kLanes;
  VectorI lane{};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  for (int64_t first = 0; first < count; first += kTogether) {
    VectorF mine[kVectors];
    VectorI before[kVectors] = {};  // a comparison that holds is -1
    for (int v = 0; v < kVectors; ++v) mine[v] = load(scores + first + v * kLanes);
    for (int64_t i = 0; i < first; ++i) {
      const VectorF other = splat(scores[i]);
      for (int v = 0; v < kVectors; ++v) before[v] += (VectorI)(other >= mine[v]);
    }
#pragma GCC unroll 4
    for (int own = 0; own < kVectors; ++own) {
      const int64_t begin = first + own * kLanes;
      for (int64_t i = begin; i < begin + kLanes && i < count; ++i) {
        const VectorF other = splat(scores[i]);
        const VectorI behind = lane > static_cast<int32_t>(i - begin);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const VectorI higher = (VectorI)(other > mine[v]);
          const VectorI as_high = (VectorI)(other >= mine[v]);
          before[v] += v < own ? higher : v > own ? as_high : (higher | (as_high & behind));
        }
      }
    }
    for (int64_t i = first + kTogether; i < count; ++i) {
      const VectorF other = splat(scores[i]);
      for (int v = 0; v < kVectors; ++v) before[v] += (VectorI)(other > mine[v]);
    }
    for (int v = 0; v < kVectors; ++v) {
      before[v] = -before[v];
      std::memcpy(ranks + first + v * kLanes, &before[v], sizeof before[v]);
    }
  }
}

// How many scores reach the bound; `full` is a multiple of kLanes.
int64_t count_reaching(const float* scores, int64_t full, float bound) {
  const VectorF least = splat(bound);
#if defined(PYTRACE_TARGET_AVX512) || defined(PYTRACE_TARGET_AVX2)
  int count = 0;
  for (int64_t at = 0; at < full; at += kLanes) {
    count += __builtin_popcount(bits_of((VectorI)(load(scores + at) >= least)));
  }
  return count;
#else
  VectorI counts{};
  for (int64_t at = 0; at < full; at += kLanes) counts -= (VectorI)(load(scores + at) >= least);
  int64_t count = 0;
  for (int lane = 0; lane < kLanes; ++lane) count += counts[lane];
  return count;
#endif
}

// A bound that at least k of the `visible` scores reach, and hardly more than `enough` unless many
// are equal.
float bound_for(const float* scores, int64_t full, int64_t visible, int64_t k, int64_t enough,
                float low, float high) {
  constexpr int kMostProbes = 12;
  auto reaching_low = static_cast<float>(visible);
  float reaching_high = 0.0f;
  const float aim = 0.5f * static_cast<float>(k + enough);
  for (int probe = 0; probe < kMostProbes; ++probe) {
    // By turns where a straight line puts the wanted count, and the middle.
    const float part =
        probe % 3 == 2 ? 0.5f : (reaching_low - aim) / (reaching_low - reaching_high);
    const float middle = low + (high - low) * part;
    if (!(middle > low && middle < high)) break;
    const int64_t reaching = count_reaching(scores, full, middle);
    if (reaching < k) {
      high = middle;
      reaching_high = static_cast<float>(reaching);
    } else {
      low = middle;
      if (reaching <= enough) break;
      reaching_low = static_cast<float>(reaching);
    }
  }
  return low;
}

int64_t select(float* scores, int64_t count, int64_t k, float* best, int32_t* positions) {
  const int64_t full = (count + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = count; i < full; ++i) scores[i] = -kInfinity;
  VectorF highest = splat(-kInfinity);
  VectorF lowest = splat(kInfinity);
  int64_t visible = 0;
  for (int64_t at = 0; at < full; at += kLanes) {
    const VectorF value = load(scores + at);
    highest = larger(highest, value);
    const VectorI hidden = (VectorI)(value == splat(-kInfinity));
    const VectorF shown = hidden ? splat(kInfinity) : value;
    lowest = shown < lowest ? shown : lowest;
  }
  visible = count_reaching(scores, full, -kMostFloat);
  const int64_t found = k < visible ? k : visible;
  if (found == 0) return 0;
  float high = highest[0];
  float low = lowest[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    high = highest[lane] > high ? highest[lane] : high;
    low = lowest[lane] < low ? lowest[lane] : low;
  }
  const int64_t enough = (found + 8 + kLanes - 1) / kLanes * kLanes;
  const float bound =
      visible <= enough ? low : bound_for(scores, full, visible, found, enough, low, high);

  // Those that reach the bound, in order.
  alignas(64) float kept[kSelectRoom];
  int32_t places[kSelectRoom];
  int64_t kept_count = 0;
#if defined(PYTRACE_TARGET_AVX512)
  __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t at = 0; at < full; at += kLanes) {
    const VectorF value = load(scores + at);
    const __mmask16 mask = _mm512_movepi32_mask((__m512i)(VectorI)(value >= splat(bound)));
    store(kept + kept_count, (VectorF)_mm512_maskz_compress_ps(mask, (__m512)value));
    _mm512_storeu_si512(places + kept_count, _mm512_maskz_compress_epi32(mask, place));
    kept_count += __builtin_popcount(mask);
    place = _mm512_add_epi32(place, _mm512_set1_epi32(kLanes));
  }
#else
  for (int64_t i = 0; i < count; ++i) {
    kept[kept_count] = scores[i];
    places[kept_count] = static_cast<int32_t>(i);
    kept_count += scores[i] >= bound;
  }
#endif
  for (int v = 0; v < 4; ++v) store(kept + kept_count + v * kLanes, splat(-kInfinity));
  int32_t ranks[kSelectRoom];
  rank(kept, kept_count, ranks);
  for (int64_t i = 0; i < kept_count; ++i) {
    best[ranks[i]] = kept[i];
    positions[ranks[i]] = places[i];
  }
  return found;
}

extern const SelectKernels kSelectKernels;
const SelectKernels kSelectKernels = {&finish, &find_above, &select};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
