// Functions that llama.cpp calls while it loads a model or evaluates tokens. They are native, since
// a signal's handler that Python runs inside a callback of its own raises there, where llama.cpp
// cannot pass the exception on, and it would be lost.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "module.h"

namespace py = pybind11;

namespace pytrace::bindings {
namespace {

constexpr int kErrorLevel = 4;  // GGML_LOG_LEVEL_ERROR
constexpr size_t kMostErrors = 8;
// A computation asks some thousand times a second; the GIL is not taken that often.
constexpr std::chrono::milliseconds kBetweenLooks{20};

std::mutex errors_are_used;
std::vector<std::string> errors;

// What a handler raised while native code ran; used under the GIL alone.
std::optional<py::error_already_set>& raised() {
  static auto* const error = new std::optional<py::error_already_set>;
  return *error;
}

bool on_main_thread() {
#if defined(__linux__)
  return syscall(SYS_gettid) == getpid();
#else
  return true;
#endif
}

// Whether a signal's handler wants the call in progress to end. Handlers run on the main thread.
bool interrupted() {
  static auto last_look = std::chrono::steady_clock::time_point{};
  if (!on_main_thread()) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_look < kBetweenLooks) return false;
  last_look = now;
  const py::gil_scoped_acquire acquired;
  if (raised()) return true;
  if (PyErr_CheckSignals() == 0) return false;
  raised().emplace();
  return true;
}

void on_log(int level, const char* text, void*) {
  if (level != kErrorLevel) return;
  const std::lock_guard<std::mutex> lock(errors_are_used);
  if (errors.size() < kMostErrors) errors.emplace_back(text);
}

bool on_progress(float, void*) { return !interrupted(); }

bool on_abort(void*) { return interrupted(); }

template <typename Function>
uintptr_t address(Function* function) {
  return reinterpret_cast<uintptr_t>(function);
}

void raise_interruption() {
  if (!raised()) return;
  const py::error_already_set error = *raised();
  raised().reset();
  throw error;
}

}  // namespace

void register_callbacks(py::module_& module) {
  module.def("callback_addresses", [] {
    py::dict addresses;
    addresses["log"] = address(&on_log);
    addresses["progress"] = address(&on_progress);
    addresses["abort"] = address(&on_abort);
    return addresses;
  });
  module.def("logged_errors", [] {
    const std::lock_guard<std::mutex> lock(errors_are_used);
    py::list texts;
    // What is logged need not be UTF-8.
    for (const std::string& text : errors) {
      texts.append(py::reinterpret_steal<py::str>(
          PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace")));
    }
    return texts;
  });
  module.def("clear_logged_errors", [] {
    const std::lock_guard<std::mutex> lock(errors_are_used);
    errors.clear();
  });
  module.def("raise_interruption", &raise_interruption);
}

}  // namespace pytrace::bindings
