// One knob for threads: PYTRACE_NUM_THREADS, set_num_threads(), or a call's own `threads` argument.
#pragma once

#include <omp.h>

#include <cstdint>
#include <exception>

namespace pytrace {

// Threads that a call uses when it does not say: PYTRACE_NUM_THREADS, else the processors this
// process may run on.
int num_threads();

// Sets the default. Throws std::invalid_argument below 1.
void set_num_threads(int threads);

// The number to run with: `requested` if above 0, else the default; never more than `tasks`; 1 in a
// child made by fork() (OpenMP's threads do not survive a fork, and starting a team there would
// hang).
int resolve_threads(int requested, int64_t tasks);

// Calls body(begin, end, thread) on chunks of [0, tasks). Which thread gets which chunk may vary,
// so a body must write only to its own chunk's output: results are then the same for every thread
// count. The first exception thrown by a body is rethrown here.
template <typename Body>
void parallel_for(int64_t tasks, int64_t chunk, int requested_threads, const Body& body) {
  if (tasks <= 0) return;
  if (chunk < 1) chunk = 1;
  const int64_t chunks = (tasks + chunk - 1) / chunk;
  const int threads = resolve_threads(requested_threads, chunks);
  if (threads == 1) {
    body(int64_t{0}, tasks, 0);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t index = 0; index < chunks; ++index) {
    try {
      const int64_t begin = index * chunk;
      const int64_t end = begin + chunk < tasks ? begin + chunk : tasks;
      body(begin, end, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(pytrace_parallel_failure)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace pytrace
