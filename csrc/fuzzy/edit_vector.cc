#include "fuzzy/edit_vector.h"

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

template <typename Mask>
inline __attribute__((always_inline)) typename Lanes<Mask>::Vector load(const Mask* from) {
  return *reinterpret_cast<const typename Lanes<Mask>::Unaligned*>(from);
}

template <typename Mask>
inline __attribute__((always_inline)) void store(Mask* to, typename Lanes<Mask>::Vector value) {
  *reinterpret_cast<typename Lanes<Mask>::Unaligned*>(to) = value;
}

template <typename Mask>
constexpr Mask repeat(unsigned char byte) {
  Mask value = 0;
  for (unsigned i = 0; i < sizeof(Mask); ++i) value = static_cast<Mask>((value << 4 << 4) | byte);
  return value;
}

// The number of set bits of each lane.
template <typename Mask>
inline __attribute__((always_inline)) typename Lanes<Mask>::Vector bit_counts(
    typename Lanes<Mask>::Vector x) {
  constexpr Mask k55 = repeat<Mask>(0x55), k33 = repeat<Mask>(0x33), k0f = repeat<Mask>(0x0f);
  constexpr Mask kCount = static_cast<Mask>(2 * 8 * sizeof(Mask) - 1);
  x = x - ((x >> 1) & k55);
  x = (x & k33) + ((x >> 2) & k33);
  x = (x + (x >> 4)) & k0f;
  if constexpr (sizeof(Mask) >= 2) x = x + (x >> 8);
  if constexpr (sizeof(Mask) >= 4) x = x + (x >> 16);
  if constexpr (sizeof(Mask) >= 8) x = x + (x >> 32);
  if constexpr (sizeof(Mask) >= 2) x = x & kCount;
  return x;
}

// A step has a chain of ten operations and thirteen in all: four registers keep the ports busy
// through it.
constexpr int kGroups = 4;
constexpr int kLongGroups = 2;

template <typename Mask, int groups, bool own_sizes>
inline __attribute__((always_inline)) void levenshtein_pack(const Mask* table, const Mask* ends,
                                                            const Mask* sizes, const uint32_t* rows,
                                                            int64_t n, Mask* up, Mask* down) {
  using Vector = typename Lanes<Mask>::Vector;
  constexpr int64_t lanes = Lanes<Mask>::kCount;
  Vector more[groups];  // where a cell is one more than the one above
  Vector less[groups];
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) {
    more[g] = ~Vector{};
    less[g] = Vector{};
  }
  Vector place = Vector{};
  for (int64_t i = 0; i < n; ++i) {
    const Mask* row = table + static_cast<int64_t>(rows[i]) * groups * lanes;
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) {
      const Vector match = load<Mask>(row + g * lanes) | less[g];
      const Vector zero = (((match & more[g]) + more[g]) ^ more[g]) | match;
      // Shifting the complement of "one more than to the left" shifts in the one of the top row.
      Vector right = (zero | more[g]) & ~less[g];
      const Vector left = zero & more[g];
      right = right + right;
      const Vector next_more = (left + left) | (right & ~zero);
      const Vector next_less = zero & ~right;
      if constexpr (own_sizes) {
        const auto live = (Vector)(place < load<Mask>(sizes + g * lanes));
        more[g] = (next_more & live) | (more[g] & ~live);
        less[g] = (next_less & live) | (less[g] & ~live);
      } else {
        more[g] = next_more;
        less[g] = next_less;
      }
    }
    if constexpr (own_sizes) place = place + static_cast<Mask>(1);
  }
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) {
    const Vector end = load<Mask>(ends + g * lanes);
    store<Mask>(up + g * lanes, bit_counts<Mask>(more[g] & end));
    store<Mask>(down + g * lanes, bit_counts<Mask>(less[g] & end));
  }
}

template <typename Mask, int groups>
void levenshtein(const Mask* table, const Mask* ends, const Mask* sizes, const uint32_t* rows,
                 int64_t n, Mask* up, Mask* down) {
  if (sizes != nullptr) {
    levenshtein_pack<Mask, groups, true>(table, ends, sizes, rows, n, up, down);
  } else {
    levenshtein_pack<Mask, groups, false>(table, ends, sizes, rows, n, up, down);
  }
}

