// The emulated card: fibers for threads, queues for streams. See cuda_runtime.h.
//
// Never built with -fsanitize=thread, so that the emulation's own bookkeeping, which all fibers
// share, is not taken for the kernels'.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "fibers.h"

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
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr int kWarp = 32;
// The least of the cards that the kernels are built for (compute capability 8.6, 8.9 and 12.0).
constexpr size_t kMostShared = size_t{99} << 10;
constexpr size_t kSharedByDefault = size_t{48} << 10;
constexpr size_t kMemory = size_t{1} << 30;

std::recursive_mutex& lock_of_all() {
  static std::recursive_mutex mutex;
  return mutex;
}

using Locked = std::lock_guard<std::recursive_mutex>;

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 10);
}

std::mt19937_64& dice() {
  static std::mt19937_64 engine;
  static uint64_t seeded = ~uint64_t{0};
  const uint64_t seed = number_from("PYTRACE_EMULATION_SEED", 1);
  if (seed != seeded) engine.seed(seeded = seed);
  return engine;
}

size_t below(size_t count) { return static_cast<size_t>(dice()() % count); }

void fill_with_garbage(void* memory, size_t bytes) { std::memset(memory, 0xA5, bytes); }

// ---- what the thread sanitizer is told
// -----------------------------------------------------------

void release([[maybe_unused]] void* object) {
#if defined(PYTRACE_EMULATION_TSAN)
  __tsan_release(object);
#endif
}

void acquire([[maybe_unused]] void* object) {
#if defined(PYTRACE_EMULATION_TSAN)
  __tsan_acquire(object);
#endif
}

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

// ---- one launch
// ------------------------------------------------------------------------------------

struct Block;
struct Warp;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Fiber {
  Stopped stopped;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  void* fake_stack = nullptr;
  void* tsan = nullptr;
};

struct Thread {
  Fiber* fiber = nullptr;
  Block* block = nullptr;
  Warp* warp = nullptr;
  Coordinates index{};
  int lane = 0;
  bool done = false;
  const char* waits = nullptr;  // for what, if it waits
  Place place{};
  // Its part in a collective.
  unsigned mask = 0;
  void* payload = nullptr;
  // Its asynchronous copies: groups, the last one still open.
  std::deque<std::vector<Copy>> copies{1};
  size_t arrays = 0;  // of shared memory taken
};

struct Warp {
  Thread* lanes[kWarp] = {};
};

struct Array {
  char* memory;
  size_t bytes;
};

struct Block {
  Coordinates index{};
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  std::vector<Array> arrays;
  size_t shared_bytes = 0;
  size_t live = 0;
  size_t at_barrier = 0;
  char tag = 0;  // of the block's barriers, for the thread sanitizer

  ~Block() {
    for (const Array& array : arrays) std::free(array.memory);
  }
};

struct Fault {};

struct Launch {
  dim3 grid, block;
  Coordinates grid_shape{}, block_shape{};
  size_t shared_bytes = 0;
  const std::function<void()>* body = nullptr;
  std::vector<Thread*> ready;
  std::vector<std::unique_ptr<Block>> resident;
  Thread* current = nullptr;
  bool failed = false;
  // For the thread sanitizer. Not one tag, because a thread that ends must not be ordered before
  // one that has not begun; `left` is for a launch that fails, whose threads never end.
  char begin = 0;
  char end = 0;
  char left = 0;
};

Launch* running = nullptr;
std::string fault_text;
Stopped scheduler;
#if defined(__SANITIZE_ADDRESS__)
void* scheduler_fake_stack = nullptr;
const void* scheduler_stack = nullptr;
size_t scheduler_stack_bytes = 0;
#endif
#if defined(PYTRACE_EMULATION_TSAN)
void* scheduler_tsan = nullptr;
#endif

std::vector<std::unique_ptr<Fiber>>& spare_fibers() {
  static std::vector<std::unique_ptr<Fiber>> fibers;
  return fibers;
}

void to_scheduler([[maybe_unused]] bool last) {
  release(&running->left);
  Fiber& own = *running->current->fiber;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &own.fake_stack, scheduler_stack,
                                 scheduler_stack_bytes);
#endif
#if defined(PYTRACE_EMULATION_TSAN)
  __tsan_switch_to_fiber(scheduler_tsan, 1);
#endif
  switch_stacks(own.stopped, scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own.fake_stack, nullptr, nullptr);
#endif
}

