// The emulated card's memory, streams and runtime API. Streams are queues that run when somebody
// waits for them. See cuda_runtime.h.
//
// Never built with -fsanitize=thread; see threads.cc.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "internal.h"

namespace emulation {
namespace {

// The least of the cards that the kernels are built for (compute capability 8.6, 8.9 and 12.0).
constexpr size_t kMostShared = size_t{99} << 10;
constexpr size_t kSharedByDefault = size_t{48} << 10;
constexpr size_t kMemory = size_t{1} << 30;

// ---- memory ------------------------------------------------------------------------------------

struct Memory {
  size_t bytes;
  bool device;
};

std::map<const char*, Memory>& memories() {
  static std::map<const char*, Memory> all;
  return all;
}

const Memory* memory_at(const void* pointer) {
  const auto* at = static_cast<const char*>(pointer);
  auto next = memories().upper_bound(at);
  if (next == memories().begin()) return nullptr;
  --next;
  return at < next->first + std::max<size_t>(next->second.bytes, 1) ? &next->second : nullptr;
}

bool on_device(const void* pointer) {
  const Memory* memory = memory_at(pointer);
  return memory != nullptr && memory->device;
}

size_t used_memory() {
  size_t used = 0;
  for (const auto& [pointer, memory] : memories()) used += memory.device ? memory.bytes : 0;
  return used;
}

size_t total_memory() {
  return static_cast<size_t>(number_from("PYTRACE_EMULATED_MEMORY", kMemory));
}

}  // namespace
}  // namespace emulation

// ---- streams -----------------------------------------------------------------------------------

struct EmulatedEvent {
  uint64_t recorded = 0;
  uint64_t reached = 0;
};

enum class Work { kOther, kKernel, kCopyThere, kCopyBack };

struct EmulatedStream {
  struct Step {
    std::function<void()> run;
    Work work = Work::kOther;
    EmulatedEvent* awaited = nullptr;
    uint64_t until = 0;
  };
  std::deque<Step> steps;

  bool can_go_on() const {
    return !steps.empty() && (steps.front().awaited == nullptr ||
                              steps.front().awaited->reached >= steps.front().until);
  }
};

namespace emulation {
namespace {

std::vector<EmulatedStream*>& streams() {
  static EmulatedStream ordinary;
  static std::vector<EmulatedStream*> all{&ordinary};
  return all;
}

EmulatedStream* stream_of(cudaStream_t stream) {
  for (EmulatedStream* known : streams()) {
    if (known == stream) return stream;
  }
  // The handles of the toolkit's own default streams (null, 1 and 2), and what is unknown.
  return streams().front();
}

void add(cudaStream_t stream, std::function<void()> run, Work work = Work::kOther) {
  stream_of(stream)->steps.push_back({std::move(run), work});
}

// How often a kernel could have run beside a copy to the card, and beside one from it.
int64_t overlaps[2] = {};

void count_overlaps(const std::vector<EmulatedStream*>& able) {
  const auto any = [&](Work work) {
    return std::any_of(able.begin(), able.end(), [=](const EmulatedStream* stream) {
      return stream->steps.front().work == work;
    });
  };
  if (!any(Work::kKernel)) return;
  overlaps[0] += any(Work::kCopyThere);
  overlaps[1] += any(Work::kCopyBack);
}

cudaError_t result() { return fault_text.empty() ? cudaSuccess : cudaErrorLaunchFailure; }

// Runs what is queued, streams mixed at random, until `enough`.
template <typename Enough>
cudaError_t run_until(const Enough& enough) {
  while (fault_text.empty() && !enough()) {
    std::vector<EmulatedStream*> able;
    for (EmulatedStream* stream : streams()) {
      if (stream->can_go_on()) able.push_back(stream);
    }
    if (able.empty()) {
      remember_fault("deadlock: a stream waits for an event that nothing will record");
      break;
    }
    count_overlaps(able);
    EmulatedStream* stream = able[below(able.size())];
    EmulatedStream::Step step = std::move(stream->steps.front());
    stream->steps.pop_front();
    if (step.run) step.run();
  }
  if (!fault_text.empty()) {
    for (EmulatedStream* stream : streams()) stream->steps.clear();
  }
  return result();
}

cudaError_t run_everything() {
  return run_until([] {
    return std::all_of(streams().begin(), streams().end(),
                       [](const EmulatedStream* stream) { return stream->steps.empty(); });
  });
}

std::map<const void*, size_t>& allowed_shared() {
  static std::map<const void*, size_t> all;
  return all;
}

cudaError_t last_error = cudaSuccess;

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t allocate(void** pointer, size_t size, bool device) {
  const Locked locked(lock_of_all());
  if (device && size > total_memory() - std::min(total_memory(), used_memory())) {
    return note(cudaErrorMemoryAllocation);
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, std::max<size_t>(size, 1)) != 0) {
    return note(cudaErrorMemoryAllocation);
  }
  fill_with_garbage(memory, size);
  memories()[static_cast<char*>(memory)] = {size, device};
  *pointer = memory;
  return cudaSuccess;
}

cudaError_t release_memory(void* pointer, bool device) {
  const Locked locked(lock_of_all());
  if (pointer == nullptr) return cudaSuccess;
  const cudaError_t error = run_everything();
  const auto found = memories().find(static_cast<char*>(pointer));
  if (found == memories().end() || found->second.device != device) {
    return note(cudaErrorInvalidValue);
  }
  memories().erase(found);
  std::free(pointer);
  return error;
}

}  // namespace

