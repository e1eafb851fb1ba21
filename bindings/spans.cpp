#include "spans/spans.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "arrays.h"
#include "calls.h"
#include "module.h"

namespace pytrace::bindings {
namespace {

std::string shape_text(const py::array& array) {
  return std::string(py::str(py::object(array.attr("shape"))));
}

void require_shape(const py::array& array, const char* name, const py::array& starts,
                   const char* expected, bool fits) {
  if (fits) return;
  throw py::value_error(std::string(name) + " has the shape " + shape_text(array) +
                        ", but starts has " + shape_text(starts) + "; " + name + " must be " +
                        expected);
}

py::array contiguous_floats(py::handle object, const char* name, int rank) {
  const py::array array = real_array(object, name);
  require_rank(array, rank, name);
  return convert<float>(array);
}

template <typename T>
void require_int32(const py::array& array, const char* name) {
  const Span<const T> values = span_view<T>(array);
  for (const T value : values) {
    // Only the signed type has values below the range.
    const bool low = value < T{0} && static_cast<int64_t>(value) < INT32_MIN;
    if (low || (value > T{0} && static_cast<uint64_t>(value) > uint64_t{INT32_MAX})) {
      throw py::value_error(std::string(name) + " holds " + std::to_string(value) +
                            "; it must fit int32, from -2147483648 to 2147483647");
    }
  }
}

// Whole numbers as int32; other types are converted if all of their values fit.
py::array contiguous_int32(py::handle object, const char* name, int rank) {
  const py::array array = real_array(object, name);
  require_rank(array, rank, name);
  const char kind = array.dtype().kind();
  if (array.size() > 0 && kind != 'i' && kind != 'u') {
    throw py::type_error(std::string(name) + " holds " + std::string(py::str(array.dtype())) +
                         "; it must hold whole numbers");
  }
  if (kind == 'u') {
    const py::array wide = convert<uint64_t>(array);
    require_int32<uint64_t>(wide, name);
    return convert<int32_t>(wide);
  }
  if (array.dtype().num() == py::dtype::num_of<int32_t>()) return convert<int32_t>(array);
  const py::array wide = convert<int64_t>(array);
  require_int32<int64_t>(wide, name);
  return convert<int32_t>(wide);
}

PyObject* bind_top_spans(PyObject* const* arguments) {
  SpanLimits limits;
  limits.top = whole_number(arguments[5], "top", 0);
  limits.max_tokens = whole_number(arguments[6], "max_tokens", 1);
  limits.max_characters = whole_number(arguments[7], "max_characters", 0);
  const int threads = thread_count(arguments[8]);
  const py::array starts = contiguous_floats(arguments[0], "starts", 2);
  const py::array ends = contiguous_floats(arguments[1], "ends", 2);
  const py::array pairs = contiguous_floats(arguments[2], "pairs", 3);
  const py::array owners = contiguous_int32(arguments[3], "owners", 2);
  const py::array offsets = contiguous_int32(arguments[4], "offsets", 3);
  const auto fits = [&](const py::array& array) {
    return array.shape(0) == starts.shape(0) && array.shape(1) == starts.shape(1);
  };
  require_shape(ends, "ends", starts, "[windows, tokens]", fits(ends));
  require_shape(pairs, "pairs", starts, "[windows, tokens, 2 * width]",
                fits(pairs) && pairs.shape(2) % 2 == 0);
  require_shape(owners, "owners", starts, "[windows, tokens]", fits(owners));
  require_shape(offsets, "offsets", starts, "[windows, tokens, 2]",
                fits(offsets) && offsets.shape(2) == 2);
  SpanWindows input;
  input.windows = starts.shape(0);
  input.tokens = starts.shape(1);
  input.width = pairs.shape(2) / 2;
  input.starts = static_cast<const float*>(starts.data());
  input.ends = static_cast<const float*>(ends.data());
  input.pairs = static_cast<const float*>(pairs.data());
  input.owners = static_cast<const int32_t*>(owners.data());
  input.offsets = static_cast<const int32_t*>(offsets.data());
  constexpr int64_t kMostSpans = std::numeric_limits<int64_t>::max() / 16;
  if (limits.top > kMostSpans / std::max<int64_t>(1, input.windows)) {
    throw py::value_error("top is " + std::to_string(limits.top) + " for " +
                          std::to_string(input.windows) +
                          " windows; that many spans have no room in memory");
  }
  py::array scores = new_array<float>({input.windows, limits.top});
  py::array first = new_array<int32_t>({input.windows, limits.top});
  py::array last = new_array<int32_t>({input.windows, limits.top});
  float* const score_data = values_of<float>(scores);
  int32_t* const first_data = values_of<int32_t>(first);
  int32_t* const last_data = values_of<int32_t>(last);
  {
    const ReleasedGil released;
    top_spans(input, limits, threads, score_data, first_data, last_data);
  }
  return py::make_tuple(scores, first, last).release().ptr();
}

}  // namespace

void register_spans(py::module_& module) {
  define_fast<&bind_top_spans, 9>(module, "top_spans",
                                  "top_spans(starts, ends, pairs, owners, offsets, top, "
                                  "max_tokens, max_characters, threads, /)\n--\n\n");
}

}  // namespace pytrace::bindings