void to_fiber(Thread* thread) {
  Fiber& fiber = *thread->fiber;
  running->current = thread;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber.stack.get(), kStackBytes);
#endif
#if defined(PYTRACE_EMULATION_TSAN)
  __tsan_switch_to_fiber(fiber.tsan, 1);
#endif
  switch_stacks(scheduler, fiber.stopped);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
}

void leave_block(Thread* thread);

void run_thread() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
  Thread* own = running->current;
  acquire(&running->begin);
  (*running->body)();
  wait_copies(0);
  release(&running->end);
  leave_block(own);
  to_scheduler(true);
}

void wait_for(const char* what, Place place) {
  Thread* own = running->current;
  own->waits = what;
  own->place = place;
  to_scheduler(false);
}

void wake(Thread* thread) {
  thread->waits = nullptr;
  running->ready.push_back(thread);
}

void open_barrier(Block* block) {
  if (block->at_barrier == 0 || block->at_barrier < block->live) return;
  block->at_barrier = 0;
  for (auto& thread : block->threads) {
    if (thread->waits != nullptr) wake(thread.get());
  }
}

void leave_block(Thread* thread) {
  thread->done = true;
  --thread->block->live;
  open_barrier(thread->block);
}

std::unique_ptr<Fiber> take_fiber() {
  auto& spare = spare_fibers();
  std::unique_ptr<Fiber> fiber;
  if (spare.empty()) {
    fiber.reset(new Fiber);
#if defined(PYTRACE_EMULATION_TSAN)
    fiber->tsan = __tsan_create_fiber(0);
#endif
  } else {
    fiber = std::move(spare.back());
    spare.pop_back();
  }
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(fiber->stack.get(), kStackBytes);
#endif
  fiber->fake_stack = nullptr;
  prepare(fiber->stopped, fiber->stack.get(), kStackBytes, &run_thread);
  return fiber;
}

void start_block(Launch& launch, size_t number) {
  auto block = std::make_unique<Block>();
  block->index = {static_cast<unsigned>(number % launch.grid.x),
                  static_cast<unsigned>(number / launch.grid.x % launch.grid.y),
                  static_cast<unsigned>(number / launch.grid.x / launch.grid.y)};
  const unsigned count = launch.block.x * launch.block.y * launch.block.z;
  block->warps.resize((count + kWarp - 1) / kWarp);
  block->live = count;
  for (unsigned i = 0; i < count; ++i) {
    auto thread = std::make_unique<Thread>();
    thread->block = block.get();
    thread->index = {i % launch.block.x, i / launch.block.x % launch.block.y,
                     i / launch.block.x / launch.block.y};
    thread->lane = static_cast<int>(i % kWarp);
    thread->warp = &block->warps[i / kWarp];
    thread->warp->lanes[i % kWarp] = thread.get();
    thread->fiber = take_fiber().release();
    launch.ready.push_back(thread.get());
    block->threads.push_back(std::move(thread));
  }
  launch.resident.push_back(std::move(block));
}

// A fiber that was given up in the middle of a kernel is not used again.
void end_block(Block& block) {
  for (auto& thread : block.threads) {
    if (thread->fiber != nullptr && thread->done) spare_fibers().emplace_back(thread->fiber);
    thread->fiber = nullptr;
  }
}

void remember_fault(const std::string& text) {
  if (fault_text.empty()) fault_text = text;
}

void report_deadlock(const Launch& launch) {
  for (const auto& block : launch.resident) {
    size_t done = 0;
    const Thread* waiting = nullptr;
    for (const auto& thread : block->threads) {
      done += thread->done;
      if (thread->waits != nullptr) waiting = thread.get();
    }
    if (waiting == nullptr) continue;
    char text[512];
    std::snprintf(text, sizeof text,
                  "deadlock: lane %d waits at %s (%s:%d) with mask %08x for threads that never "
                  "come; %zu of the block's %zu have ended",
                  waiting->lane, waiting->waits, waiting->place.file, waiting->place.line,
                  waiting->mask, done, block->threads.size());
    return remember_fault(text);
  }
}

