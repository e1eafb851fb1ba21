// What the scans in floats and in bytes share: how rows become columns of registers, and which
// items of a panel pass. Include it as target_vectors.h is, and behind it.

// Four 32-bit values of each of kLanes rows, `stride` bytes apart, as vectors of one value a row.
PYTRACE_INLINE void load_transposed(const void* first, int64_t stride, VectorF (&out)[4]) {
  const char* rows = static_cast<const char*>(first);
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
    std::memcpy(&in[r], rows + r * stride, sizeof in[r]);
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

// The items of a panel that pass for query q, as bits, by their products with it.
PYTRACE_INLINE uint32_t passing(const VectorF (&products)[2], const ScanTest& test, int q) {
  const VectorF slack = splat(test.slacks[q]);
  const VectorF floor = splat(test.floors[q]);
  uint32_t bits = 0;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const int at = half * kLanes;
    const VectorF reach =
        products[half] + (load(test.offsets + at) + slack * load(test.weights + at));
    // Not "at least": a NaN must pass, to be found out.
    const VectorI below = (VectorI)(reach < floor);
    bits |= bits_of(~below) << at;
  }
  return bits;
}
