#include "cuda/transfers.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "common/parallel.h"

namespace pytrace::cuda {
namespace {

// Two to send from, two to receive in; one size, so that the context never moves them.
constexpr size_t kStagingBytes = static_cast<size_t>(4 * kPinnedBytes);
// Bytes that one thread copies in some 20 us.
constexpr int64_t kGrain = int64_t{256} << 10;

template <typename Rows>
using Bytes = std::conditional_t<std::is_same_v<Rows, HostRows>, const char*, char*>;

// Calls `copy(place, at, count)` for the pieces that bytes [first, first + bytes) of the rows, as
// they lie without gaps, are made of: where a piece lies, and where it is within those bytes.
template <typename Rows, typename Copy>
void for_pieces(const Rows& rows, int64_t first, int64_t bytes, const Copy& copy) {
  const bool gaps = rows.rows > 1 && rows.pitch != rows.width;
  const int64_t width = gaps ? rows.width : rows.width * rows.rows;
  const auto data = static_cast<Bytes<Rows>>(rows.data);
  parallel_for((bytes + kGrain - 1) / kGrain, 1, 0, [&](int64_t begin, int64_t end, int) {
    const int64_t last = std::min(bytes, end * kGrain);
    for (int64_t at = begin * kGrain; at < last;) {
      const int64_t row = (first + at) / width;
      const int64_t column = (first + at) % width;
      const int64_t count = std::min(last - at, width - column);
      copy(data + row * rows.pitch + column, at, static_cast<size_t>(count));
      at += count;
    }
  });
}

}  // namespace

Uploader::Uploader(Context& context)
    : context_(context), slots_(static_cast<char*>(context.staging(kStagingBytes))) {}

void Uploader::send(const HostRows& rows, void* to) {
  const int64_t total = rows.width * rows.rows;
  for (int64_t first = 0; first < total; first += kPinnedBytes) {
    const int64_t bytes = std::min(kPinnedBytes, total - first);
    const int slot = next_;
    next_ = 1 - next_;
    free_[slot].wait();
    char* memory = slots_ + slot * kPinnedBytes;
    for_pieces(rows, first, bytes, [&](const char* from, int64_t at, size_t count) {
      std::memcpy(memory + at, from, count);
    });
    require(cudaMemcpyAsync(static_cast<char*>(to) + first, memory, static_cast<size_t>(bytes),
                            cudaMemcpyHostToDevice, context_.copy_stream()),
            "copying to the card");
    free_[slot].record(context_.copy_stream());
  }
}

Downloader::Downloader(Context& context)
    : context_(context),
      memory_(static_cast<char*>(context.staging(kStagingBytes)) + 2 * kPinnedBytes) {}

void Downloader::receive(const void* from, const HostRoom& to) {
  computed_.record(context_.stream());
  computed_.hold(context_.return_stream());
  const int64_t total = to.width * to.rows;
  for (int64_t first = 0; first < total; first += kPinnedBytes) {
    Slot& slot = slots_[next_];
    empty(next_);
    slot.to = to;
    slot.first = first;
    slot.bytes = std::min(kPinnedBytes, total - first);
    require(cudaMemcpyAsync(memory_ + next_ * kPinnedBytes, static_cast<const char*>(from) + first,
                            static_cast<size_t>(slot.bytes), cudaMemcpyDeviceToHost,
                            context_.return_stream()),
            "copying from the card");
    slot.ready.record(context_.return_stream());
    next_ = 1 - next_;
  }
}

void Downloader::empty(int index) {
  Slot& slot = slots_[index];
  if (slot.bytes == 0) return;
  slot.ready.wait();
  const char* memory = memory_ + index * kPinnedBytes;
  for_pieces(slot.to, slot.first, slot.bytes,
             [&](char* to, int64_t at, size_t count) { std::memcpy(to, memory + at, count); });
  slot.bytes = 0;
}

void Downloader::finish() {
  empty(next_);
  empty(1 - next_);
}

}  // namespace pytrace::cuda
