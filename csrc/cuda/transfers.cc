#include "cuda/transfers.h"

#include <algorithm>
#include <cstring>

#include "parallel.h"

namespace pytrace::cuda {
namespace {

// A slot is large enough that a copy's start (some 10 us) is little beside its time (0.5 ms at 16
// GB/s), and small enough that the first kernel starts soon.
#if defined(PYTRACE_CUDA_EMULATION)
constexpr int64_t kSlotBytes = 1024;
#else
constexpr int64_t kSlotBytes = int64_t{8} << 20;
#endif
// Two to send from, two to receive in; one size, so that the context never moves them.
constexpr size_t kStagingBytes = static_cast<size_t>(4 * kSlotBytes);
// Bytes that one thread copies in some 20 us.
constexpr int64_t kGrain = int64_t{256} << 10;

void copy_bytes(char* to, const char* from, int64_t bytes) {
  parallel_for((bytes + kGrain - 1) / kGrain, 1, 0, [&](int64_t begin, int64_t end, int) {
    const int64_t last = std::min(bytes, end * kGrain);
    std::memcpy(to + begin * kGrain, from + begin * kGrain,
                static_cast<size_t>(last - begin * kGrain));
  });
}

// Bytes [first, first + bytes) of the rows as they lie without gaps.
void pack(const HostRows& rows, int64_t first, int64_t bytes, char* to) {
  const auto* data = static_cast<const char*>(rows.data);
  if (rows.pitch == rows.width) return copy_bytes(to, data + first, bytes);
  while (bytes > 0) {
    const int64_t row = first / rows.width;
    const int64_t column = first % rows.width;
    const int64_t count = std::min(bytes, rows.width - column);
    std::memcpy(to, data + row * rows.pitch + column, static_cast<size_t>(count));
    to += count;
    first += count;
    bytes -= count;
  }
}

}  // namespace

Uploader::Uploader(Context& context)
    : context_(context), slots_(static_cast<char*>(context.staging(kStagingBytes))) {}

void Uploader::send(const HostRows& rows, void* to) {
  const int64_t total = rows.width * rows.rows;
  for (int64_t first = 0; first < total; first += kSlotBytes) {
    const int64_t bytes = std::min(kSlotBytes, total - first);
    const int slot = next_;
    next_ = 1 - next_;
    free_[slot].wait();
    char* memory = slots_ + slot * kSlotBytes;
    pack(rows, first, bytes, memory);
    require(cudaMemcpyAsync(static_cast<char*>(to) + first, memory, static_cast<size_t>(bytes),
                            cudaMemcpyHostToDevice, context_.copy_stream()),
            "copying to the card");
    free_[slot].record(context_.copy_stream());
  }
}

Downloader::Downloader(Context& context)
    : context_(context),
      memory_(static_cast<char*>(context.staging(kStagingBytes)) + 2 * kSlotBytes) {}

void Downloader::receive(const void* from, void* to, size_t bytes) {
  computed_.record(context_.stream());
  computed_.hold(context_.copy_stream());
  for (size_t first = 0; first < bytes; first += kSlotBytes) {
    Slot& slot = slots_[next_];
    empty(next_);
    slot.to = static_cast<char*>(to) + first;
    slot.bytes = std::min(static_cast<size_t>(kSlotBytes), bytes - first);
    require(cudaMemcpyAsync(memory_ + next_ * kSlotBytes, static_cast<const char*>(from) + first,
                            slot.bytes, cudaMemcpyDeviceToHost, context_.copy_stream()),
            "copying from the card");
    slot.ready.record(context_.copy_stream());
    next_ = 1 - next_;
  }
}

void Downloader::empty(int index) {
  Slot& slot = slots_[index];
  if (slot.bytes == 0) return;
  slot.ready.wait();
  copy_bytes(static_cast<char*>(slot.to), memory_ + index * kSlotBytes,
             static_cast<int64_t>(slot.bytes));
  slot.bytes = 0;
}

void Downloader::finish() {
  empty(next_);
  empty(1 - next_);
}

}  // namespace pytrace::cuda
