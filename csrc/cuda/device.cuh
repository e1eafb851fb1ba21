// What a kernel body may use beyond CUDA's own words: shared arrays, 16-byte loads, asynchronous
// copies, the tensor cores, and the launch itself.
//
// All that differs between a card and the emulation of one on the host (tests/cuda_emulation)
// stands here, so that every kernel body compiles for both, unchanged. Hence the rules for kernel
// bodies: shared memory comes from SharedArrays alone; the full mask and a converged warp for every
// warp collective, unless the mask says otherwise; no inline assembly, no half types outside of
// this file.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>

#if !defined(PYTRACE_CUDA_EMULATION)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "cuda/runtime.h"

#if defined(PYTRACE_CUDA_EMULATION)
#define PYTRACE_UNROLL
#else
#define PYTRACE_UNROLL _Pragma("unroll")
#endif

namespace pytrace::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarp = 32;

// What every architecture gives a block without asking (48 KiB), and what the smallest of them
// gives one that asks (99 KiB: compute capability 8.6, 8.9 and 12.0).
inline constexpr size_t kSharedBytes = size_t{48} << 10;
inline constexpr size_t kMostSharedBytes = size_t{99} << 10;

// Any size up to 2^63 in steps of the grid: kernels loop, so that no limit of the grid is ever met.
inline constexpr int64_t kMostBlocks = 65535;

// Blocks for so many items.
inline unsigned grid_of(int64_t items, int64_t of_block) {
  return static_cast<unsigned>(std::min((items + of_block - 1) / of_block, kMostBlocks));
}

// ---- shared memory -----------------------------------------------------------------------------

// Hands out the block's shared memory, array by array; every thread takes the same arrays in the
// same order. Each begins at a multiple of 16 bytes. The host counts the bytes with SharedBytes,
// in the same order.
class SharedArrays {
 public:
#if defined(PYTRACE_CUDA_EMULATION)
  template <typename T>
  T* take(size_t count) {
    return static_cast<T*>(emulation::shared_array((count * sizeof(T) + 15) / 16 * 16, 16));
  }
#else
  __device__ SharedArrays() {
    extern __shared__ __align__(16) unsigned char pytrace_shared_memory[];
    next_ = pytrace_shared_memory;
  }
  template <typename T>
  __device__ T* take(size_t count) {
    T* array = reinterpret_cast<T*>(next_);
    next_ += (count * sizeof(T) + 15) / 16 * 16;
    return array;
  }

 private:
  unsigned char* next_;
#endif
};

class SharedBytes {
 public:
  template <typename T>
  SharedBytes& take(size_t count) {
    bytes_ += (count * sizeof(T) + 15) / 16 * 16;
    return *this;
  }
  size_t total() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// ---- numbers of 16 bits ------------------------------------------------------------------------

// Their bits alone: kernels compute in float.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

#if defined(PYTRACE_CUDA_EMULATION)
inline float to_float(Half value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t exponent = value.bits >> 10 & 0x1fu;
  const uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0) {
    const float small = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
    return sign != 0 ? -small : small;
  }
  const uint32_t widened = exponent == 31 ? 255u : exponent + 112u;
  return __uint_as_float(sign | widened << 23 | fraction << 13);
}
inline Half to_half(float value) {  // to the nearest, ties to even
  const uint32_t bits = __float_as_uint(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7fffu)};
  if (size >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (size < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    const float steps = __uint_as_float(size) * 16777216.0f;
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(__builtin_rintf(steps)))};
  }
  const uint32_t rounded = size + 0xfffu + (size >> 13 & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}
inline Bfloat16 to_bfloat16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fffu};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
#else
__device__ __forceinline__ float to_float(Half value) {
  return __half2float(__ushort_as_half(value.bits));
}
__device__ __forceinline__ Half to_half(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}
__device__ __forceinline__ Bfloat16 to_bfloat16(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}
#endif
__device__ __forceinline__ float to_float(Bfloat16 value) {
  return __uint_as_float(uint32_t{value.bits} << 16);
}
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(int8_t value) { return static_cast<float>(value); }

