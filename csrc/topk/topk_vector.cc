#include "topk/topk_vector.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {

#include "common/target_vectors.h"

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

// The product, rounded: fused with the subtraction that follows in some blocks and not in others,
// it would make scores depend on the batch.
PYTRACE_INLINE VectorF scaled(VectorF value, float scale) {
  VectorF product = value * scale;
  hold_in_register(product);
  return product;
}

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
      if constexpr (kDistance && sizeof(T) == 1) item[i] = scaled(item[i], scale[i]);
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
      if constexpr (kDistance && sizeof(T) == 1) item[i] = scaled(item[i], scale[i]);
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

// Contiguous rows that all begin at the same place within a vector's length of memory, against one
// query: every load is of whole aligned vectors, and two neighbours give the one that lies across
// them. A load across two cache lines costs as much as two, and with one query loads are all there
// is to do. Reads up to a vector before the first row and behind the last.
#if defined(PYTRACE_TARGET_AVX512) || defined(PYTRACE_TARGET_AVX2)
#if defined(PYTRACE_TARGET_AVX512)
inline constexpr int kShiftedItems = 8;
#else
inline constexpr int kShiftedItems = 6;
#endif

// How many floats the rows stand behind an aligned vector; 0 if there is nothing to gain or no way.
inline int64_t shift_of(const ScoreJob& job) {
  if (job.item_type != ItemType::kFloat32 || job.squared_distance || job.dim == 0 ||
      job.dim % kLanes != 0 || job.item_stride != job.dim) {
    return 0;
  }
  const auto bytes = reinterpret_cast<uintptr_t>(job.items) % PYTRACE_VECTOR_BYTES;
#if defined(PYTRACE_TARGET_AVX512)
  return bytes % sizeof(float) == 0 ? static_cast<int64_t>(bytes / sizeof(float)) : 0;
#else
  return bytes == 16 ? 4 : 0;
#endif
}

PYTRACE_INLINE VectorF across(VectorF low, VectorF high, [[maybe_unused]] VectorI from) {
#if defined(PYTRACE_TARGET_AVX512)
  return (VectorF)_mm512_permutex2var_ps((__m512)low, (__m512i)from, (__m512)high);
#else
  return (VectorF)_mm256_permute2f128_ps((__m256)low, (__m256)high, 0x21);
#endif
}

// Items [first, first + kShiftedItems), none of them the job's first or last.
inline void score_shifted(const ScoreJob& job, int64_t first, int64_t shift, float* out) {
  const float* rows = static_cast<const float*>(job.items) + first * job.dim - shift;
  VectorI from{};
  for (int lane = 0; lane < kLanes; ++lane) from[lane] = static_cast<int32_t>(lane + shift);
  VectorF sums[kShiftedItems] = {};
  VectorF low[kShiftedItems];
#pragma GCC unroll 8
  for (int i = 0; i < kShiftedItems; ++i) low[i] = load(rows + i * job.dim);
  for (int64_t at = 0; at < job.dim; at += kLanes) {
    VectorF query = load(job.queries + at);
    hold_in_register(query);
#pragma GCC unroll 8
    for (int i = 0; i < kShiftedItems; ++i) {
      const VectorF high = load(rows + i * job.dim + at + kLanes);
      sums[i] += query * across(low[i], high, from);
      low[i] = high;
    }
  }
  for (int i = 0; i < kShiftedItems; i += 2) {
    const int j = i + 1;
    const Vector4F two = sum_four(sums[i], sums[j], VectorF{}, VectorF{});
    out[first + i] = two[0];
    out[first + j] = two[1];
  }
}
#endif

// All items against kQueries queries. The last block repeats its last item rather than reading past
// it.
template <typename T, bool kDistance, bool kStreamed, int kQueries, int kItems>
void score_queries(const ScoreJob& job, int64_t first_query, float* out, int64_t out_stride) {
  const float* queries[kQueries];
  for (int q = 0; q < kQueries; ++q)
    queries[q] = job.queries + (first_query + q) * job.query_stride;
  const T* base = static_cast<const T*>(job.items);
#if defined(PYTRACE_TARGET_AVX512) || defined(PYTRACE_TARGET_AVX2)
  const int64_t shift = kQueries == 1 && !kStreamed ? shift_of(job) : 0;
#endif
  for (int64_t first = 0; first < job.item_count; first += kItems) {
#if defined(PYTRACE_TARGET_AVX512) || defined(PYTRACE_TARGET_AVX2)
    if constexpr (kQueries == 1 && !kStreamed && !kDistance) {
      if (shift != 0 && first != 0) {
        ScoreJob own = job;
        own.queries = queries[0];
        for (; first + kShiftedItems < job.item_count; first += kShiftedItems) {
          score_shifted(own, first, shift, out + first_query * out_stride);
        }
      }
    }
#endif
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

extern const ScoreKernels kScoreKernels;
const ScoreKernels kScoreKernels = {&score, &score_listed, &widen, &squared_lengths, kQueryBlock};

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
