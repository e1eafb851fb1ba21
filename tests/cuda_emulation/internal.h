// What the two halves of the emulated card share: threads.cc, which runs one launch, and card.cc,
// which has memory, queues launches and copies, and runs them when somebody waits.
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <random>
#include <string>

namespace emulation {

// One call at a time, whatever thread it comes from.
inline std::recursive_mutex& lock_of_all() {
  static std::recursive_mutex mutex;
  return mutex;
}

using Locked = std::lock_guard<std::recursive_mutex>;

inline uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 10);
}

inline std::mt19937_64& dice() {
  static std::mt19937_64 engine;
  static uint64_t seeded = ~uint64_t{0};
  const uint64_t seed = number_from("PYTRACE_EMULATION_SEED", 1);
  if (seed != seeded) engine.seed(seeded = seed);
  return engine;
}

inline size_t below(size_t count) { return static_cast<size_t>(dice()() % count); }

inline void fill_with_garbage(void* memory, size_t bytes) { std::memset(memory, 0xA5, bytes); }

// What went wrong first, as a sentence; empty if nothing did.
inline std::string fault_text;

inline void remember_fault(const std::string& text) {
  if (fault_text.empty()) fault_text = text;
}

// Runs a grid to its end, or to its first fault.
void run_launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body);

}  // namespace emulation
