// Opens the part of a kernel source that is compiled for one instruction set.
//
// Include every other header first, then this one, write the functions inside
// `namespace pytrace::PYTRACE_TARGET_NAMESPACE`, and close with target_end.h. Only what stands
// between the two is compiled for the newer processor: the standard library's inline functions stay
// baseline, so the linker can never pick a copy that an older machine cannot run. No include guard:
// one source includes it once.
#if defined(PYTRACE_TARGET_AVX512VNNI)
#define PYTRACE_TARGET_AVX512  // and bytes multiplied and added at once
#define PYTRACE_TARGET_NAMESPACE avx512vnni
#define PYTRACE_VECTOR_BYTES 64
#define PYTRACE_TARGET_STRING \
  "avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt"
#elif defined(PYTRACE_TARGET_AVX512)
#define PYTRACE_TARGET_NAMESPACE avx512
#define PYTRACE_VECTOR_BYTES 64
#define PYTRACE_TARGET_STRING \
  "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt"
#elif defined(PYTRACE_TARGET_AVX2)
#define PYTRACE_TARGET_NAMESPACE avx2
#define PYTRACE_VECTOR_BYTES 32
#define PYTRACE_TARGET_STRING "avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt"
#else
#define PYTRACE_TARGET_NAMESPACE baseline
#define PYTRACE_VECTOR_BYTES 16  // SSE2 on x86-64, NEON on arm64
#endif

#if defined(PYTRACE_TARGET_STRING)
#if defined(__clang__)
#define PYTRACE_PRAGMA(text) _Pragma(#text)
#define PYTRACE_CLANG_TARGET(string) \
  PYTRACE_PRAGMA(clang attribute push(__attribute__((target(string))), apply_to = function))
PYTRACE_CLANG_TARGET(PYTRACE_TARGET_STRING)
#else
#pragma GCC push_options
#if defined(PYTRACE_TARGET_AVX512VNNI)
#pragma GCC target( \
    "avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#elif defined(PYTRACE_TARGET_AVX512)
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#else
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#endif
#endif
#endif