void run_launch(Launch& launch) {
  const size_t blocks = size_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  // Blocks start in a random order: number i of them is (a * i + b) mod blocks.
  size_t step = 1 + below(blocks), first = below(blocks);
  while (std::__gcd(step, blocks) != 1) ++step;
  const size_t side_by_side = 1 + below(3);
  size_t started = 0;
  running = &launch;
#if defined(PYTRACE_EMULATION_TSAN)
  scheduler_tsan = __tsan_get_current_fiber();
#endif
  const Unwatched unwatched;
  release(&launch.begin);
  while (!launch.failed) {
    while (launch.resident.size() < side_by_side && started < blocks) {
      start_block(launch, (first + started++ * step) % blocks);
    }
    if (launch.resident.empty()) break;
    if (launch.ready.empty()) {
      report_deadlock(launch);
      launch.failed = true;
      break;
    }
    std::swap(launch.ready[below(launch.ready.size())], launch.ready.back());
    Thread* thread = launch.ready.back();
    launch.ready.pop_back();
    to_fiber(thread);
    if (thread->done && thread->block->live == 0) {
      const auto found =
          std::find_if(launch.resident.begin(), launch.resident.end(),
                       [&](const auto& block) { return block.get() == thread->block; });
      end_block(**found);
      launch.resident.erase(found);
    }
  }
  for (auto& block : launch.resident) end_block(*block);
  if (launch.failed) acquire(&launch.left);
  acquire(&launch.end);
  running = nullptr;
}

// ---- streams
// ----------------------------------------------------------------------------------------

struct Memory {
  size_t bytes;
  bool device;
};

std::map<const char*, Memory>& memories() {
  static std::map<const char*, Memory> all;
  return all;
}

const Memory* memory_at(const void* pointer) {
  const auto* at = static_cast<const char*>(pointer);
  auto next = memories().upper_bound(at);
  if (next == memories().begin()) return nullptr;
  --next;
  return at < next->first + std::max<size_t>(next->second.bytes, 1) ? &next->second : nullptr;
}

bool on_device(const void* pointer) {
  const Memory* memory = memory_at(pointer);
  return memory != nullptr && memory->device;
}

size_t used_memory() {
  size_t used = 0;
  for (const auto& [pointer, memory] : memories()) used += memory.device ? memory.bytes : 0;
  return used;
}

size_t total_memory() {
  return static_cast<size_t>(number_from("PYTRACE_EMULATED_MEMORY", kMemory));
}

}  // namespace
}  // namespace emulation

struct EmulatedEvent {
  uint64_t recorded = 0;
  uint64_t reached = 0;
};

enum class Work { kOther, kKernel, kCopyThere, kCopyBack };

struct EmulatedStream {
  struct Step {
    std::function<void()> run;
    Work work = Work::kOther;
    EmulatedEvent* awaited = nullptr;
    uint64_t until = 0;
  };
  std::deque<Step> steps;

  bool can_go_on() const {
    return !steps.empty() && (steps.front().awaited == nullptr ||
                              steps.front().awaited->reached >= steps.front().until);
  }
};

namespace emulation {
namespace {

std::vector<EmulatedStream*>& streams() {
  static EmulatedStream ordinary;
  static std::vector<EmulatedStream*> all{&ordinary};
  return all;
}

EmulatedStream* stream_of(cudaStream_t stream) {
  for (EmulatedStream* known : streams()) {
    if (known == stream) return stream;
  }
  // The handles of the toolkit's own default streams (null, 1 and 2), and what is unknown.
  return streams().front();
}

void add(cudaStream_t stream, std::function<void()> run, Work work = Work::kOther) {
  stream_of(stream)->steps.push_back({std::move(run), work});
}

// How often a kernel could have run beside a copy to the card, and beside one from it.
int64_t overlaps[2] = {};

void count_overlaps(const std::vector<EmulatedStream*>& able) {
  const auto any = [&](Work work) {
    return std::any_of(able.begin(), able.end(), [=](const EmulatedStream* stream) {
      return stream->steps.front().work == work;
    });
  };
  if (!any(Work::kKernel)) return;
  overlaps[0] += any(Work::kCopyThere);
  overlaps[1] += any(Work::kCopyBack);
}

cudaError_t result() { return fault_text.empty() ? cudaSuccess : cudaErrorLaunchFailure; }

// Runs what is queued, streams mixed at random, until `enough`.
template <typename Enough>
cudaError_t run_until(const Enough& enough) {
  while (fault_text.empty() && !enough()) {
    std::vector<EmulatedStream*> able;
    for (EmulatedStream* stream : streams()) {
      if (stream->can_go_on()) able.push_back(stream);
    }
    if (able.empty()) {
      remember_fault("deadlock: a stream waits for an event that nothing will record");
      break;
    }
    count_overlaps(able);
    EmulatedStream* stream = able[below(able.size())];
    EmulatedStream::Step step = std::move(stream->steps.front());
    stream->steps.pop_front();
    if (step.run) step.run();
  }
  if (!fault_text.empty()) {
    for (EmulatedStream* stream : streams()) stream->steps.clear();
  }
  return result();
}

cudaError_t run_everything() {
  return run_until([] {
    return std::all_of(streams().begin(), streams().end(),
                       [](const EmulatedStream* stream) { return stream->steps.empty(); });
  });
}

std::map<const void*, size_t>& allowed_shared() {
  static std::map<const void*, size_t> all;
  return all;
}

cudaError_t last_error = cudaSuccess;

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t allocate(void** pointer, size_t size, bool device) {
  const Locked locked(lock_of_all());
  if (device && size > total_memory() - std::min(total_memory(), used_memory())) {
    return note(cudaErrorMemoryAllocation);
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, std::max<size_t>(size, 1)) != 0) {
    return note(cudaErrorMemoryAllocation);
  }
  fill_with_garbage(memory, size);
  memories()[static_cast<char*>(memory)] = {size, device};
  *pointer = memory;
  return cudaSuccess;
}

cudaError_t release_memory(void* pointer, bool device) {
  const Locked locked(lock_of_all());
  if (pointer == nullptr) return cudaSuccess;
  const cudaError_t error = run_everything();
  const auto found = memories().find(static_cast<char*>(pointer));
  if (found == memories().end() || found->second.device != device) {
    return note(cudaErrorInvalidValue);
  }
  memories().erase(found);
  std::free(pointer);
  return error;
}

}  // namespace

