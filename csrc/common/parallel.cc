#include "common/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <list>
#include <stdexcept>
#include <string>
#include <thread>
#if defined(__linux__)
#include <sched.h>
#endif

namespace pytrace {
namespace {

// How long a thread looks for work, or for the end of it, before it sleeps: first at full speed,
// then giving way to whoever wants the processor. Waking a thread can cost a millisecond where
// processors are virtual, and calls come in rows.
constexpr std::chrono::microseconds kEager{20};
constexpr std::chrono::microseconds kPatience{1000};
constexpr int kMostThreads = 1024;

std::atomic<bool> in_forked_child{false};

int processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  const unsigned count = std::thread::hardware_concurrency();
  return count > 0 ? static_cast<int>(count) : 1;
}

// From the start: a child must not touch the pool, whose mutex a helper may have held at the fork.
[[maybe_unused]] const int fork_is_watched =
    pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });

int initial_threads() {
  if (const char* text = std::getenv("PYTRACE_NUM_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0' && value >= 1 && value <= kMostThreads) return static_cast<int>(value);
  }
  return processors();
}

std::atomic<int>& default_threads() {
  static std::atomic<int> threads{initial_threads()};
  return threads;
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether something came true within kPatience.
template <typename Condition>
bool soon(const Condition& condition) {
  const auto begin = std::chrono::steady_clock::now();
  for (auto waited = begin - begin; waited < kPatience;
       waited = std::chrono::steady_clock::now() - begin) {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      pause_briefly();
    }
    if (waited > kEager) std::this_thread::yield();
  }
  return false;
}

struct Job {
  void (*call)(void*, int64_t, int);
  void* context;
  int64_t chunks;
  std::atomic<int64_t> next{0};
  int wanted;  // helpers that may still come; guarded by the pool's mutex, as the next one
  int came = 0;
  std::atomic<int> active{0};

  void work(int thread) {
    for (int64_t chunk = next.fetch_add(1); chunk < chunks; chunk = next.fetch_add(1)) {
      call(context, chunk, thread);
    }
  }
};

// The helpers of all calls. Never destroyed: its threads end with the process.
class Pool {
 public:
  static Pool& instance() {
    static Pool* const pool = new Pool;
    return *pool;
  }

  void run(Job& job) {
    std::list<Job*>::iterator place;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      hire(job.wanted);
      place = jobs_.insert(jobs_.end(), &job);
      open_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_one();
    job.work(0);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      jobs_.erase(place);
      open_.fetch_sub(1, std::memory_order_release);
      job.wanted = 0;
    }
    // Nobody new comes now; those who are there finish what they have begun.
    const auto alone = [&] { return job.active.load(std::memory_order_acquire) == 0; };
    if (soon(alone)) {
      // The last helper may still hold the mutex under which it left.
      const std::lock_guard<std::mutex> lock(mutex_);
      return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    left_.wait(lock, alone);
  }

 private:
  // Makes sure that there are so many helpers, or as many as the system lets us have.
  void hire(int helpers) {
    for (; helpers_ < helpers; ++helpers_) {
      // Signals are for the threads that Python knows.
      sigset_t all;
      sigset_t before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      try {
        std::thread([this] { help(); }).detach();
      } catch (const std::exception&) {  // no thread or no memory for one
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return;
      }
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
  }

  Job* job_that_wants_help() {
    for (Job* job : jobs_) {
      if (job->wanted > 0) return job;
    }
    return nullptr;
  }

  [[noreturn]] void help() {
    while (true) {
      soon([this] { return open_.load(std::memory_order_acquire) > 0; });
      Job* job = nullptr;
      int number = 0;
      bool more = false;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return (job = job_that_wants_help()) != nullptr; });
        --job->wanted;
        number = ++job->came;
        job->active.fetch_add(1, std::memory_order_relaxed);
        more = job_that_wants_help() != nullptr;
      }
      // One wakes the next, so that the caller does not have to wake them all.
      if (more) wake_.notify_one();
      job->work(number);
      {
        // Under the mutex, because the job is gone as soon as its caller sees that nobody is left.
        const std::lock_guard<std::mutex> lock(mutex_);
        if (job->active.fetch_sub(1, std::memory_order_release) == 1) left_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable left_;
  std::list<Job*> jobs_;
  std::atomic<int> open_{0};
  int helpers_ = 0;
};

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
  return threads < kMostThreads ? threads : kMostThreads;
}

namespace detail {

void run_chunks(int64_t chunks, int threads, void (*call)(void*, int64_t, int), void* context) {
  Job job{call, context, chunks, {0}, threads - 1};
  Pool::instance().run(job);
}

}  // namespace detail
}  // namespace pytrace
