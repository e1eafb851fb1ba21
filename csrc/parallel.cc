#include "parallel.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace pytrace {
namespace {

std::atomic<bool> in_forked_child{false};

int initial_threads() {
  pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });
  if (const char* text = std::getenv("PYTRACE_NUM_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0' && value >= 1 && value <= 4096) return static_cast<int>(value);
  }
  return omp_get_num_procs();
}

std::atomic<int>& default_threads() {
  static std::atomic<int> threads{initial_threads()};
  return threads;
}

}  // namespace

int num_threads() { return default_threads().load(std::memory_order_relaxed); }

void set_num_threads(int threads) {
  if (threads < 1) {
    throw std::invalid_argument("threads must be at least 1, not " + std::to_string(threads));
  }
  default_threads() = threads;
}

int resolve_threads(int requested, int64_t tasks) {
  int threads = requested > 0 ? requested : num_threads();
  if (in_forked_child.load(std::memory_order_relaxed)) return 1;
  if (tasks < threads) threads = static_cast<int>(tasks < 1 ? 1 : tasks);
  return threads;
}

}  // namespace pytrace
