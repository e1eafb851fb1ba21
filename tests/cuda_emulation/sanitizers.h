// What the sanitizers are told of the emulated card's threads.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(PYTRACE_EMULATION_TSAN)
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace emulation {

// For the thread sanitizer: what a thread did before it released an object is ordered before what
// another does after it acquired that.
inline void release([[maybe_unused]] void* object) {
#if defined(PYTRACE_EMULATION_TSAN)
  __tsan_release(object);
#endif
}

inline void acquire([[maybe_unused]] void* object) {
#if defined(PYTRACE_EMULATION_TSAN)
  __tsan_acquire(object);
#endif
}

// While one lives, the sanitizer does not look at the thread's accesses.
struct Unwatched {
  Unwatched() {
#if defined(PYTRACE_EMULATION_TSAN)
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~Unwatched() {
#if defined(PYTRACE_EMULATION_TSAN)
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

}  // namespace emulation