const Coordinates& thread_index() { return running->current->index; }
const Coordinates& block_index() { return running->current->block->index; }
const Coordinates& block_shape() { return running->block_shape; }
const Coordinates& grid_shape() { return running->grid_shape; }
int lane() { return running->current->lane; }

void fault(const char* format, ...) {
  const Unwatched unwatched;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  remember_fault(text);
  running->failed = true;
  to_scheduler(false);  // which never comes back
  std::abort();
}

void barrier(Place place) {
  const Unwatched unwatched;
  Thread* own = running->current;
  Block* block = own->block;
  for (const auto& other : block->threads) {
    if (block->at_barrier == 0) break;
    if (other->waits == nullptr || other->mask != 0) continue;
    if (other->place.line != place.line || std::strcmp(other->place.file, place.file) != 0) {
      fault("the threads of a block meet at different barriers: %s:%d and %s:%d", place.file,
            place.line, other->place.file, other->place.line);
    }
    break;
  }
  release(&block->tag);
  ++block->at_barrier;
  if (block->at_barrier == block->live) {
    block->at_barrier = 0;
    for (const auto& thread : block->threads) {
      if (thread->waits != nullptr) wake(thread.get());
    }
    running->ready.push_back(own);
    to_scheduler(false);
  } else {
    wait_for("__syncthreads", place);
  }
  acquire(&block->tag);
}

void collective(unsigned mask, const char* kind, Place place, bool fences, void* payload,
                void (*run)(void* const* payloads, unsigned mask)) {
  const Unwatched unwatched;
  Thread* own = running->current;
  Warp& warp = *own->warp;
  if ((mask >> own->lane & 1u) == 0) {
    fault("lane %d calls %s (%s:%d) with mask %08x, in which it is not", own->lane, kind,
          place.file, place.line, mask);
  }
  own->mask = mask;
  own->payload = payload;
  if (fences) release(&warp);
  void* payloads[kWarp] = {};
  bool complete = true;
  for (int i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1u) == 0) continue;
    Thread* other = warp.lanes[i];
    if (other == nullptr || other->done) {
      fault("%s (%s:%d) waits for lane %d, which is not there", kind, place.file, place.line, i);
    }
    if (other == own) {
      payloads[i] = payload;
      continue;
    }
    if (other->waits == nullptr || other->mask == 0) {
      complete = false;
      continue;
    }
    if (other->mask != mask) {
      if ((other->mask & mask) == 0 || (other->mask >> own->lane & 1u) == 0) {
        complete = false;
        continue;
      }
      fault("lanes %d and %d meet in %s (%s:%d) with masks %08x and %08x", own->lane, i, kind,
            place.file, place.line, mask, other->mask);
    }
    if (std::strcmp(other->waits, kind) != 0 || other->place.line != place.line ||
        std::strcmp(other->place.file, place.file) != 0) {
      fault("lanes %d and %d are at different collectives: %s (%s:%d) and %s (%s:%d)", own->lane, i,
            kind, place.file, place.line, other->waits, other->place.file, other->place.line);
    }
    payloads[i] = other->payload;
  }
  if (!complete) {
    wait_for(kind, place);
  } else {
    run(payloads, mask);
    for (int i = 0; i < kWarp; ++i) {
      if ((mask >> i & 1u) != 0 && warp.lanes[i] != own) wake(warp.lanes[i]);
    }
    running->ready.push_back(own);
    to_scheduler(false);
  }
  own->mask = 0;
  own->payload = nullptr;
  if (fences) acquire(&warp);
}

