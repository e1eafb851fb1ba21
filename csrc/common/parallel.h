// One knob for threads: PYTRACE_NUM_THREADS, set_num_threads(), or a call's own `threads` argument.
//
// The threads are our own, not OpenMP's: an OpenMP region ends only when every thread of its team
// has arrived, so on a machine with other work a call waits for a thread that has not been given a
// processor yet (8 to 16 ms on Linux) though nothing is left for it to do. Here the calling thread
// works too, the others come as they can, and the call ends when all chunks are done.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

namespace pytrace {

// Threads that a call uses when it does not say: PYTRACE_NUM_THREADS, else the processors this
// process may run on.
int num_threads();

// Sets the default. Throws std::invalid_argument below 1.
void set_num_threads(int threads);

// The number to run with: `requested` if above 0, else the default; never more than `tasks` or
// 1,024; 1 in a child made by fork() (whoever forks has shared the processors out already, and the
// threads stayed behind).
int resolve_threads(int requested, int64_t tasks);

namespace detail {

// Calls call(context, chunk, thread) for every chunk of [0, chunks), in increasing order, on at
// most `threads` threads numbered from 0, the caller's own. `call` must not throw.
void run_chunks(int64_t chunks, int threads, void (*call)(void*, int64_t, int), void* context);

}  // namespace detail

// Calls body(begin, end, thread) on chunks of [0, tasks). Which thread gets which chunk may vary,
// so a body must write only to its own chunk's output: results are then the same for every thread
// count. If bodies throw, the exception of the lowest chunk is rethrown here; chunks behind it may
// then be left out.
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
  struct Run {
    const Body& body;
    int64_t tasks;
    int64_t chunk;
    std::mutex mutex;
    std::atomic<int64_t> failed;
    std::exception_ptr failure;
  } run{body, tasks, chunk, {}, {chunks}, nullptr};
  const auto call = [](void* context, int64_t index, int thread) {
    Run& own = *static_cast<Run*>(context);
    if (own.failed.load(std::memory_order_relaxed) < index) return;
    try {
      const int64_t begin = index * own.chunk;
      const int64_t end = own.tasks - begin < own.chunk ? own.tasks : begin + own.chunk;
      own.body(begin, end, thread);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(own.mutex);
      if (index < own.failed) {
        own.failed = index;
        own.failure = std::current_exception();
      }
    }
  };
  detail::run_chunks(chunks, threads, call, &run);
  if (run.failure) std::rethrow_exception(run.failure);
}

}  // namespace pytrace
