#include "cuda/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#if defined(PYTRACE_CUDA_EMULATION) && defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace pytrace::cuda {
namespace {

constexpr size_t kAlignment = 256;

// The oldest compute capability: machine code from 8.0 on, and portable code that a driver
// translates for newer ones.
constexpr int kLeastMajor = 8;

#if defined(PYTRACE_CUDA_EMULATION)
constexpr size_t kGap = 256;  // so that a write past a piece is seen
#else
constexpr size_t kGap = 0;
#endif

std::string megabytes(size_t bytes) { return std::to_string((bytes + 999999) / 1000000) + " MB"; }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

size_t free_memory() {
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return free;
}

// Takes an error off the thread, so that the next call does not report it again.
cudaError_t taken(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

[[noreturn]] void no_memory(size_t bytes) {
  throw OutOfDeviceMemory("the card has no room for " + megabytes(bytes) + " (" +
                          megabytes(free_memory()) +
                          " are free); end what else uses it, or set PYTRACE_CUDA_MEMORY lower");
}

struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> idle;
};

Pool& pool() {
  // Never destroyed: the runtime may be gone before static objects are.
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

void fail_with(cudaError_t error, const char* what) {
  // The name first: the text of the emulation's errors can be asked for only once.
  const std::string name = cudaGetErrorName(error);
  const std::string text = cudaGetErrorString(error);
  cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) {
    throw OutOfDeviceMemory("the card has no memory left for " + std::string(what) + " (" +
                            megabytes(free_memory()) + " are free)");
  }
  throw std::runtime_error("CUDA failed at " + std::string(what) + ": " + name + ", " + text);
}

Installation installation() {
  Installation found;
  if (taken(cudaDriverGetVersion(&found.driver)) != cudaSuccess) found.driver = 0;
  if (taken(cudaRuntimeGetVersion(&found.runtime)) != cudaSuccess) found.runtime = 0;
  if (found.driver == 0) {
    found.problem = "there is no CUDA driver";
    return found;
  }
  int count = 0;
  const cudaError_t error = taken(cudaGetDeviceCount(&count));
  if (error == cudaErrorInsufficientDriver) {
    found.problem = "the driver serves CUDA " + version_text(found.driver) +
                    ", but this module was built with " + version_text(found.runtime);
    return found;
  }
  if (error != cudaSuccess || count == 0) {
    found.problem = error == cudaSuccess || error == cudaErrorNoDevice
                        ? "there is a driver (CUDA " + version_text(found.driver) +
                              "), but no device that it may use"
                        : std::string("the driver fails: ") + cudaGetErrorString(error);
    return found;
  }
  for (int number = 0; number < count; ++number) {
    cudaDeviceProp properties{};
    if (taken(cudaGetDeviceProperties(&properties, number)) != cudaSuccess) continue;
    DeviceInfo device;
    device.number = number;
    device.name = properties.name;
    device.major = properties.major;
    device.minor = properties.minor;
    device.multiprocessors = properties.multiProcessorCount;
    device.memory = static_cast<int64_t>(properties.totalGlobalMem);
    found.devices.push_back(device);
  }
  return found;
}

void require_device(int device) {
  int count = 0;
  int major = 0;
  if (taken(cudaGetDeviceCount(&count)) == cudaSuccess && device >= 0 && device < count &&
      taken(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) ==
          cudaSuccess &&
      major >= kLeastMajor) {
    return;
  }
  // What is wrong. Not at once, since all properties of all devices are more than a call need wait
  // for.
  const Installation found = installation();
  if (!found.problem.empty()) throw DeviceUnavailable(found.problem);
  for (const DeviceInfo& known : found.devices) {
    if (known.number != device) continue;
    if (known.major >= kLeastMajor) return;
    throw DeviceUnavailable(known.name + " has compute capability " + std::to_string(known.major) +
                            "." + std::to_string(known.minor) + "; the kernels need " +
                            std::to_string(kLeastMajor) + ".0 or more");
  }
  throw DeviceUnavailable("there is no device " + std::to_string(device) + ", only " +
                          std::to_string(found.devices.size()) + " of them, counted from 0");
}

OnDevice::OnDevice(int device) {
  require(cudaGetDevice(&before_), "asking for the current device");
  if (device == before_) return;
  require(cudaSetDevice(device), "choosing the device");
  changed_ = true;
}

OnDevice::~OnDevice() {
  if (changed_) cudaSetDevice(before_);
}

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes) {
  require(cudaGetDevice(&device_), "asking for the current device");
  const auto allocate = [&] { return taken(cudaMalloc(&data_, std::max<size_t>(bytes, 1))); };
  cudaError_t error = allocate();
  if (error == cudaErrorMemoryAllocation) {
    // What idle contexts hold may be enough.
    empty_cache();
    error = allocate();
  }
  if (error == cudaErrorMemoryAllocation) no_memory(bytes);
  // Such as a kernel that failed before, which is met by whoever asks next.
  require(error, "asking for memory of the card");
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  int before = device_;
  cudaGetDevice(&before);
  if (before != device_) cudaSetDevice(device_);
  cudaFree(data_);
  if (before != device_) cudaSetDevice(before);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  return *this;
}

