#include "fuzzy/fuzzy_vector.h"

#include "common/target_begin.h"

namespace pytrace::PYTRACE_TARGET_NAMESPACE {
namespace {

template <typename Mask>
struct Lanes {
  static constexpr int64_t kCount = PYTRACE_VECTOR_BYTES / static_cast<int64_t>(sizeof(Mask));
  typedef Mask Vector __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
  // The same for loads and stores that are aligned to nothing more than a lane.
  typedef Mask Unaligned
      __attribute__((vector_size(PYTRACE_VECTOR_BYTES), aligned(sizeof(Mask)), may_alias));
};

// The step S' = (S + (S & M)) | (S - (S & M)) has a chain of three operations (and, add, or) and
// four in all. Four independent registers keep three vector ports busy through that chain; more
// would not shorten it.
constexpr int kGroups = 4;

template <typename Mask>
constexpr Mask repeat(unsigned char byte) {
  Mask value = 0;
  for (unsigned i = 0; i < sizeof(Mask); ++i) value = static_cast<Mask>((value << 4 << 4) | byte);
  return value;
}

// Stores the number of set bits of each lane of `groups` registers.
template <typename Mask, int groups>
inline __attribute__((always_inline)) void store_zero_counts(
    const typename Lanes<Mask>::Vector (&state)[groups], Mask* out) {
  using Vector = typename Lanes<Mask>::Vector;
  using Unaligned = typename Lanes<Mask>::Unaligned;
  constexpr Mask k55 = repeat<Mask>(0x55), k33 = repeat<Mask>(0x33), k0f = repeat<Mask>(0x0f);
  constexpr Mask kCount = static_cast<Mask>(2 * 8 * sizeof(Mask) - 1);
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) {
    Vector x = ~state[g];
    x = x - ((x >> 1) & k55);
    x = (x & k33) + ((x >> 2) & k33);
    x = (x + (x >> 4)) & k0f;
    if constexpr (sizeof(Mask) >= 2) x = x + (x >> 8);
    if constexpr (sizeof(Mask) >= 4) x = x + (x >> 16);
    if constexpr (sizeof(Mask) >= 8) x = x + (x >> 32);
    if constexpr (sizeof(Mask) >= 2) x = x & kCount;
    *reinterpret_cast<Unaligned*>(out + g * Lanes<Mask>::kCount) = x;
  }
}

template <typename Mask, int groups>
inline __attribute__((always_inline)) void window_block(const Mask* masks, int64_t steps,
                                                        Mask* lcs) {
  using Vector = typename Lanes<Mask>::Vector;
  using Unaligned = typename Lanes<Mask>::Unaligned;
  Vector state[groups];
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) state[g] = ~Vector{};
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) {
      const Vector mask = *reinterpret_cast<const Unaligned*>(masks + i + g * Lanes<Mask>::kCount);
      const Vector matched = state[g] & mask;
      state[g] = (state[g] + matched) | (state[g] ^ matched);
    }
  }
  store_zero_counts<Mask, groups>(state, lcs);
}

template <typename Mask>
void windows(const Mask* masks, int64_t count, int64_t steps, Mask* lcs) {
  constexpr int64_t lanes = Lanes<Mask>::kCount;
  int64_t w = 0;
  for (; count - w > 2 * lanes; w += kGroups * lanes) {
    window_block<Mask, kGroups>(masks + w, steps, lcs + w);
  }
  if (count - w > lanes) {
    window_block<Mask, 2>(masks + w, steps, lcs + w);
  } else if (count - w > 0) {
    window_block<Mask, 1>(masks + w, steps, lcs + w);
  }
}