unsigned ballot(unsigned mask, bool predicate, Place place) {
  struct Vote {
    bool predicate;
    unsigned votes;
  } own{predicate, 0};
  collective(mask, "__ballot_sync", place, false, &own, [](void* const* payloads, unsigned lanes) {
    unsigned votes = 0;
    for (int i = 0; i < kWarp; ++i) {
      if ((lanes >> i & 1u) != 0 && static_cast<Vote*>(payloads[i])->predicate) votes |= 1u << i;
    }
    for (int i = 0; i < kWarp; ++i) {
      if ((lanes >> i & 1u) != 0) static_cast<Vote*>(payloads[i])->votes = votes;
    }
  });
  return own.votes;
}

void* shared_array(size_t bytes, size_t alignment) {
  const Unwatched unwatched;
  Thread* own = running->current;
  Block* block = own->block;
  const size_t number = own->arrays++;
  if (number == block->arrays.size()) {
    const size_t begin = (block->shared_bytes + alignment - 1) / alignment * alignment;
    block->shared_bytes = begin + bytes;
    if (block->shared_bytes > running->shared_bytes) {
      fault("a block takes %zu bytes of shared memory, but the launch gives it %zu",
            block->shared_bytes, running->shared_bytes);
    }
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max<size_t>(alignment, 16), std::max<size_t>(bytes, 1)) != 0) {
      fault("no memory for %zu bytes of shared memory", bytes);
    }
    fill_with_garbage(memory, bytes);
    block->arrays.push_back({static_cast<char*>(memory), bytes});
  }
  if (block->arrays[number].bytes != bytes) {
    fault("shared array %zu has %zu bytes for one thread and %zu for another", number,
          block->arrays[number].bytes, bytes);
  }
  return block->arrays[number].memory;
}

void copy_async(void* to, const void* from, size_t bytes) {
  require_aligned(to, bytes);
  require_aligned(from, bytes);
  const Unwatched unwatched;
  running->current->copies.back().push_back({to, from, bytes});
}

void commit_copies() {
  const Unwatched unwatched;
  running->current->copies.emplace_back();
}

void wait_copies(int groups_left) {
  auto& groups = running->current->copies;
  // The open group counts only once it is committed; all are waited for at the end of a thread.
  while (groups.size() > static_cast<size_t>(groups_left) + 1) {
    for (const Copy& copy : groups.front()) {
      // Through the sanitizer's own memcpy, so that it knows of both accesses.
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    const Unwatched unwatched;
    groups.pop_front();
  }
}

void require_aligned(const void* pointer, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    fault("an access of %zu bytes at an address that is no multiple of it", alignment);
  }
}

void allow_shared(const void* kernel, size_t bytes) {
  const Locked locked(lock_of_all());
  allowed_shared()[kernel] = bytes;
}

void enqueue_launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> body) {
  const Locked locked(lock_of_all());
  const size_t threads = size_t{block.x} * block.y * block.z;
  const auto found = allowed_shared().find(kernel);
  const size_t allowed = found == allowed_shared().end() ? kSharedByDefault : found->second;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535 || threads == 0 || threads > 1024 || block.z > 64 || shared_bytes > allowed ||
      shared_bytes > kMostShared) {
    note(cudaErrorInvalidValue);
    return;
  }
  add(
      stream,
      [=] {
        Launch launch;
        launch.grid = grid;
        launch.block = block;
        launch.grid_shape = {grid.x, grid.y, grid.z};
        launch.block_shape = {block.x, block.y, block.z};
        launch.shared_bytes = shared_bytes;
        launch.body = &body;
        run_launch(launch);
      },
      Work::kKernel);
}

}  // namespace emulation

using namespace emulation;

// For the tests, by ctypes: see `overlaps`.
extern "C" __attribute__((visibility("default"))) int64_t emulated_overlaps(int back) {
  const Locked locked(lock_of_all());
  return overlaps[back != 0];
}