__device__ __forceinline__ bool is_finite(float value) {
  return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

// One rounding on the card and on the host alike.
__device__ __forceinline__ float multiply_add(float a, float b, float c) {
#if defined(PYTRACE_CUDA_EMULATION)
  return __builtin_fmaf(a, b, c);
#else
  return __fmaf_rn(a, b, c);
#endif
}

// ---- 16 bytes at once --------------------------------------------------------------------------

// Sixteen bytes of T, at an address that is a multiple of 16.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

// The same sixteen bytes as the card moves them. What is read under a condition is kept so until it
// is used: else its values are taken apart under that condition, right behind the load.
template <typename T>
__device__ __forceinline__ Pack<T> pack_of(uint4 words) {
  union {
    uint4 words;
    Pack<T> pack;
  } both;
  both.words = words;
  return both.pack;
}

// From global memory. `streamed`: it is read once, past the first cache.
template <bool streamed, typename T>
__device__ __forceinline__ uint4 load_words(const T* from) {
#if defined(PYTRACE_CUDA_EMULATION)
  emulation::require_aligned(from, 16);
  uint4 words;
  std::memcpy(&words, from, sizeof words);
  return words;
#else
  return streamed ? __ldcs(reinterpret_cast<const uint4*>(from))
                  : *reinterpret_cast<const uint4*>(from);
#endif
}

template <typename T>
__device__ __forceinline__ Pack<T> load_streamed(const T* from) {
  return pack_of<T>(load_words<true>(from));
}

template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
#if defined(PYTRACE_CUDA_EMULATION)
  emulation::require_aligned(from, 16);
#endif
  return *reinterpret_cast<const Pack<T>*>(from);
}

// To global memory, past the first cache. Said to the compiler, which otherwise stores values that
// it computed one by one.
template <typename T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
  union {
    uint4 words;
    Pack<T> pack;
  } both;
  both.pack = pack;
#if defined(PYTRACE_CUDA_EMULATION)
  emulation::require_aligned(to, 16);
  std::memcpy(to, &both.words, sizeof both.words);
#else
  __stcg(reinterpret_cast<uint4*>(to), both.words);
#endif
}

// ---- asynchronous copies, global to shared -----------------------------------------------------

// Sixteen bytes; both addresses are multiples of 16. They have arrived after commit_copies, a
// wait_copies that covers them and, for other threads than this one, a barrier.
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
#if defined(PYTRACE_CUDA_EMULATION)
  emulation::copy_async(shared, global, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#endif
}