// Halves the register until one lane is left.
template <typename Mask>
inline __attribute__((always_inline)) Mask largest_lane(typename Lanes<Mask>::Vector tops) {
  typedef Mask Narrow __attribute__((vector_size(16)));
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  Narrow parts[PYTRACE_VECTOR_BYTES / 16];
  __builtin_memcpy(parts, &tops, sizeof parts);
  Narrow top = parts[0];
#pragma GCC unroll 4
  for (int part = 1; part < PYTRACE_VECTOR_BYTES / 16; ++part) {
    top = parts[part] > top ? parts[part] : top;
  }
  const auto keep_larger = [&top](Bytes moved) {
    const auto other = (Narrow)moved;
    top = other > top ? other : top;
  };
  auto bytes = (Bytes)top;
  keep_larger(
      __builtin_shufflevector(bytes, bytes, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  if constexpr (sizeof(Mask) <= 4) {
    bytes = (Bytes)top;
    keep_larger(__builtin_shufflevector(bytes, bytes, 4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13,
                                        14, 15));
  }
  if constexpr (sizeof(Mask) <= 2) {
    bytes = (Bytes)top;
    keep_larger(__builtin_shufflevector(bytes, bytes, 2, 3, 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                        14, 15));
  }
  if constexpr (sizeof(Mask) == 1) {
    bytes = (Bytes)top;
    keep_larger(__builtin_shufflevector(bytes, bytes, 1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                        14, 15));
  }
  return top[0];
}

template <typename Mask>
Mask largest(const Mask* begin, int64_t count) {
  using Vector = typename Lanes<Mask>::Vector;
  using Unaligned = typename Lanes<Mask>::Unaligned;
  constexpr int64_t lanes = Lanes<Mask>::kCount;
  Mask top = 0;
  if (count < lanes) {
    for (int64_t i = 0; i < count; ++i) top = begin[i] > top ? begin[i] : top;
    return top;
  }
  // The last vector may overlap the one before it: a maximum does not mind.
  Vector tops = *reinterpret_cast<const Unaligned*>(begin + count - lanes);
  for (int64_t i = 0; i < count - lanes; i += lanes) {
    const Vector next = *reinterpret_cast<const Unaligned*>(begin + i);
    tops = next > tops ? next : tops;
  }
  return largest_lane<Mask>(tops);
}

inline uint64_t reversed_bits(uint64_t x) {
  x = ((x >> 1) & 0x5555555555555555u) | ((x & 0x5555555555555555u) << 1);
  x = ((x >> 2) & 0x3333333333333333u) | ((x & 0x3333333333333333u) << 2);
  x = ((x >> 4) & 0x0f0f0f0f0f0f0f0fu) | ((x & 0x0f0f0f0f0f0f0f0fu) << 4);
  return __builtin_bswap64(x);
}

// Lets the shortened windows at one end compete: one recurrence from the end inwards meets them
// all, shortest first. `top` is the LCS of the whole window there.
template <bool prefixes, typename Mask>
void shortened_windows(const Mask* masks, int64_t n, int64_t m, int64_t top, FuzzyWindow* best) {
  // A shortened window is part of a whole one, so its LCS is at most that one's; and a window of
  // LCS x is at least x long.
  if (top * (m + best->length) <= best->lcs * (m + top)) return;
  int64_t longest = m - 1;
  if (best->lcs > 0) {
    // Even with the LCS `top` a longer one cannot win.
    const auto limit = static_cast<uint32_t>(top * (m + best->length) - 1);
    longest = limit / static_cast<uint32_t>(best->lcs) - m;
    longest = longest < m - 1 ? longest : m - 1;
  }
  uint64_t state = ~uint64_t{0};
  for (int64_t length = 1; length <= longest; ++length) {
    const uint64_t mask =
        prefixes ? masks[length - 1] : reversed_bits(masks[n - length]) >> (64 - m);
    const uint64_t matched = state & mask;
    state = (state + matched) | (state ^ matched);
    const int64_t lcs = __builtin_popcountll(~state);
    if (lcs * (m + best->length) > best->lcs * (m + length)) *best = {lcs, length};
  }
}

template <typename Mask>
FuzzyWindow best_window(const Mask* lcs, const Mask* masks, int64_t n, int64_t m, int ends) {
  FuzzyWindow best{static_cast<int64_t>(largest<Mask>(lcs, n - m + 1)), m};
  if ((ends & kFuzzyPrefixes) != 0) {
    shortened_windows<true>(masks, n, m, static_cast<int64_t>(lcs[0]), &best);
  }
  if ((ends & kFuzzySuffixes) != 0) {
    shortened_windows<false>(masks, n, m, static_cast<int64_t>(lcs[n - m]), &best);
  }
  return best;
}

template <typename Mask, int groups>
void pack(const Mask* table, const uint32_t* rows, int64_t n, Mask* lcs) {
  using Vector = typename Lanes<Mask>::Vector;
  using Unaligned = typename Lanes<Mask>::Unaligned;
  constexpr int64_t lanes = Lanes<Mask>::kCount;
  Vector state[groups];
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) state[g] = ~Vector{};
  for (int64_t i = 0; i < n; ++i) {
    const Mask* row = table + static_cast<int64_t>(rows[i]) * groups * lanes;
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) {
      const Vector mask = *reinterpret_cast<const Unaligned*>(row + g * lanes);
      const Vector matched = state[g] & mask;
      state[g] = (state[g] + matched) | (state[g] ^ matched);
    }
  }
  store_zero_counts<Mask, groups>(state, lcs);
}

template <typename Mask, bool percent>
void scores_as(const Mask* lcs, const int32_t* sizes, int64_t n, int64_t count, double* out) {
  for (int64_t k = 0; k < count; ++k) {
    // All below 2^31, so 32-bit integers convert exactly and in one instruction a vector.
    const int32_t total = sizes[k] + static_cast<int32_t>(n);
    const int32_t distance = total - 2 * static_cast<int32_t>(lcs[k]);
    const double divisor = total > 0 ? static_cast<double>(total) : 1.0;
    out[k] = percent ? 100.0 - 100.0 * static_cast<double>(distance) / divisor
                     : (1.0 - static_cast<double>(distance) / divisor) * 100.0;
  }
}

