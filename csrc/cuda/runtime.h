// What calls need of the CUDA runtime: errors as exceptions, memory and streams that free
// themselves, and a workspace that is kept from one call to the next.
//
// Kernels never allocate. A call borrows a Context (three streams, a workspace on the card, pinned
// memory on the host), takes what it needs from the workspace at once, and gives the context back
// when its results are there; the workspace only grows when a call needs more than any before it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pytrace::cuda {

// A device was asked for and cannot be used; the message says what was found.
class DeviceUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The card has too little memory; the message says how much was asked for and how much is free.
class OutOfDeviceMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail_with(cudaError_t error, const char* what);

// Throws unless the runtime was content.
inline void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail_with(error, what);
}

struct DeviceInfo {
  int number = 0;
  std::string name;
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  int64_t memory = 0;
  int64_t free_memory = 0;
};

struct Installation {
  int driver = 0;       // 13000 is 13.0; 0: there is no driver
  int runtime = 0;      // that this module was built with
  std::string problem;  // why there is no device; empty if there is one
  std::vector<DeviceInfo> devices;
};

// Looks, and never throws.
Installation installation();

// Throws DeviceUnavailable with what was found if there is no such device. Cheap: every call asks.
void require_device(int device);

// Makes a device the calling thread's current one for a while. Where it was already, nothing is
// touched: choosing a device that the thread never used makes a context there, which takes memory.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Memory on the current device, freed with it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  int device_ = 0;
};

// Pinned memory of the host.
class HostMemory {
 public:
  HostMemory() = default;
  explicit HostMemory(size_t bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A point in a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  void wait();                     // on the host; at once if never recorded
  void hold(cudaStream_t stream);  // what is queued from now on waits for it
 private:
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

// Device memory handed out piece by piece, each at a multiple of 256 bytes. The pieces are laid out
// first (`take`), then the memory is made sure of once (`Context::lay_out`), so that a call never
// allocates twice.
class Workspace {
 public:
  // A piece to come; `data()` is valid after lay_out and until the call ends.
  template <typename T>
  class Piece {
   public:
    T* data() const { return reinterpret_cast<T*>(workspace_->base_ + offset_); }
    int64_t size() const { return count_; }

   private:
    friend class Workspace;
    const Workspace* workspace_ = nullptr;
    size_t offset_ = 0;
    int64_t count_ = 0;
  };

  template <typename T>
  Piece<T> take(int64_t count) {
    Piece<T> piece;
    piece.workspace_ = this;
    piece.offset_ = reserve(count, sizeof(T));
    piece.count_ = count;
    return piece;
  }

  // Bytes taken so far.
  size_t bytes() const { return bytes_; }

 private:
  friend class Context;
  size_t reserve(int64_t count, size_t size);

  char* base_ = nullptr;
  size_t bytes_ = 0;
  std::vector<std::pair<size_t, size_t>> gaps_;  // between pieces; none may be touched
};

// What one call at a time uses: see the top.
class Context {
 public:
  explicit Context(int device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int device() const { return device_; }
  int multiprocessors() const { return multiprocessors_; }
  cudaStream_t stream() const { return stream_; }  // kernels
  // Copies to the card and back, which overlap with kernels and with each other.
  cudaStream_t copy_stream() const { return copy_stream_; }
  cudaStream_t return_stream() const { return return_stream_; }

  // Makes the workspace's pieces real. Throws OutOfDeviceMemory.
  void lay_out(Workspace& workspace);

  // Pinned memory of at least so many bytes, the same until the next call of this.
  void* staging(size_t bytes);

  // Waits for all streams; throws what went wrong there.
  void finish();

  // Bytes of the card that are kept for the next call.
  size_t kept_bytes() const { return memory_.bytes(); }

  // Frees what is kept.
  void release();

 private:
  int device_;
  int multiprocessors_ = 1;
  cudaStream_t stream_ = nullptr;
  cudaStream_t copy_stream_ = nullptr;
  cudaStream_t return_stream_ = nullptr;
  DeviceMemory memory_;
  HostMemory staging_;
};

// Borrows a context of a device for the length of a call, and makes the device current.
class Borrowed {
 public:
  explicit Borrowed(int device);
  ~Borrowed();
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  Context* operator->() const { return context_.get(); }
  Context& operator*() const { return *context_; }

 private:
  OnDevice on_device_;
  std::unique_ptr<Context> context_;
};

// Frees the memory of all contexts that no call uses.
void empty_cache();

// Bytes of the card that one call may plan to take: PYTRACE_CUDA_MEMORY if set, else eight tenths
// of what is free, what idle contexts of this process keep counted as free.
size_t memory_to_use(const Context& context);

}  // namespace pytrace::cuda
