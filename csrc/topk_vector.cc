#include "topk_vector.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "target_vectors.h"

// A register block of kQueries x kItems running sums needs that many registers, kItems for the
// items' vectors and one for the query's; SSE2 has no fused multiply-add, so a product needs one
// more. All shapes have more independent sums than the 8 that two pipes with four cycles of latency
// need, and most do more multiply-adds than loads.
inline constexpr int kQueryBlock = 4;
inline constexpr int kMaxQueries =
    5;  // of one block: a fifth query costs less than a pass of its own
#if PYTRACE_VECTOR_BYTES == 64
inline constexpr int kItemsFor[kMaxQueries + 1] = {0, 8, 8, 6, 6, 5};
#elif PYTRACE_VECTOR_BYTES == 32
inline constexpr int kItemsFor[kMaxQueries + 1] = {0, 8, 4, 3, 3, 2};
#elif defined(__aarch64__)
inline constexpr int kItemsFor[kMaxQueries + 1] = {0, 8, 8, 6, 5, 5};
#else
inline constexpr int kItemsFor[kMaxQueries + 1] = {0, 8, 4, 3, 2, 2};
#endif
// Items that come from memory: a single query reads few rows side by side, because the processor's
// own prefetching follows few streams well, and asks for what it needs this many blocks later.
inline constexpr int kStreamedItems = 2;
inline constexpr int64_t kBlocksAhead = 3;

// Room for the queries of one job with 384 dimensions, in float32.
inline constexpr int64_t kAlignedValues = 4096;
inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kMostFloat = 3.40282347e38f;
// What `select` holds: all of its scores and a few vectors more.
inline constexpr int64_t kSelectRoom = kMaxSelected + 4 * kLanes;

template <bool kDistance, int kItems>
PYTRACE_INLINE void accumulate(VectorF query, const VectorF (&item)[kItems],
                               VectorF (&sums)[kItems]) {
#pragma GCC unroll 12
  for (int i = 0; i < kItems; ++i) {
    if constexpr (kDistance) {
      const VectorF difference = query - item[i];
      sums[i] += difference * difference;
    } else {
      sums[i] += query * item[i];
    }
  }
}

// With kStreamed, asks for the values that stand `ahead` of those at hand.
template <typename T, bool kDistance, bool kStreamed, int kQueries, int kItems>
PYTRACE_INLINE void score_block(const float* const (&queries)[kQueries],
                                const T* const (&items)[kItems], const float (&scale)[kItems],
                                int64_t dim, int64_t ahead, float (&out)[kQueries * kItems]) {
  VectorF sums[kQueries][kItems] = {};
  VectorF item[kItems];
  int64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) {
#pragma GCC unroll 12
    for (int i = 0; i < kItems; ++i) {
      if constexpr (kStreamed) __builtin_prefetch(items[i] + at + ahead);
      item[i] = load(items[i] + at);
      if constexpr (kDistance && sizeof(T) == 1) item[i] *= scale[i];
    }
#pragma GCC unroll 12
    for (int q = 0; q < kQueries; ++q) {
      VectorF query = load(queries[q] + at);
      hold_in_register(query);
      accumulate<kDistance>(query, item, sums[q]);
    }
  }
  if (at < dim) {
    // The last vector overlaps the one before, and the mask drops what was counted there already.
    VectorI mask{};
    const bool overlap = dim >= kLanes;
    if (overlap) {
      for (int lane = 0; lane < kLanes; ++lane) mask[lane] = lane >= kLanes - (dim - at) ? -1 : 0;
    }
    for (int i = 0; i < kItems; ++i) {
      item[i] = overlap ? keep(load(items[i] + dim - kLanes), mask) : load_first(items[i], dim);
      if constexpr (kDistance && sizeof(T) == 1) item[i] *= scale[i];
    }
    for (int q = 0; q < kQueries; ++q) {
      const VectorF query =
          overlap ? keep(load(queries[q] + dim - kLanes), mask) : load_first(queries[q], dim);
      accumulate<kDistance>(query, item, sums[q]);
    }
  }
  constexpr int kTotal = kQueries * kItems;
  const VectorF* flat = &sums[0][0];
#pragma GCC unroll 12
  for (int base = 0; base < kTotal; base += 4) {
    const VectorF zero{};
    const Vector4F four = sum_four(flat[base], base + 1 < kTotal ? flat[base + 1] : zero,
                                   base + 2 < kTotal ? flat[base + 2] : zero,
                                   base + 3 < kTotal ? flat[base + 3] : zero);
    const int live = kTotal - base < 4 ? kTotal - base : 4;
    std::memcpy(out + base, &four, sizeof(float) * static_cast<size_t>(live));
  }
}