template <typename Mask>
void scores(const Mask* lcs, const int32_t* sizes, int64_t n, int64_t count, bool percent,
            double* out) {
  (percent ? scores_as<Mask, true> : scores_as<Mask, false>)(lcs, sizes, n, count, out);
}

void bag_bounds(const FuzzyBag& needle, const FuzzyBag* bags, int64_t count, uint8_t* bounds) {
  using Vector = typename Lanes<uint8_t>::Vector;
  constexpr int kParts = 64 / PYTRACE_VECTOR_BYTES;
  typedef uint64_t Halves __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
  const auto* own = reinterpret_cast<const Vector*>(needle.counts);
  for (int64_t k = 0; k < count; ++k) {
    const auto* other = reinterpret_cast<const Vector*>(bags[k].counts);
    Vector sum{};
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      sum += own[part] < other[part] ? own[part] : other[part];
    }
    // No byte overflows: all of them together are at most the needle's characters.
    const auto halves = (Halves)sum;
    uint64_t bytes = 0;
    for (int i = 0; i < PYTRACE_VECTOR_BYTES / 8; ++i) bytes += halves[i];
    bounds[k] = static_cast<uint8_t>((bytes * 0x0101010101010101u) >> 56);
  }
}

// Cell (i, j) is where the strand of row i meets the strand of column j. They cross unless the
// characters match or they have crossed before, which is when the one from the left has the higher
// number. The cells of an anti-diagonal are independent, and with the rows stored backwards they
// are contiguous in all four arrays.
template <typename Strand>
void comb(const Strand* __restrict backwards, int64_t m, const Strand* __restrict text, int64_t n,
          Strand* __restrict left, Strand* __restrict below) {
  using Vector = typename Lanes<Strand>::Vector;
  using Unaligned = typename Lanes<Strand>::Unaligned;
  constexpr int64_t lanes = Lanes<Strand>::kCount;
  Vector index;
  for (int64_t lane = 0; lane < lanes; ++lane) index[lane] = static_cast<Strand>(lane);
  for (int64_t i = 0; i < m; ++i) left[i] = static_cast<Strand>(i);
  for (int64_t j = 0; j < n; ++j) below[j] = static_cast<Strand>(m + j);
  for (int64_t diagonal = 0; diagonal < m + n - 1; ++diagonal) {
    const int64_t begin = diagonal - m + 1 > 0 ? diagonal - m + 1 : 0;
    const int64_t end = diagonal + 1 < n ? diagonal + 1 : n;
    const int64_t shift = m - 1 - diagonal;
    for (int64_t j = begin; j < end; j += lanes) {
      const Vector from_left = *reinterpret_cast<const Unaligned*>(left + shift + j);
      const Vector from_top = *reinterpret_cast<const Unaligned*>(below + j);
      const Vector match = *reinterpret_cast<const Unaligned*>(backwards + shift + j) ==
                           *reinterpret_cast<const Unaligned*>(text + j);
      const Vector low = from_left < from_top ? from_left : from_top;
      const Vector high = from_left < from_top ? from_top : from_left;
      Vector to_right = match ? from_top : low;
      Vector to_bottom = match ? from_left : high;
      if (end - j < lanes) {
        const Vector inside = index < static_cast<Strand>(end - j);
        to_right = inside ? to_right : from_left;
        to_bottom = inside ? to_bottom : from_top;
      }
      *reinterpret_cast<Unaligned*>(left + shift + j) = to_right;
      *reinterpret_cast<Unaligned*>(below + j) = to_bottom;
    }
  }
}

template <typename Mask>
constexpr FuzzyLanes<Mask> lanes_of() {
  constexpr int64_t lanes = Lanes<Mask>::kCount;
  return {&windows<Mask>, &best_window<Mask>, &pack<Mask, kGroups>, &pack<Mask, 1>, kGroups * lanes,
          lanes,          kGroups * lanes};
}

constexpr FuzzyVector kVector = {
    lanes_of<uint8_t>(), lanes_of<uint16_t>(), lanes_of<uint32_t>(), lanes_of<uint64_t>(),
    &scores<uint8_t>,    &scores<uint16_t>,    &scores<uint32_t>,    &scores<uint64_t>,
    &comb<int16_t>,      &comb<int32_t>,       PYTRACE_VECTOR_BYTES, &bag_bounds,
};

}  // namespace

const FuzzyVector& fuzzy_vector() { return kVector; }

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