template <typename Mask, int groups, bool together>
inline __attribute__((always_inline)) void jaro_pack(const Mask* table, const Mask* bounds,
                                                     int64_t bound, const uint32_t* rows, int64_t n,
                                                     Mask* hits, Mask* common, Mask* matching) {
  using Vector = typename Lanes<Mask>::Vector;
  constexpr int64_t lanes = Lanes<Mask>::kCount;
  constexpr int64_t width = groups * lanes;
  constexpr int kWindows = together ? 1 : groups;
  Vector window[kWindows];
  Vector limit[kWindows];
  Vector free[groups];
  if constexpr (together) {
    const Mask low = bound + 1 >= static_cast<int64_t>(8 * sizeof(Mask))
                         ? static_cast<Mask>(~Mask{0})
                         : static_cast<Mask>((uint64_t{1} << (bound + 1)) - 1);
    window[0] = Vector{} + low;
  } else {
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) {
      limit[g] = load<Mask>(bounds + g * lanes);
      Mask first[lanes];
      for (int64_t k = 0; k < lanes; ++k) {
        const uint64_t size = static_cast<uint64_t>(bounds[g * lanes + k]) + 1;
        first[k] =
            static_cast<Mask>(size >= 8 * sizeof(Mask) ? ~uint64_t{0} : (uint64_t{1} << size) - 1);
      }
      window[g] = load<Mask>(first);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) free[g] = ~Vector{};
  Vector place = Vector{};
  for (int64_t i = 0; i < n; ++i) {
    const Mask* row = table + static_cast<int64_t>(rows[i]) * width;
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) {
      const Vector able = load<Mask>(row + g * lanes) & free[g] & window[together ? 0 : g];
      const Vector hit = able & -able;
      free[g] ^= hit;
      store<Mask>(hits + i * width + g * lanes, hit);
    }
    if constexpr (together) {
      window[0] = window[0] + window[0];
      if (i < bound) window[0] |= static_cast<Mask>(1);
    } else {
      // Up to the bound the window grows at its low end, too.
#pragma GCC unroll 4
      for (int g = 0; g < groups; ++g) {
        const auto grows = (Vector)(place < limit[g]);
        window[g] = window[g] + window[g] - grows;
      }
      place = place + static_cast<Mask>(1);
    }
  }
  Vector left[groups];
  Vector same[groups];
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) {
    left[g] = ~free[g];
    store<Mask>(common + g * lanes, bit_counts<Mask>(left[g]));
    same[g] = Vector{};
  }
  for (int64_t i = 0; i < n; ++i) {
    const Mask* row = table + static_cast<int64_t>(rows[i]) * width;
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) {
      const Vector hit = load<Mask>(hits + i * width + g * lanes);
      const auto none = (Vector)(hit == Vector{});
      const Vector next = left[g] & -left[g] & ~none;
      left[g] ^= next;
      const auto differs = (Vector)((load<Mask>(row + g * lanes) & next) == Vector{});
      same[g] += differs + static_cast<Mask>(1);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) store<Mask>(matching + g * lanes, same[g]);
}

template <typename Mask, int groups>
void jaro(const Mask* table, const Mask* bounds, bool together, int64_t bound, const uint32_t* rows,
          int64_t n, Mask* hits, Mask* common, Mask* matching) {
  if (together) {
    jaro_pack<Mask, groups, true>(table, bounds, bound, rows, n, hits, common, matching);
  } else {
    jaro_pack<Mask, groups, false>(table, bounds, bound, rows, n, hits, common, matching);
  }
}

// One word of every needle of a register: `match` its masks, `from_left` and `from_right` what
// comes in from the word above, which is replaced by what goes out below.
inline __attribute__((always_inline)) void long_step(Lanes<uint64_t>::Vector match,
                                                     Lanes<uint64_t>::Vector& more,
                                                     Lanes<uint64_t>::Vector& less,
                                                     Lanes<uint64_t>::Vector& from_left,
                                                     Lanes<uint64_t>::Vector& from_right) {
  using Vector = Lanes<uint64_t>::Vector;
  match |= less | from_left;
  const Vector zero = (((match & more) + more) ^ more) | match;
  Vector right = (zero | more) & ~less;
  Vector left = zero & more;
  const Vector out_right = right >> 63;
  const Vector out_left = left >> 63;
  right = (right + right) | from_right;
  left = (left + left) | from_left;
  more = left | (right & ~zero);
  less = zero & ~right;
  from_right = out_right;
  from_left = out_left;
}

