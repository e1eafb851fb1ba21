// Between the host and a card, beside the kernels: ordinary memory goes through two pinned slots,
// so that one is filled (or emptied) by the processor while the other is on its way.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"

namespace pytrace::cuda {

// Of a slot: so large that a copy's start (some 10 us) is little beside its time (0.5 ms at 16
// GB/s), so small that the first kernel starts soon.
#if defined(PYTRACE_CUDA_EMULATION)
inline constexpr int64_t kPinnedBytes = 1024;
#else
inline constexpr int64_t kPinnedBytes = int64_t{8} << 20;
#endif

// Rows of `width` bytes in ordinary memory of the host; `pitch` bytes apart, which may be zero or
// negative.
struct HostRows {
  const void* data = nullptr;
  int64_t pitch = 0;
  int64_t width = 0;
  int64_t rows = 0;
};

// The same to be written.
struct HostRoom {
  void* data = nullptr;
  int64_t pitch = 0;
  int64_t width = 0;
  int64_t rows = 0;
};

class Uploader {
 public:
  // Takes the context's pinned memory for itself.
  explicit Uploader(Context& context);

  // Queues the rows, packed without gaps, on the context's copy stream. The host's memory has been
  // read when this returns; what is already queued on the copy stream comes first.
  void send(const HostRows& rows, void* to);

 private:
  Context& context_;
  char* slots_;
  Event free_[2];
  int next_ = 0;
};

class Downloader {
 public:
  // What it takes at once without keeping the host from queueing more.
  static constexpr int64_t kHeldBytes = 2 * kPinnedBytes;

  explicit Downloader(Context& context);

  // Brings rows that lie without gaps on the card to the host. They are copied on the context's
  // return stream, after what is queued on the kernels' stream now, and are there after `finish`
  // (or earlier). When this returns, all copies are queued; it waits only where what was asked for
  // before is still on its way, or these rows are larger than kHeldBytes.
  void receive(const void* from, const HostRoom& to);
  void receive(const void* from, void* to, size_t bytes) {
    const auto size = static_cast<int64_t>(bytes);
    receive(from, HostRoom{to, size, size, 1});
  }

  // Waits for all that was asked for.
  void finish();

 private:
  struct Slot {
    Event ready;
    HostRoom to;
    int64_t first = 0;  // of the bytes of `to`
    int64_t bytes = 0;
  };
  void empty(int slot);

  Context& context_;
  char* memory_;
  Event computed_;
  Slot slots_[2];
  int next_ = 0;
};

}  // namespace pytrace::cuda