// All items against kQueries queries. The last block repeats its last item rather than reading past
// it.
template <typename T, bool kDistance, bool kStreamed, int kQueries, int kItems>
void score_queries(const ScoreJob& job, int64_t first_query, float* out, int64_t out_stride) {
  const float* queries[kQueries];
  for (int q = 0; q < kQueries; ++q)
    queries[q] = job.queries + (first_query + q) * job.query_stride;
  const T* base = static_cast<const T*>(job.items);
  for (int64_t first = 0; first < job.item_count; first += kItems) {
    const T* items[kItems];
    float scale[kItems];
    const int64_t live = job.item_count - first < kItems ? job.item_count - first : kItems;
    for (int i = 0; i < kItems; ++i) {
      const int64_t item = first + (i < live ? i : live - 1);
      items[i] = base + item * job.item_stride;
      scale[i] = job.item_scale != nullptr ? job.item_scale[item] : 1.0f;
    }
    float block[kQueries * kItems];
    score_block<T, kDistance, kStreamed>(queries, items, scale, job.dim,
                                         kBlocksAhead * kItems * job.item_stride, block);
    for (int q = 0; q < kQueries; ++q) {
      float* to = out + (first_query + q) * out_stride + first;
      for (int64_t i = 0; i < live; ++i) to[i] = block[q * kItems + i];
    }
  }
}

template <typename T, bool kDistance, bool kStreamed, int kQueries>
void score_rest(const ScoreJob& job, int64_t query, float* out, int64_t out_stride) {
  constexpr int kItems = kStreamed && kQueries == 1 ? kStreamedItems : kItemsFor[kQueries];
  score_queries<T, kDistance, kStreamed, kQueries, kItems>(job, query, out, out_stride);
}

template <typename T, bool kDistance, bool kStreamed>
void score_chunk(const ScoreJob& job, float* out, int64_t out_stride) {
  int64_t query = 0;
  for (; query + kMaxQueries < job.query_count; query += kQueryBlock) {
    score_rest<T, kDistance, kStreamed, kQueryBlock>(job, query, out, out_stride);
  }
  switch (job.query_count - query) {
    case 5:
      return score_rest<T, kDistance, kStreamed, 5>(job, query, out, out_stride);
    case 4:
      return score_rest<T, kDistance, kStreamed, 4>(job, query, out, out_stride);
    case 3:
      return score_rest<T, kDistance, kStreamed, 3>(job, query, out, out_stride);
    case 2:
      return score_rest<T, kDistance, kStreamed, 2>(job, query, out, out_stride);
    case 1:
      return score_rest<T, kDistance, kStreamed, 1>(job, query, out, out_stride);
    default:
      return;
  }
}

template <typename T, bool kDistance>
void score_typed(const ScoreJob& job, float* out, int64_t out_stride) {
  // Items that all query blocks meet while they are in the first-level cache; 12 is a multiple of
  // nearly every block.
  constexpr int64_t kChunkBytes = 16 << 10;
  const int64_t row_bytes = (job.dim < 1 ? 1 : job.dim) * static_cast<int64_t>(sizeof(T));
  const int64_t fitting = kChunkBytes / row_bytes / 12 * 12;
  const int64_t chunk = job.query_count <= kMaxQueries || job.streamed ? job.item_count
                        : fitting < 12                                 ? 12
                                                                       : fitting;
  ScoreJob part = job;
  // Half of a block's loads are of queries: moving these to where no load crosses a cache line is
  // soon repaid. (Items stay as they lie.)
  alignas(64) float aligned[kAlignedValues];
  const int64_t padded = (job.dim + kLanes - 1) / kLanes * kLanes;
  if (kLanes > 4 && job.query_count > 1 && padded * job.query_count <= kAlignedValues &&
      (reinterpret_cast<uintptr_t>(job.queries) % PYTRACE_VECTOR_BYTES != 0 ||
       job.query_stride % kLanes != 0)) {
    for (int64_t q = 0; q < job.query_count; ++q) {
      std::memcpy(aligned + q * padded, job.queries + q * job.query_stride,
                  sizeof(float) * static_cast<size_t>(job.dim));
    }
    part.queries = aligned;
    part.query_stride = padded;
  }
  for (int64_t first = 0; first < job.item_count; first += chunk) {
    part.items = static_cast<const T*>(job.items) + first * job.item_stride;
    part.item_count = job.item_count - first < chunk ? job.item_count - first : chunk;
    part.item_scale = job.item_scale == nullptr ? nullptr : job.item_scale + first;
    if (job.streamed) {
      score_chunk<T, kDistance, true>(part, out + first, out_stride);
    } else {
      score_chunk<T, kDistance, false>(part, out + first, out_stride);
    }
  }
}

template <typename T>
void score_items(const ScoreJob& job, float* out, int64_t out_stride) {
  if (job.squared_distance) {
    score_typed<T, true>(job, out, out_stride);
  } else {
    score_typed<T, false>(job, out, out_stride);
  }
}

void score(const ScoreJob& job, float* out, int64_t out_stride) {
  switch (job.item_type) {
    case ItemType::kFloat32:
      return score_items<float>(job, out, out_stride);
    case ItemType::kFloat16:
      return score_items<uint16_t>(job, out, out_stride);
    case ItemType::kInt8:
      return score_items<int8_t>(job, out, out_stride);
  }
}

