// Vectors of 32-bit floats for the instruction set being compiled: loads from float32, float16 and
// int8, and sums.
//
// Include this inside `namespace pytrace::PYTRACE_TARGET_NAMESPACE`, between target_begin.h and
// target_end.h, with <cstdint>, <cstring> and (on x86) <immintrin.h> included before
// target_begin.h. It is the one place with intrinsics: GCC 12 turns the widening conversions of
// vector extensions into scalar code.

using VectorF = float __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
using VectorI = int32_t __attribute__((vector_size(PYTRACE_VECTOR_BYTES)));
inline constexpr int kLanes = PYTRACE_VECTOR_BYTES / 4;

#define PYTRACE_INLINE inline __attribute__((always_inline))

// value - 0 is value even where it is -0, which lets the compiler drop the subtraction.
PYTRACE_INLINE VectorF splat(float value) { return value - VectorF{}; }

PYTRACE_INLINE VectorF load(const float* from) {
  VectorF out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

PYTRACE_INLINE void store(float* to, VectorF value) { std::memcpy(to, &value, sizeof value); }

// Keeps the compiler from loading a value again at each of its uses (as an operand from memory),
// and from loading it so early that the registers run out.
PYTRACE_INLINE void hold_in_register(VectorF& value) {
#if defined(__x86_64__)
  __asm__("" : "+v"(value));
#elif defined(__aarch64__)
  __asm__("" : "+w"(value));
#else
  (void)value;
#endif
}

// IEEE half precision, held in uint16_t.
PYTRACE_INLINE VectorF load(const uint16_t* from) {
#if defined(PYTRACE_TARGET_AVX512)
  // The unmasked forms of AVX-512 set off GCC's bug 105593, a false warning; a full mask costs
  // nothing.
  return (VectorF)_mm512_maskz_cvtph_ps(0xffff,
                                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(PYTRACE_TARGET_AVX2)
  return (VectorF)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  VectorI half;
  for (int lane = 0; lane < kLanes; ++lane) half[lane] = from[lane];
  // Shifted into place, the exponent is 112 too small; multiplying by 2^112 mends it, subnormals
  // included. Infinity and NaN (all exponent bits set) come out as 65536 and above, and get the
  // full exponent back.
  const VectorI bits = (half & 0x7fff) << 13;
  VectorF value = (VectorF)bits * splat(0x1p112f);
  const VectorI special = (VectorI)(value >= splat(65536.0f));
  return (VectorF)((VectorI)value | (special & 0x7f800000) | ((half & 0x8000) << 16));
#endif
}

PYTRACE_INLINE VectorF load(const int8_t* from) {
#if defined(PYTRACE_TARGET_AVX512)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return (VectorF)_mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, bytes));
#elif defined(PYTRACE_TARGET_AVX2)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return (VectorF)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
  VectorF out;
  for (int lane = 0; lane < kLanes; ++lane) out[lane] = static_cast<float>(from[lane]);
  return out;
#endif
}

// The first `count` values (fewer than kLanes), zeros behind them.
template <typename T>
PYTRACE_INLINE VectorF load_first(const T* from, int64_t count) {
  T padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return load(padded);
}

PYTRACE_INLINE VectorF keep(VectorF value, VectorI mask) {
  return (VectorF)((VectorI)value & mask);
}

PYTRACE_INLINE VectorF larger(VectorF a, VectorF b) { return a > b ? a : b; }

// Whether a comparison came out true in any lane.
PYTRACE_INLINE bool any(VectorI comparison) {
#if defined(PYTRACE_TARGET_AVX512)
  return _mm512_movepi32_mask((__m512i)comparison) != 0;
#elif defined(PYTRACE_TARGET_AVX2)
  return _mm256_movemask_epi8((__m256i)comparison) != 0;
#else
  int64_t halves[2];
  std::memcpy(halves, &comparison, sizeof halves);
  return (halves[0] | halves[1]) != 0;
#endif
}

// The comparison's lanes as bits, the first one lowest.
PYTRACE_INLINE uint32_t bits_of(VectorI comparison) {
#if defined(PYTRACE_TARGET_AVX512)
  return _mm512_movepi32_mask((__m512i)comparison);
#elif defined(PYTRACE_TARGET_AVX2)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)comparison));
#elif defined(__x86_64__)
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)comparison));
#else
  uint32_t bits = 0;
  if (any(comparison)) {
    for (int lane = 0; lane < kLanes; ++lane) bits |= (comparison[lane] & 1u) << lane;
  }
  return bits;
#endif
}

// Per 128 bits: [a0+a1, a2+a3, b0+b1, b2+b3], which x86 does in two shuffles and an addition.
PYTRACE_INLINE VectorF add_pairs(VectorF a, VectorF b) {
#if PYTRACE_VECTOR_BYTES == 64
  return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
#elif PYTRACE_VECTOR_BYTES == 32
  return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
#else
  return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
}

using Vector4F = float __attribute__((vector_size(16)));

// The sums of four vectors. A sum's order of additions is the same wherever among the four its
// vector stands.
PYTRACE_INLINE Vector4F sum_four(VectorF a, VectorF b, VectorF c, VectorF d) {
  const VectorF sums = add_pairs(add_pairs(a, b), add_pairs(c, d));
#if PYTRACE_VECTOR_BYTES == 64
  using Half = float __attribute__((vector_size(32)));
  const Half low = __builtin_shufflevector(sums, sums, 0, 1, 2, 3, 4, 5, 6, 7);
  const Half high = __builtin_shufflevector(sums, sums, 8, 9, 10, 11, 12, 13, 14, 15);
  const Half half = low + high;
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) +
         __builtin_shufflevector(half, half, 4, 5, 6, 7);
#elif PYTRACE_VECTOR_BYTES == 32
  return __builtin_shufflevector(sums, sums, 0, 1, 2, 3) +
         __builtin_shufflevector(sums, sums, 4, 5, 6, 7);
#else
  return sums;
#endif
}
