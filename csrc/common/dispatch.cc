#include "common/dispatch.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace pytrace {
namespace {

struct State {
  std::atomic<Isa> active{Isa::kBaseline};
  std::atomic<bool> refused{false};
  std::string error;
};

bool parse_isa(const std::string& name, Isa* out) {
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
    if (name == isa_name(isa)) {
      *out = isa;
      return true;
    }
  }
  return false;
}

std::string available_names() {
  std::string names;
  for (Isa isa : available_isas()) {
    if (!names.empty()) names += ", ";
    names += isa_name(isa);
  }
  return names;
}

Isa require_isa(const std::string& name) {
  Isa wanted;
  if (parse_isa(name, &wanted)) {
    for (Isa isa : available_isas()) {
      if (isa == wanted) return isa;
    }
  }
  throw std::invalid_argument("instruction set '" + name +
                              "' is not available here; choose one of: " + available_names());
}

State& state() {
  static State instance;
  static const bool initialised = [] {
    instance.active = available_isas().back();
    if (const char* forced = std::getenv("PYTRACE_ISA"); forced != nullptr && *forced != '\0') {
      try {
        instance.active = require_isa(forced);
      } catch (const std::invalid_argument& error) {
        instance.error = std::string("PYTRACE_ISA: ") + error.what();
        instance.refused = true;
      }
    }
    return true;
  }();
  (void)initialised;
  return instance;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
    case Isa::kBaseline:
      break;
  }
  return "baseline";
}

std::vector<Isa> available_isas() {
#if defined(__x86_64__)
  std::vector<Isa> isas{Isa::kBaseline};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    isas.push_back(Isa::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      isas.push_back(Isa::kAvx512);
    }
  }
  return isas;
#elif defined(__aarch64__)
  return {Isa::kNeon};
#else
  return {Isa::kBaseline};
#endif
}

Isa active_isa() { return state().active.load(std::memory_order_relaxed); }

Isa required_isa() {
  const State& now = state();
  if (now.refused.load(std::memory_order_relaxed)) throw std::invalid_argument(now.error);
  return now.active.load(std::memory_order_relaxed);
}

void set_active_isa(const std::string& name) {
  state().active = require_isa(name);
  state().refused = false;
}

const std::string& active_isa_error() { return state().error; }

}  // namespace pytrace
