// Which instruction set runs: chosen once, at load, from what the processor has.
//
// PYTRACE_ISA=baseline|avx2|avx512|neon forces one. A name that this machine or this build lacks is
// reported by active_isa_error(), and every kernel refuses to run until set_active_isa() names
// another one, because a benchmark that silently ran something else would lie.
#pragma once

#include <string>
#include <vector>

namespace pytrace {

enum class Isa { kBaseline, kAvx2, kAvx512, kNeon };

// The name as PYTRACE_ISA spells it.
const char* isa_name(Isa isa);

// Every instruction set that this build carries and this processor runs, slowest first.
std::vector<Isa> available_isas();

// The one that kernels use now; what they would use if PYTRACE_ISA could not be obeyed.
Isa active_isa();

// The same for a kernel. Throws std::invalid_argument if PYTRACE_ISA could not be obeyed.
Isa required_isa();

// Forces one (tests run every kernel on each). Throws std::invalid_argument for one that is not
// available.
void set_active_isa(const std::string& name);

// Why PYTRACE_ISA could not be obeyed at load; empty if it could.
const std::string& active_isa_error();

// Picks a kernel's entry point. A kernel compiled per instruction set declares one function a
// target and calls select_isa(baseline, avx2, avx512); targets that this build lacks are passed as
// nullptr.
template <typename Function>
Function select_isa(Function baseline, Function avx2, Function avx512) {
  switch (required_isa()) {
    case Isa::kAvx512:
      if (avx512 != nullptr) return avx512;
      [[fallthrough]];
    case Isa::kAvx2:
      if (avx2 != nullptr) return avx2;
      [[fallthrough]];
    case Isa::kNeon:
    case Isa::kBaseline:
      break;
  }
  return baseline;
}

// The same for what has one name in the namespaces of all targets: a table of functions, or a
// function that is not overloaded.
#if defined(__x86_64__)
#define PYTRACE_SELECT_ISA(name) ::pytrace::select_isa(&baseline::name, &avx2::name, &avx512::name)
#else
#define PYTRACE_SELECT_ISA(name) \
  ::pytrace::select_isa(&baseline::name, decltype(&baseline::name){}, decltype(&baseline::name){})
#endif

}  // namespace pytrace