template <int groups, int kWords>
inline __attribute__((always_inline)) void long_levenshtein_of(
    const uint64_t* table, const uint64_t* ends, const uint64_t* sizes, int64_t given_words,
    const uint32_t* rows, int64_t n, uint64_t* state, int64_t* rise) {
  using Vector = Lanes<uint64_t>::Vector;
  constexpr int64_t lanes = Lanes<uint64_t>::kCount;
  constexpr int64_t width = groups * lanes;
  const int64_t words = kWords > 0 ? kWords : given_words;
  uint64_t* mores = state;
  uint64_t* lesses = state + words * width;
  if constexpr (kWords > 0) {
    Vector more[kWords][groups];
    Vector less[kWords][groups];
    for (int w = 0; w < kWords; ++w) {
      for (int g = 0; g < groups; ++g) {
        more[w][g] = ~Vector{};
        less[w][g] = Vector{};
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t* row = table + static_cast<int64_t>(rows[i]) * words * width;
      Vector from_left[groups] = {};
      Vector from_right[groups] = {};
#pragma GCC unroll 4
      for (int w = 0; w < kWords; ++w) {
#pragma GCC unroll 4
        for (int g = 0; g < groups; ++g) {
          long_step(load<uint64_t>(row + w * width + g * lanes), more[w][g], less[w][g],
                    from_left[g], from_right[g]);
        }
      }
    }
    for (int w = 0; w < kWords; ++w) {
      for (int g = 0; g < groups; ++g) {
        store<uint64_t>(mores + w * width + g * lanes, more[w][g]);
        store<uint64_t>(lesses + w * width + g * lanes, less[w][g]);
      }
    }
  } else {
    for (int64_t k = 0; k < words * width; ++k) mores[k] = ~uint64_t{0};
    for (int64_t k = 0; k < words * width; ++k) lesses[k] = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t* row = table + static_cast<int64_t>(rows[i]) * words * width;
      Vector from_left[groups] = {};
      Vector from_right[groups] = {};
      Vector live[groups];
      for (int g = 0; g < groups; ++g) {
        live[g] = ~Vector{};
        if (sizes == nullptr) continue;
        live[g] = (Vector)(Vector{} + static_cast<uint64_t>(i) < load<uint64_t>(sizes + g * lanes));
      }
      for (int64_t w = 0; w < words; ++w) {
#pragma GCC unroll 4
        for (int g = 0; g < groups; ++g) {
          const int64_t at = w * width + g * lanes;
          const Vector more = load<uint64_t>(mores + at);
          const Vector less = load<uint64_t>(lesses + at);
          Vector next_more = more;
          Vector next_less = less;
          long_step(load<uint64_t>(row + at), next_more, next_less, from_left[g], from_right[g]);
          store<uint64_t>(mores + at, (next_more & live[g]) | (more & ~live[g]));
          store<uint64_t>(lesses + at, (next_less & live[g]) | (less & ~live[g]));
        }
      }
    }
  }
  for (int64_t k = 0; k < width; ++k) {
    int64_t sum = 0;
    for (int64_t w = 0; w < words; ++w) {
      const int64_t at = w * width + k;
      sum += __builtin_popcountll(mores[at] & ends[at]);
      sum -= __builtin_popcountll(lesses[at] & ends[at]);
    }
    rise[k] = sum;
  }
}

template <int groups>
void long_levenshtein(const uint64_t* table, const uint64_t* ends, const uint64_t* sizes,
                      int64_t words, const uint32_t* rows, int64_t n, uint64_t* state,
                      int64_t* rise) {
  if (sizes != nullptr) {
    return long_levenshtein_of<groups, 0>(table, ends, sizes, words, rows, n, state, rise);
  }
  switch (words) {
    case 1:
      return long_levenshtein_of<groups, 1>(table, ends, nullptr, words, rows, n, state, rise);
    case 2:
      return long_levenshtein_of<groups, 2>(table, ends, nullptr, words, rows, n, state, rise);
    case 3:
      return long_levenshtein_of<groups, 3>(table, ends, nullptr, words, rows, n, state, rise);
    default:
      return long_levenshtein_of<groups, 0>(table, ends, nullptr, words, rows, n, state, rise);
  }
}

