// Stacks to run on by turns: a switch of 20 ns where swapcontext, with its two system calls, takes
// half a microsecond; an emulated kernel spends its time in them.
#pragma once

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstddef>
#include <cstdint>

namespace emulation {

#if defined(__x86_64__)

// Where a stack was left.
struct Stopped {
  void* stack = nullptr;
};

// Leaves `from` and goes on at `to`.
extern "C" void pytrace_switch_stacks(void** from, void* to);
asm(R"(
.text
.type pytrace_switch_stacks, @function
pytrace_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pytrace_switch_stacks, . - pytrace_switch_stacks
)");

inline void switch_stacks(Stopped& from, Stopped& to) {
  pytrace_switch_stacks(&from.stack, to.stack);
}

// Makes `fiber` begin with start(), which must never return, on the given stack.
inline void prepare(Stopped& fiber, char* stack, size_t bytes, void (*start)()) {
  auto* top = reinterpret_cast<uintptr_t*>((reinterpret_cast<uintptr_t>(stack) + bytes) / 16 * 16);
  *--top = 0;  // where start() would return to; keeps its stack aligned as a call leaves it
  *--top = reinterpret_cast<uintptr_t>(start);
  for (int saved = 0; saved < 6; ++saved) *--top = 0;
  fiber.stack = top;
}

#else

struct Stopped {
  ucontext_t context;
};

inline void switch_stacks(Stopped& from, Stopped& to) { swapcontext(&from.context, &to.context); }

inline void prepare(Stopped& fiber, char* stack, size_t bytes, void (*start)()) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, start, 0);
}

#endif

}  // namespace emulation