template <typename T, bool kDistance>
void score_listed_typed(const ScoreJob& job, const int32_t* which, int64_t count, float* out) {
  constexpr int kItems = 4;
  const float* const queries[1] = {job.queries};
  const T* base = static_cast<const T*>(job.items);
  for (int64_t first = 0; first < count; first += kItems) {
    const T* items[kItems];
    float scale[kItems];
    for (int i = 0; i < kItems; ++i) {
      const int32_t item = which[first + i < count ? first + i : count - 1];
      items[i] = base + item * job.item_stride;
      scale[i] = job.item_scale != nullptr ? job.item_scale[item] : 1.0f;
    }
    float block[kItems];
    score_block<T, kDistance, false>(queries, items, scale, job.dim, 0, block);
    for (int i = 0; i < kItems && first + i < count; ++i) out[first + i] = block[i];
  }
}

template <typename T>
void score_listed_items(const ScoreJob& job, const int32_t* which, int64_t count, float* out) {
  if (job.squared_distance) {
    score_listed_typed<T, true>(job, which, count, out);
  } else {
    score_listed_typed<T, false>(job, which, count, out);
  }
}

void score_listed(const ScoreJob& job, const int32_t* which, int64_t count, float* out) {
  switch (job.item_type) {
    case ItemType::kFloat32:
      return score_listed_items<float>(job, which, count, out);
    case ItemType::kFloat16:
      return score_listed_items<uint16_t>(job, which, count, out);
    case ItemType::kInt8:
      return score_listed_items<int8_t>(job, which, count, out);
  }
}

template <typename T>
void widen_typed(const ScoreJob& job, float* out) {
  const T* base = static_cast<const T*>(job.items);
  for (int64_t item = 0; item < job.item_count; ++item) {
    const T* from = base + item * job.item_stride;
    float* to = out + item * job.dim;
    int64_t at = 0;
    for (; at + kLanes <= job.dim; at += kLanes) store(to + at, load(from + at));
    if (at < job.dim) {
      const VectorF last = load_first(from + at, job.dim - at);
      std::memcpy(to + at, &last, sizeof(float) * static_cast<size_t>(job.dim - at));
    }
  }
}

void widen(const ScoreJob& job, float* out) {
  switch (job.item_type) {
    case ItemType::kFloat32:
      return widen_typed<float>(job, out);
    case ItemType::kFloat16:
      return widen_typed<uint16_t>(job, out);
    case ItemType::kInt8:
      return widen_typed<int8_t>(job, out);
  }
}

template <typename T>
void squared_lengths_typed(const ScoreJob& job, float* out) {
  const T* base = static_cast<const T*>(job.items);
  for (int64_t first = 0; first < job.item_count; first += 4) {
    const int64_t live = job.item_count - first < 4 ? job.item_count - first : 4;
    VectorF sums[4] = {};
    for (int64_t i = 0; i < live; ++i) {
      const T* item = base + (first + i) * job.item_stride;
      int64_t at = 0;
      for (; at + kLanes <= job.dim; at += kLanes) {
        const VectorF value = load(item + at);
        sums[i] += value * value;
      }
      if (at < job.dim) {
        VectorF value;
        if (job.dim >= kLanes) {
          VectorI mask = VectorI{};
          for (int lane = 0; lane < kLanes; ++lane)
            mask[lane] = lane >= kLanes - (job.dim - at) ? -1 : 0;
          value = keep(load(item + job.dim - kLanes), mask);
        } else {
          value = load_first(item, job.dim);
        }
        sums[i] += value * value;
      }
    }
    const Vector4F four = sum_four(sums[0], sums[1], sums[2], sums[3]);
    std::memcpy(out + first, &four, sizeof(float) * static_cast<size_t>(live));
  }
}

void squared_lengths(const ScoreJob& job, float* out) {
  switch (job.item_type) {
    case ItemType::kFloat32:
      return squared_lengths_typed<float>(job, out);
    case ItemType::kFloat16:
      return squared_lengths_typed<uint16_t>(job, out);
    case ItemType::kInt8:
      return squared_lengths_typed<int8_t>(job, out);
  }
}

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

int64_t find_above(const float* scores, int64_t begin, int64_t count, float threshold) {
  constexpr int64_t kBlock = 4 * kLanes;
  int64_t at = begin;
  for (; at + kBlock <= count; at += kBlock) {
    const VectorF best =
        larger(larger(load(scores + at), load(scores + at + kLanes)),
               larger(load(scores + at + 2 * kLanes), load(scores + at + 3 * kLanes)));
    if (any((VectorI)(best > splat(threshold)))) return at;
  }
  for (; at < count; ++at) {
    if (scores[at] > threshold) return at;
  }
  return count;
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

extern const VectorKernels kTopKernels;
const VectorKernels kTopKernels = {&score,  &score_listed, &widen,  &squared_lengths,
                                   &finish, &find_above,   &select, kQueryBlock};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "target_end.h"
