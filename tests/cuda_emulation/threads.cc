// The emulated card's threads: each is a fiber, run in a random order up to the next barrier or
// collective. See cuda_runtime.h.
//
// Never built with -fsanitize=thread, so that the emulation's own bookkeeping, which all fibers
// share, is not taken for the kernels'.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "fibers.h"
#include "internal.h"
#include "sanitizers.h"

namespace emulation {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr int kWarp = 32;

// ---- one launch --------------------------------------------------------------------------------

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

}  // namespace

void run_launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body) {
  Launch launch;
  launch.grid = grid;
  launch.block = block;
  launch.grid_shape = {grid.x, grid.y, grid.z};
  launch.block_shape = {block.x, block.y, block.z};
  launch.shared_bytes = shared_bytes;
  launch.body = &body;
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
                       [&](const auto& other) { return other.get() == thread->block; });
      end_block(**found);
      launch.resident.erase(found);
    }
  }
  for (auto& resident : launch.resident) end_block(*resident);
  if (launch.failed) acquire(&launch.left);
  acquire(&launch.end);
  running = nullptr;
}

// ---- inside a kernel ---------------------------------------------------------------------------

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

}  // namespace emulation

void __threadfence() {
  static char tag;
  emulation::release(&tag);
  emulation::acquire(&tag);
}
void __threadfence_block() { __threadfence(); }