template <int groups, int kWords>
inline __attribute__((always_inline)) void long_lcs_of(const uint64_t* table, int64_t given_words,
                                                       const uint32_t* rows, int64_t n,
                                                       uint64_t* state, int64_t* lcs) {
  using Vector = Lanes<uint64_t>::Vector;
  constexpr int64_t lanes = Lanes<uint64_t>::kCount;
  constexpr int64_t width = groups * lanes;
  const int64_t words = kWords > 0 ? kWords : given_words;
  const auto step = [](Vector match, Vector& rest, Vector& carry) {
    const Vector matched = rest & match;
    const Vector sum = rest + matched + carry;
    carry = (matched | (rest & ~sum)) >> 63;
    rest = sum | (rest ^ matched);
  };
  if constexpr (kWords > 0) {
    Vector rest[kWords][groups];
    for (int w = 0; w < kWords; ++w) {
      for (int g = 0; g < groups; ++g) rest[w][g] = ~Vector{};
    }
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t* row = table + static_cast<int64_t>(rows[i]) * words * width;
      Vector carry[groups] = {};
#pragma GCC unroll 4
      for (int w = 0; w < kWords; ++w) {
#pragma GCC unroll 4
        for (int g = 0; g < groups; ++g) {
          step(load<uint64_t>(row + w * width + g * lanes), rest[w][g], carry[g]);
        }
      }
    }
    for (int w = 0; w < kWords; ++w) {
      for (int g = 0; g < groups; ++g) {
        store<uint64_t>(state + w * width + g * lanes, rest[w][g]);
      }
    }
  } else {
    for (int64_t k = 0; k < words * width; ++k) state[k] = ~uint64_t{0};
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t* row = table + static_cast<int64_t>(rows[i]) * words * width;
      Vector carry[groups] = {};
      for (int64_t w = 0; w < words; ++w) {
#pragma GCC unroll 4
        for (int g = 0; g < groups; ++g) {
          const int64_t at = w * width + g * lanes;
          Vector rest = load<uint64_t>(state + at);
          step(load<uint64_t>(row + at), rest, carry[g]);
          store<uint64_t>(state + at, rest);
        }
      }
    }
  }
  for (int64_t k = 0; k < width; ++k) {
    int64_t sum = 0;
    for (int64_t w = 0; w < words; ++w) sum += __builtin_popcountll(~state[w * width + k]);
    lcs[k] = sum;
  }
}

template <int groups>
void long_lcs(const uint64_t* table, int64_t words, const uint32_t* rows, int64_t n,
              uint64_t* state, int64_t* lcs) {
  switch (words) {
    case 1:
      return long_lcs_of<groups, 1>(table, words, rows, n, state, lcs);
    case 2:
      return long_lcs_of<groups, 2>(table, words, rows, n, state, lcs);
    case 3:
      return long_lcs_of<groups, 3>(table, words, rows, n, state, lcs);
    default:
      return long_lcs_of<groups, 0>(table, words, rows, n, state, lcs);
  }
}

void normalized(const int32_t* distances, const int32_t* most, int64_t count, bool similarity,
                double* scores) {
  for (int64_t k = 0; k < count; ++k) {
    const double divisor = most[k] > 0 ? static_cast<double>(most[k]) : 1.0;
    const double distance = static_cast<double>(distances[k]) / divisor;
    scores[k] = similarity ? 1.0 - distance : distance;
  }
}

void jaro_scores(const int32_t* common, const int32_t* matching, const int32_t* sizes, int64_t n,
                 int64_t count, double* scores) {
  const auto text = static_cast<double>(n);
  for (int64_t k = 0; k < count; ++k) {
    const int32_t half = (common[k] - matching[k]) >> 1;  // the transpositions
    const bool some = common[k] > 0;
    const double both = some ? static_cast<double>(common[k]) : 1.0;
    const double size = some ? static_cast<double>(sizes[k]) : 1.0;
    const double other = some ? text : 1.0;
    const double sum = both / size + both / other + (both - static_cast<double>(half)) / both;
    scores[k] = some ? sum / 3.0 : 0.0;
  }
}

template <typename Mask>
constexpr EditLanes<Mask> lanes_of() {
  constexpr int64_t lanes = Lanes<Mask>::kCount;
  return {&levenshtein<Mask, kGroups>,
          &levenshtein<Mask, 1>,
          &jaro<Mask, kGroups>,
          &jaro<Mask, 1>,
          kGroups * lanes,
          lanes};
}

constexpr EditVector kVector = {
    lanes_of<uint8_t>(),
    lanes_of<uint16_t>(),
    lanes_of<uint32_t>(),
    lanes_of<uint64_t>(),
    {&long_levenshtein<kLongGroups>, &long_levenshtein<1>, &long_lcs<kLongGroups>, &long_lcs<1>,
     kLongGroups * Lanes<uint64_t>::kCount, Lanes<uint64_t>::kCount},
    &normalized,
    &jaro_scores,
};

}  // namespace

const EditVector& edit_vector() { return kVector; }

}  // namespace pytrace::PYTRACE_TARGET_NAMESPACE

#include "common/target_end.h"