HostMemory::HostMemory(size_t bytes) : bytes_(bytes) {
  const cudaError_t error = taken(cudaMallocHost(&data_, std::max<size_t>(bytes, 1)));
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  require(error, "asking for pinned memory");
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

HostMemory::HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Event::Event() {
  require(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
}

Event::~Event() { cudaEventDestroy(event_); }

void Event::record(cudaStream_t stream) {
  require(cudaEventRecord(event_, stream), "recording an event");
  recorded_ = true;
}

void Event::wait() {
  if (recorded_) require(cudaEventSynchronize(event_), "what was queued");
}

void Event::hold(cudaStream_t stream) {
  if (recorded_) require(cudaStreamWaitEvent(stream, event_, 0), "holding a stream");
}

size_t Workspace::reserve(int64_t count, size_t size) {
  // Far below what overflows, and far above any card.
  constexpr size_t kMost = std::numeric_limits<size_t>::max() / 8;
  const size_t begin = bytes_;
  const auto wanted = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (wanted > (kMost - begin) / size) no_memory(kMost);
  const size_t end = begin + wanted * size;
  bytes_ = (end + kGap + kAlignment - 1) / kAlignment * kAlignment;
  if (kGap > 0) gaps_.emplace_back(end, bytes_);
  return begin;
}

Context::Context(int device) : device_(device) {
  require(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device),
          "asking for the device's multiprocessors");
  multiprocessors_ = std::max(1, multiprocessors_);
  for (cudaStream_t* stream : {&stream_, &copy_stream_, &return_stream_}) {
    require(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream");
  }
}

Context::~Context() {
  release();
  for (cudaStream_t stream : {stream_, copy_stream_, return_stream_}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

void Context::lay_out(Workspace& workspace) {
  if (workspace.bytes_ > memory_.bytes()) {
    finish();
    memory_ = DeviceMemory();  // before the new one is asked for
    memory_ = DeviceMemory(workspace.bytes_ + workspace.bytes_ / 8);
  }
  workspace.base_ = static_cast<char*>(memory_.data());
#if defined(PYTRACE_CUDA_EMULATION)
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.bytes());
#endif
  // What an earlier call left must not help this one.
  if (memory_.data() != nullptr) std::memset(memory_.data(), 0xA5, memory_.bytes());
#if defined(__SANITIZE_ADDRESS__)
  for (const auto& [begin, end] : workspace.gaps_) {
    ASAN_POISON_MEMORY_REGION(workspace.base_ + begin, end - begin);
  }
#endif
#endif
}

void* Context::staging(size_t bytes) {
  if (bytes > staging_.bytes()) {
    finish();
    staging_ = HostMemory();
    staging_ = HostMemory(bytes);
  }
  return staging_.data();
}

void Context::finish() {
  require(cudaStreamSynchronize(copy_stream_), "copying to the card");
  require(cudaStreamSynchronize(stream_), "running kernels");
  require(cudaStreamSynchronize(return_stream_), "copying from the card");
}

void Context::release() {
  memory_ = DeviceMemory();
  staging_ = HostMemory();
}

Borrowed::Borrowed(int device) : on_device_(device) {
  {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    auto& idle = pool().idle;
    for (auto& context : idle) {
      if (context->device() != device) continue;
      context_ = std::move(context);
      context = std::move(idle.back());
      idle.pop_back();
      break;
    }
  }
  if (context_ == nullptr) context_ = std::make_unique<Context>(device);
}

Borrowed::~Borrowed() {
  try {
    // A call that failed half-way may have left work behind.
    context_->finish();
    const std::lock_guard<std::mutex> lock(pool().mutex);
    pool().idle.push_back(std::move(context_));
  } catch (...) {
    // A context that fails is not kept.
  }
}

void empty_cache() {
  std::vector<std::unique_ptr<Context>> idle;
  {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    idle.swap(pool().idle);
  }
  for (auto& context : idle) {
    const OnDevice on_device(context->device());
    context.reset();
  }
}

size_t memory_to_use(const Context& context) {
  const char* limit = std::getenv("PYTRACE_CUDA_MEMORY");
  if (limit != nullptr && *limit != 0) {
    char* end = nullptr;
    const unsigned long long bytes = std::strtoull(limit, &end, 10);
    if (*end != 0 || bytes == 0 || *limit == '-') {
      throw std::invalid_argument("PYTRACE_CUDA_MEMORY is '" + std::string(limit) +
                                  "'; it must be a number of bytes above 0");
    }
    return static_cast<size_t>(std::min(bytes, 1ull << 60));
  }
  size_t idle = 0;
  {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    for (const auto& other : pool().idle) {
      if (other->device() == context.device()) idle += other->kept_bytes();
    }
  }
  // What lay_out adds makes it nine tenths.
  return (free_memory() + context.kept_bytes() + idle) / 10 * 8;
}

}  // namespace pytrace::cuda