__device__ __forceinline__ void commit_copies() {
#if defined(PYTRACE_CUDA_EMULATION)
  emulation::commit_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until all but the last `groups` committed ones have arrived.
template <int groups>
__device__ __forceinline__ void wait_copies() {
#if defined(PYTRACE_CUDA_EMULATION)
  emulation::wait_copies(groups);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

// ---- tensor cores ------------------------------------------------------------------------------

// Four 8 x 8 matrices of 16-bit numbers from shared memory (PTX: ldmatrix.x4). Lane i gives the
// address of row i % 8 of matrix i / 8, a multiple of 16 bytes; it gets of each matrix the two
// neighbours in row lane / 4, columns 2 * (lane % 4) and the next, as the halves of
// registers[matrix]. With `transposed` the matrices are transposed on the way.
template <bool transposed = false>
__device__ __forceinline__ void load_matrices(uint32_t (&registers)[4], const void* row) {
#if defined(PYTRACE_CUDA_EMULATION)
  struct Part {
    uint32_t* registers;
    const uint16_t* row;
  } own{registers, static_cast<const uint16_t*>(row)};
  emulation::require_aligned(row, 16);
  emulation::collective(kWholeWarp, "load_matrices", {__FILE__, __LINE__}, false, &own,
                        [](void* const* payloads, unsigned) {
                          for (int lane = 0; lane < kWarp; ++lane) {
                            for (int matrix = 0; matrix < 4; ++matrix) {
                              uint32_t both = 0;
                              for (int half = 0; half < 2; ++half) {
                                const int a = lane / 4;
                                const int b = 2 * (lane % 4) + half;
                                const int source_row = transposed ? b : a;
                                const int source_column = transposed ? a : b;
                                const auto* part =
                                    static_cast<const Part*>(payloads[matrix * 8 + source_row]);
                                both |= uint32_t{part->row[source_column]} << (16 * half);
                              }
                              static_cast<Part*>(payloads[lane])->registers[matrix] = both;
                            }
                          }
                        });
#else
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

#if defined(PYTRACE_CUDA_EMULATION)
template <typename T>
void emulated_product(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Part {
    float* sums;
    const uint32_t* a;
    const uint32_t* b;
  } own{sums, a, b};
  emulation::collective(kWholeWarp, "multiply_matrices", {__FILE__, __LINE__}, false, &own,
                        [](void* const* payloads, unsigned) {
                          float left[16][16];
                          float right[16][8];
                          const auto half_of = [](uint32_t both, int half) {
                            return to_float(T{static_cast<uint16_t>(both >> (16 * half))});
                          };
                          for (int lane = 0; lane < kWarp; ++lane) {
                            const auto* part = static_cast<const Part*>(payloads[lane]);
                            const int group = lane / 4;
                            const int pair = 2 * (lane % 4);
                            for (int half = 0; half < 2; ++half) {
                              left[group][pair + half] = half_of(part->a[0], half);
                              left[group + 8][pair + half] = half_of(part->a[1], half);
                              left[group][pair + 8 + half] = half_of(part->a[2], half);
                              left[group + 8][pair + 8 + half] = half_of(part->a[3], half);
                              right[pair + half][group] = half_of(part->b[0], half);
                              right[pair + 8 + half][group] = half_of(part->b[1], half);
                            }
                          }
                          for (int lane = 0; lane < kWarp; ++lane) {
                            auto* part = static_cast<Part*>(payloads[lane]);
                            for (int i = 0; i < 4; ++i) {
                              const int row = lane / 4 + (i >= 2 ? 8 : 0);
                              const int column = 2 * (lane % 4) + i % 2;
                              float sum = part->sums[i];
                              for (int at = 0; at < 16; ++at)
                                sum += left[row][at] * right[at][column];
                              part->sums[i] = sum;
                            }
                          }
                        });
}
#endif

// sums += a * b for a of 16 x 16, b of 16 x 8 (PTX: mma.m16n8k16, float32 sums). Lane's part, with
// g = lane / 4 and p = 2 * (lane % 4), two neighbours a register:
//   a[0]: row g,     columns p, p + 1      b[0]: rows p, p + 1,          column g
//   a[1]: row g + 8, columns p, p + 1      b[1]: rows p + 8, p + 9,      column g
//   a[2]: row g,     columns p + 8, p + 9  sums[0], sums[1]: row g,      columns p, p + 1
//   a[3]: row g + 8, columns p + 8, p + 9  sums[2], sums[3]: row g + 8,  columns p, p + 1
template <typename T>
__device__ __forceinline__ void multiply_matrices(float (&sums)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]);

template <>
__device__ __forceinline__ void multiply_matrices<Half>(float (&sums)[4], const uint32_t (&a)[4],
                                                        const uint32_t (&b)[2]) {
#if defined(PYTRACE_CUDA_EMULATION)
  emulated_product<Half>(sums, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

template <>
__device__ __forceinline__ void multiply_matrices<Bfloat16>(float (&sums)[4],
                                                            const uint32_t (&a)[4],
                                                            const uint32_t (&b)[2]) {
#if defined(PYTRACE_CUDA_EMULATION)
  emulated_product<Bfloat16>(sums, a, b);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// ---- launching ---------------------------------------------------------------------------------

// Queues kernel(arguments...) on the stream. No blocks: nothing. Raises what the launch itself
// refuses; what a kernel does wrong is met by whoever waits for the stream.
template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#if defined(PYTRACE_CUDA_EMULATION)
  const auto* address = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kSharedBytes) emulation::allow_shared(address, kMostSharedBytes);
  const std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  emulation::enqueue_launch(address, grid, block, shared_bytes, stream,
                            [kernel, values] { std::apply(kernel, values); });
#else
  if (shared_bytes > kSharedBytes) {
    // Always the most: another thread may be about to launch the same kernel with more than this.
    require(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(kMostSharedBytes)),
            "a kernel's shared memory");
  }
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  std::apply(
      [&](Parameters&... each) {
        void* places[] = {const_cast<void*>(static_cast<const void*>(&each))...};
        require(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, places,
                                 shared_bytes, stream),
                "a kernel's launch");
      },
      values);
#endif
  require(cudaGetLastError(), "a kernel's launch");
}

}  // namespace pytrace::cuda
