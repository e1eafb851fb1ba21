// Non-owning shaped views: what crosses from the bindings into a kernel.
//
// A view never allocates and never checks in release code paths; checks stand at the border (the
// bindings and the require_* functions below), once a call, and give both numbers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace pytrace {

// A contiguous run of `size` values.
template <typename T>
struct Span {
  T* data = nullptr;
  int64_t size = 0;

  T& operator[](int64_t i) const { return data[i]; }
  T* begin() const { return data; }
  T* end() const { return data + size; }
};

// A matrix whose rows are contiguous and `stride` values apart.
template <typename T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  T* row(int64_t i) const { return data + i * stride; }
};

// Byte strings one behind the other: number i is [offsets[i], offsets[i + 1]).
struct Strings {
  Span<const uint8_t> bytes;
  Span<const int64_t> offsets;

  int64_t size() const { return offsets.size - 1; }
};

inline std::string to_text(int64_t value) { return std::to_string(value); }

// A number as a person writes it: 0.5, 1e+200, nan.
inline std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

[[noreturn]] inline void fail(const std::string& message) { throw std::invalid_argument(message); }

// Offsets of a ragged batch: starts at 0, never goes back, ends at `total`.
inline void require_offsets(Span<const int64_t> offsets, int64_t total, const char* name) {
  if (offsets.size < 1) fail(std::string(name) + " is empty; it needs at least the value 0");
  if (offsets[0] != 0) fail(std::string(name) + "[0] is " + to_text(offsets[0]) + ", not 0");
  for (int64_t i = 1; i < offsets.size; ++i) {
    if (offsets[i] < offsets[i - 1]) {
      fail(std::string(name) + " goes back at " + to_text(i) + ": " + to_text(offsets[i - 1]) +
           " then " + to_text(offsets[i]));
    }
  }
  if (offsets[offsets.size - 1] != total) {
    fail(std::string(name) + " ends at " + to_text(offsets[offsets.size - 1]) + ", but there are " +
         to_text(total) + " values");
  }
}

}  // namespace pytrace
