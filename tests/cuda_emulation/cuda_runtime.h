// CUDA for a machine without a GPU: what csrc/cuda needs of it, as host C++. Tests alone include
// this.
//
// It stands in for the toolkit's <cuda_runtime.h>, so that the very same kernel bodies and the very
// same host code compile with g++ and run under its sanitizers.
//
// What it does. Every thread of a block is a fiber, run in a random order that
// PYTRACE_EMULATION_SEED decides, up to the next barrier or warp collective; blocks start in a
// random order, a few of them side by side. Barriers and collectives wait for all who must come.
// Streams are queues that run when somebody waits for them, interleaved at random as far as events
// allow; what was allocated or lies in shared memory is full of garbage first, and every array has
// an allocation of its own, so that the address sanitizer sees its bounds. Asynchronous copies to
// shared memory arrive when they are waited for, not before.
//
// What it reports, as cudaErrorLaunchFailure with a sentence: deadlocks; barriers that the threads
// of a block meet at different places; collectives whose masks disagree, or that read a lane which
// does not take part; more shared memory, threads or blocks than a launch may have; misaligned
// vector accesses through the functions of device.cuh. Built with -fsanitize=thread it also reports
// any two threads that touch the same word, shared or global, without a barrier between them.
//
// What it cannot find: see docs/cuda.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define PYTRACE_CUDA_EMULATION 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

// ---- the runtime API ---------------------------------------------------------------------------

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
};

struct EmulatedStream;
struct EmulatedEvent;
using cudaStream_t = EmulatedStream*;
using cudaEvent_t = EmulatedEvent*;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3,
};

struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  size_t sharedMemPerBlockOptin;
  int major;
  int minor;
  int multiProcessorCount;
};

enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** pointer, size_t size);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocHost(void** pointer, size_t size);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);

// ---- inside a kernel ---------------------------------------------------------------------------

namespace emulation {

struct Place {
  const char* file;
  int line;
};

struct Coordinates {
  unsigned x, y, z;
};

const Coordinates& thread_index();
const Coordinates& block_index();
const Coordinates& block_shape();
const Coordinates& grid_shape();

// Ends the launch with a sentence.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

void barrier(Place place);

// Waits for all lanes of the mask, has one of them call run(payloads, mask), and goes on. `kind`
// and `place` must be the same for all of them. `fences` orders memory among them, as __syncwarp
// does and a shuffle does not.
void collective(unsigned mask, const char* kind, Place place, bool fences, void* payload,
                void (*run)(void* const* payloads, unsigned mask));

// The array that all threads of the block get at their n-th call, with an allocation of its own.
void* shared_array(size_t bytes, size_t alignment);

// A copy that happens at wait_copies.
void copy_async(void* to, const void* from, size_t bytes);
void commit_copies();
void wait_copies(int groups_left);

void require_aligned(const void* pointer, size_t alignment);

void enqueue_launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> body);
void allow_shared(const void* kernel, size_t bytes);

int lane();

template <typename T>
struct Shuffle {
  T value;
  int source;
};

template <typename T>
T shuffle(unsigned mask, T value, int source, const char* kind, Place place) {
  Shuffle<T> own{value, source};
  collective(mask, kind, place, false, &own, [](void* const* payloads, unsigned lanes) {
    T values[32];
    for (int i = 0; i < 32; ++i) {
      if ((lanes >> i & 1u) != 0) values[i] = static_cast<Shuffle<T>*>(payloads[i])->value;
    }
    for (int i = 0; i < 32; ++i) {
      if ((lanes >> i & 1u) == 0) continue;
      auto* mine = static_cast<Shuffle<T>*>(payloads[i]);
      if ((lanes >> mine->source & 1u) == 0) {
        fault("lane %d of a shuffle reads lane %d, which does not take part", i, mine->source);
      }
      mine->value = values[mine->source];
    }
  });
  return own.value;
}

inline void require_width(int width) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    fault("a shuffle's width is %d; it must be a power of two up to 32", width);
  }
}

template <typename T>
T shuffle_to(unsigned mask, T value, int source, int width, Place place) {
  require_width(width);
  const int base = lane() & ~(width - 1);
  return shuffle(mask, value, base + (source & (width - 1)), "__shfl_sync", place);
}

