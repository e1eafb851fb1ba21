// Small arrays of the host that go to the card in one copy: each copy costs some microseconds to
// start, more than most of them take.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/runtime.h"
#include "cuda/transfers.h"

namespace pytrace::cuda {

class PackedInput {
 public:
  // An array's place; `data()` is valid once the workspace is laid out.
  template <typename T>
  class Part {
   public:
    T* data() const { return reinterpret_cast<T*>(input_->piece_.data() + offset_); }

   private:
    friend class PackedInput;
    const PackedInput* input_ = nullptr;
    int64_t offset_ = 0;
  };

  // The array must stay as it is until `send`.
  template <typename T>
  Part<T> add(const T* data, int64_t count) {
    Part<T> part;
    part.input_ = this;
    part.offset_ = bytes_;
    arrays_.push_back({data, bytes_, count * static_cast<int64_t>(sizeof(T))});
    // Each at a multiple of 16, as the workspace's pieces are at least.
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return part;
  }

  // After all were added.
  void take(Workspace& workspace) { piece_ = workspace.take<char>(bytes_); }

  void send(Uploader& uploader) {
    if (bytes_ == 0) return;
    std::vector<char> packed(static_cast<size_t>(bytes_));
    for (const Array& array : arrays_) {
      if (array.bytes == 0) continue;
      std::memcpy(packed.data() + array.offset, array.data, static_cast<size_t>(array.bytes));
    }
    uploader.send(HostRows{packed.data(), bytes_, bytes_, 1}, piece_.data());
  }

 private:
  struct Array {
    const void* data;
    int64_t offset;
    int64_t bytes;
  };
  std::vector<Array> arrays_;
  int64_t bytes_ = 0;
  Workspace::Piece<char> piece_;
};

}  // namespace pytrace::cuda
