// Between the host and a card, beside the kernels: ordinary memory goes through two pinned slots,
// so that one is filled (or emptied) by the processor while the other is on its way.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"

namespace pytrace::cuda {

// Rows of `width` bytes in ordinary memory of the host; `pitch` bytes apart, which may be zero or
// negative.
struct HostRows {
  const void* data = nullptr;
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
  explicit Downloader(Context& context);

  // Brings `bytes` to the host. They are copied after what is queued on the kernels' stream now,
  // and are there after `finish` (or earlier).
  void receive(const void* from, void* to, size_t bytes);

  // Waits for all that was asked for.
  void finish();

 private:
  struct Slot {
    Event ready;
    void* to = nullptr;
    size_t bytes = 0;
  };
  void empty(int slot);

  Context& context_;
  char* memory_;
  Event computed_;
  Slot slots_[2];
  int next_ = 0;
};

}  // namespace pytrace::cuda
