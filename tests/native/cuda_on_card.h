// Values of the host on the emulated card, for the drivers of tests.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "cuda/runtime.h"

// A copy on the card, freed with it.
class OnCard {
 public:
  OnCard(const void* data, size_t bytes, size_t offset = 0) : offset_(offset) {
    pytrace::cuda::require(cudaMalloc(&data_, bytes), "the test's memory");
    if (bytes > 0) {
      pytrace::cuda::require(cudaMemcpyAsync(data_, data, bytes, cudaMemcpyHostToDevice, nullptr),
                             "the test's copy");
      pytrace::cuda::require(cudaStreamSynchronize(nullptr), "the test's copy");
    }
  }
  ~OnCard() { cudaFree(data_); }
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;
  template <typename T>
  T* at() const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + offset_);
  }

 private:
  void* data_ = nullptr;
  size_t offset_;
};

template <typename T>
OnCard on_card(const std::vector<T>& values) {
  return OnCard(values.data(), values.size() * sizeof(T));
}
