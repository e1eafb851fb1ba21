// Zeros for all nodes or links, which the system hands out page by page as they are touched.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pytrace::walk_detail {

template <typename T>
class Zeros {
 public:
  // Lie at a line of the cache. Where all of them are going to be touched, large pages are asked
  // for: fewer have to be handed out, and a place anywhere in them is found sooner.
  explicit Zeros(int64_t count, bool all_touched = false) {
    constexpr uintptr_t kLine = 64, kPage = uintptr_t{1} << 21;
    if (count >= (std::numeric_limits<int64_t>::max() >> 1) / static_cast<int64_t>(sizeof(T)))
      throw std::bad_alloc();
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    const uintptr_t unit = all_touched && bytes >= kPage ? kPage : kLine;
    size_t size = bytes + unit;
    void* memory = nullptr;
#if defined(__linux__)
    // Memory that is new to the process, for pages that it has stay small.
    if (unit == kPage) {
      size = (size + kPage - 1) / kPage * kPage;
      memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      madvise(memory, size, MADV_HUGEPAGE);
      memory_ = Memory(memory, Free{size});
    }
#endif
    if (memory == nullptr) {
      memory = std::calloc(size, 1);
      if (memory == nullptr) throw std::bad_alloc();
      memory_ = Memory(memory, Free{0});
    }
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
    values_ = reinterpret_cast<T*>((address + unit - 1) / unit * unit);
  }

  T& operator[](int64_t i) { return values_[i]; }
  T* values() { return values_; }

 private:
  struct Free {
    size_t mapped;  // 0: allocated

    void operator()(void* memory) const {
#if defined(__linux__)
      if (mapped > 0) {
        munmap(memory, mapped);
        return;
      }
#endif
      std::free(memory);
    }
  };
  using Memory = std::unique_ptr<void, Free>;

  Memory memory_{nullptr, Free{0}};
  T* values_;
};

}  // namespace pytrace::walk_detail