template <typename T>
T shuffle_up(unsigned mask, T value, unsigned delta, int width, Place place) {
  require_width(width);
  const int base = lane() & ~(width - 1);
  const int source = lane() - static_cast<int>(delta);
  return shuffle(mask, value, source < base ? lane() : source, "__shfl_up_sync", place);
}

template <typename T>
T shuffle_down(unsigned mask, T value, unsigned delta, int width, Place place) {
  require_width(width);
  const int end = (lane() & ~(width - 1)) + width;
  const int source = lane() + static_cast<int>(delta);
  return shuffle(mask, value, source >= end ? lane() : source, "__shfl_down_sync", place);
}

template <typename T>
T shuffle_xor(unsigned mask, T value, int lanes, int width, Place place) {
  require_width(width);
  const int end = (lane() & ~(width - 1)) + width;
  const int source = lane() ^ lanes;
  return shuffle(mask, value, source >= end ? lane() : source, "__shfl_xor_sync", place);
}

unsigned ballot(unsigned mask, bool predicate, Place place);

template <typename T, typename Change>
T atomic(T* pointer, Change change) {
  require_aligned(pointer, sizeof(T));
  T before;
  __atomic_load(pointer, &before, __ATOMIC_RELAXED);
  T after = change(before);
  while (!__atomic_compare_exchange(pointer, &before, &after, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
    after = change(before);
  }
  return before;
}

}  // namespace emulation

#define PYTRACE_PLACE (::emulation::Place{__FILE__, __LINE__})
#define threadIdx (::emulation::thread_index())
#define blockIdx (::emulation::block_index())
#define blockDim (::emulation::block_shape())
#define gridDim (::emulation::grid_shape())
inline constexpr int warpSize = 32;

#define __syncthreads() ::emulation::barrier(PYTRACE_PLACE)
#define __syncwarp(...)                                                                          \
  ::emulation::collective(PYTRACE_SYNCWARP_MASK(__VA_ARGS__), "__syncwarp", PYTRACE_PLACE, true, \
                          nullptr, [](void* const*, unsigned) {})
#define PYTRACE_SYNCWARP_MASK(...) ::emulation::mask_or_all(__VA_ARGS__)
namespace emulation {
inline unsigned mask_or_all(unsigned mask = 0xffffffffu) { return mask; }
}  // namespace emulation

#define __shfl_sync(mask, value, source) \
  ::emulation::shuffle_to((mask), (value), (source), 32, PYTRACE_PLACE)
#define __shfl_up_sync(mask, value, delta) \
  ::emulation::shuffle_up((mask), (value), (delta), 32, PYTRACE_PLACE)
#define __shfl_down_sync(mask, value, delta) \
  ::emulation::shuffle_down((mask), (value), (delta), 32, PYTRACE_PLACE)
#define __shfl_xor_sync(mask, value, lanes) \
  ::emulation::shuffle_xor((mask), (value), (lanes), 32, PYTRACE_PLACE)
#define __ballot_sync(mask, predicate) \
  ::emulation::ballot((mask), static_cast<bool>(predicate), PYTRACE_PLACE)
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, predicate) == (mask))

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __clz(int value) {
  return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
inline int __float_as_int(float value) {
  int bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline unsigned __float_as_uint(float value) {
  return static_cast<unsigned>(__float_as_int(value));
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }
template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
void __threadfence();
void __threadfence_block();

template <typename T>
T atomicAdd(T* pointer, T value) {
  return emulation::atomic(pointer, [=](T before) { return static_cast<T>(before + value); });
}
template <typename T>
T atomicMin(T* pointer, T value) {
  return emulation::atomic(pointer, [=](T before) { return value < before ? value : before; });
}
template <typename T>
T atomicMax(T* pointer, T value) {
  return emulation::atomic(pointer, [=](T before) { return value > before ? value : before; });
}
template <typename T>
T atomicOr(T* pointer, T value) {
  return emulation::atomic(pointer, [=](T before) { return static_cast<T>(before | value); });
}
template <typename T>
T atomicAnd(T* pointer, T value) {
  return emulation::atomic(pointer, [=](T before) { return static_cast<T>(before & value); });
}
template <typename T>
T atomicExch(T* pointer, T value) {
  return emulation::atomic(pointer, [=](T) { return value; });
}
template <typename T>
T atomicCAS(T* pointer, T expected, T value) {
  return emulation::atomic(pointer, [=](T before) { return before == expected ? value : before; });
}