// Likewise: leaves an array of the card, as another library would, to be filled by its stream.
extern "C" __attribute__((visibility("default"))) int emulated_fill(void* to, int value,
                                                                    size_t size) {
  return cudaMemsetAsync(to, value, size, nullptr);
}

void __threadfence() {
  static char tag;
  release(&tag);
  acquire(&tag);
}
void __threadfence_block() { __threadfence(); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(number_from("PYTRACE_EMULATED_DEVICES", 1));
  return *count == 0 ? note(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : note(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return note(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated");
  properties->totalGlobalMem = total_memory();
  properties->sharedMemPerBlockOptin = kMostShared;
  properties->major = 8;
  properties->minor = 6;
  properties->multiProcessorCount = 2;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  *value = attribute == cudaDevAttrMultiProcessorCount ? properties.multiProcessorCount
                                                       : properties.major;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Locked locked(lock_of_all());
  *total = total_memory();
  *free = *total - std::min(*total, used_memory());
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, size_t size) { return allocate(pointer, size, true); }
cudaError_t cudaFree(void* pointer) { return release_memory(pointer, true); }
cudaError_t cudaMallocHost(void** pointer, size_t size) { return allocate(pointer, size, false); }
cudaError_t cudaFreeHost(void* pointer) { return release_memory(pointer, false); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Locked locked(lock_of_all());
  const Memory* memory = memory_at(pointer);
  *attributes = {};
  attributes->type = memory == nullptr ? cudaMemoryTypeUnregistered
                     : memory->device  ? cudaMemoryTypeDevice
                                       : cudaMemoryTypeHost;
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const Locked locked(lock_of_all());
  if (width == 0 || height == 0) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device != on_device(to) || from_device != on_device(from) ||
      (height > 1 && (to_pitch < width || from_pitch < width))) {
    return note(cudaErrorInvalidValue);
  }
  auto copy = [=](const void* source, size_t source_pitch) {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch,
                  static_cast<const char*>(source) + row * source_pitch, width);
    }
  };
  if (!from_device && memory_at(from) == nullptr) {
    // Ordinary memory of the host is read before the call returns.
    auto staged = std::make_shared<std::vector<char>>(width * height);
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(staged->data() + row * width, static_cast<const char*>(from) + row * from_pitch,
                  width);
    }
    add(stream, [=] { copy(staged->data(), width); });
    return cudaSuccess;
  }
  const Work work = to_device == from_device ? Work::kOther
                    : to_device              ? Work::kCopyThere
                                             : Work::kCopyBack;
  add(stream, [=] { copy(from, from_pitch); }, work);
  // Ordinary memory of the host has been written when the call returns.
  if (!to_device && memory_at(to) == nullptr) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, size, from, size, size, 1, kind, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  const Locked locked(lock_of_all());
  if (size == 0) return cudaSuccess;
  if (!on_device(to)) return note(cudaErrorInvalidValue);
  add(stream, [=] { std::memset(to, value, size); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Locked locked(lock_of_all());
  *stream = new EmulatedStream;
  streams().push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Locked locked(lock_of_all());
  const cudaError_t error = run_everything();
  auto& all = streams();
  const auto found = std::find(all.begin() + 1, all.end(), stream);
  if (found == all.end()) return note(cudaErrorInvalidValue);
  all.erase(found);
  delete stream;
  return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Locked locked(lock_of_all());
  EmulatedStream* own = stream_of(stream);
  return run_until([own] { return own->steps.empty(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Locked locked(lock_of_all());
  stream_of(stream)->steps.push_back({nullptr, Work::kOther, event, event->recorded});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Locked locked(lock_of_all());
  const cudaError_t error = run_everything();
  delete event;
  return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Locked locked(lock_of_all());
  const uint64_t number = ++event->recorded;
  add(stream, [=] { event->reached = std::max(event->reached, number); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Locked locked(lock_of_all());
  const uint64_t number = event->recorded;
  return run_until([=] { return event->reached >= number; });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0.0f;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const Locked locked(lock_of_all());
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
  }
  return "unknown error";
}

const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string said;
  const Locked locked(lock_of_all());
  if (error != cudaErrorLaunchFailure || fault_text.empty()) return cudaGetErrorName(error);
  // Said once; unlike a real card, this one is then as good as new.
  said.swap(fault_text);
  fault_text.clear();
  return said.c_str();
}