void allow_shared(const void* kernel, size_t bytes) {
  const Locked locked(lock_of_all());
  allowed_shared()[kernel] = bytes;
}

void enqueue_launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> body) {
  const Locked locked(lock_of_all());
  const size_t threads = size_t{block.x} * block.y * block.z;
  const auto found = allowed_shared().find(kernel);
  const size_t allowed = found == allowed_shared().end() ? kSharedByDefault : found->second;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535 || threads == 0 || threads > 1024 || block.z > 64 || shared_bytes > allowed ||
      shared_bytes > kMostShared) {
    note(cudaErrorInvalidValue);
    return;
  }
  add(stream, [=] { run_launch(grid, block, shared_bytes, body); }, Work::kKernel);
}

}  // namespace emulation

// ---- the runtime API ---------------------------------------------------------------------------

using namespace emulation;

// For the tests, by ctypes: see `overlaps`.
extern "C" __attribute__((visibility("default"))) int64_t emulated_overlaps(int back) {
  const Locked locked(lock_of_all());
  return overlaps[back != 0];
}

// Likewise: leaves an array of the card, as another library would, to be filled by its stream.
extern "C" __attribute__((visibility("default"))) int emulated_fill(void* to, int value,
                                                                    size_t size) {
  return cudaMemsetAsync(to, value, size, nullptr);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(number_from("PYTRACE_EMULATED_DEVICES", 1));
  return *count == 0 ? note(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : note(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return note(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated");
  properties->totalGlobalMem = total_memory();
  properties->sharedMemPerBlockOptin = kMostShared;
  properties->major = 8;
  properties->minor = 6;
  properties->multiProcessorCount = 2;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  *value = attribute == cudaDevAttrMultiProcessorCount ? properties.multiProcessorCount
                                                       : properties.major;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Locked locked(lock_of_all());
  *total = total_memory();
  *free = *total - std::min(*total, used_memory());
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, size_t size) { return allocate(pointer, size, true); }
cudaError_t cudaFree(void* pointer) { return release_memory(pointer, true); }
cudaError_t cudaMallocHost(void** pointer, size_t size) { return allocate(pointer, size, false); }
cudaError_t cudaFreeHost(void* pointer) { return release_memory(pointer, false); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Locked locked(lock_of_all());
  const Memory* memory = memory_at(pointer);
  *attributes = {};
  attributes->type = memory == nullptr ? cudaMemoryTypeUnregistered
                     : memory->device  ? cudaMemoryTypeDevice
                                       : cudaMemoryTypeHost;
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const Locked locked(lock_of_all());
  if (width == 0 || height == 0) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device != on_device(to) || from_device != on_device(from) ||
      (height > 1 && (to_pitch < width || from_pitch < width))) {
    return note(cudaErrorInvalidValue);
  }
  auto copy = [=](const void* source, size_t source_pitch) {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch,
                  static_cast<const char*>(source) + row * source_pitch, width);
    }
  };
  if (!from_device && memory_at(from) == nullptr) {
    // Ordinary memory of the host is read before the call returns.
    auto staged = std::make_shared<std::vector<char>>(width * height);
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(staged->data() + row * width, static_cast<const char*>(from) + row * from_pitch,
                  width);
    }
    add(stream, [=] { copy(staged->data(), width); });
    return cudaSuccess;
  }
  const Work work = to_device == from_device ? Work::kOther
                    : to_device              ? Work::kCopyThere
                                             : Work::kCopyBack;
  add(stream, [=] { copy(from, from_pitch); }, work);
  // Ordinary memory of the host has been written when the call returns.
  if (!to_device && memory_at(to) == nullptr) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, size, from, size, size, 1, kind, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  const Locked locked(lock_of_all());
  if (size == 0) return cudaSuccess;
  if (!on_device(to)) return note(cudaErrorInvalidValue);
  add(stream, [=] { std::memset(to, value, size); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Locked locked(lock_of_all());
  *stream = new EmulatedStream;
  streams().push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Locked locked(lock_of_all());
  const cudaError_t error = run_everything();
  auto& all = streams();
  const auto found = std::find(all.begin() + 1, all.end(), stream);
  if (found == all.end()) return note(cudaErrorInvalidValue);
  all.erase(found);
  delete stream;
  return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Locked locked(lock_of_all());
  EmulatedStream* own = stream_of(stream);
  return run_until([own] { return own->steps.empty(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Locked locked(lock_of_all());
  stream_of(stream)->steps.push_back({nullptr, Work::kOther, event, event->recorded});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Locked locked(lock_of_all());
  const cudaError_t error = run_everything();
  delete event;
  return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Locked locked(lock_of_all());
  const uint64_t number = ++event->recorded;
  add(stream, [=] { event->reached = std::max(event->reached, number); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Locked locked(lock_of_all());
  const uint64_t number = event->recorded;
  return run_until([=] { return event->reached >= number; });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0.0f;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const Locked locked(lock_of_all());
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
  }
  return "unknown error";
}

const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string said;
  const Locked locked(lock_of_all());
  if (error != cudaErrorLaunchFailure || fault_text.empty()) return cudaGetErrorName(error);
  // Said once; unlike a real card, this one is then as good as new.
  said.swap(fault_text);
  fault_text.clear();
  return said.c_str();
}
