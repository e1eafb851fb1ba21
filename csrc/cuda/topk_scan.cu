#include <algorithm>
#include <stdexcept>

#include "cuda/topk_scan.cuh"
#include "cuda/topk_scan.h"

namespace pytrace::cuda {
namespace {

int64_t number_bytes(Number type) {
  return type == Number::kFloat32 ? 4 : type == Number::kInt8 ? 1 : 2;
}

size_t shared_bytes(const ScanShape& shape, int64_t query_values) {
  const auto queries = static_cast<size_t>(shape.queries);
  return SharedBytes()
      .take<Key>(queries)
      .take<int>(queries)
      .take<Key>(queries * static_cast<size_t>(shape.capacity) + 2)
      .take<float>(shape.staged ? queries * static_cast<size_t>(query_values) : 4)
      .total();
}

void run(ScanArguments job, const ScanShape& shape, int multiprocessors, cudaStream_t stream) {
  const DeviceRows& items = job.input.items;
  if (job.input.unit_count == 0) return;
  job.query_stride = scanned_query_values(items.cols, items.type);
  job.capacity = shape.capacity;
  job.rounds = shape.rounds;
  job.aligned = reinterpret_cast<uintptr_t>(items.data) % 16 == 0 &&
                items.stride * number_bytes(items.type) % 16 == 0;
  switch (items.type) {
    case Number::kFloat32:
      return launch_scan<float>(job, shape, multiprocessors, stream);
    case Number::kFloat16:
      return launch_scan<Half>(job, shape, multiprocessors, stream);
    case Number::kBfloat16:
      return launch_scan<Bfloat16>(job, shape, multiprocessors, stream);
    case Number::kInt8:
      return launch_scan<int8_t>(job, shape, multiprocessors, stream);
  }
}

}  // namespace

int64_t scanned_query_values(int64_t cols, Number items) {
  const int64_t step = kLanesOfPair * 16 / number_bytes(items);
  return std::max<int64_t>(1, (cols + step - 1) / step) * step;
}

int64_t scan_step(const ScanShape& shape) {
  return int64_t{kScanGroups} * (shape.queries == 1 ? 8 : 16 / shape.queries);
}

ScanShape scan_shape(int64_t queries, int64_t cols, Number items, int64_t k) {
  const int64_t values = scanned_query_values(cols, items);
  constexpr int64_t kMostRounds = 8;
  const auto shape_for = [&](int together, bool staged) {
    ScanShape shape;
    shape.queries = together;
    shape.staged = staged && values <= static_cast<int64_t>(kMostSharedBytes / sizeof(float));
    const int64_t step = scan_step(shape);
    if (k > 0) {
      // Room for k, and for as much again or three steps, so that cuts and looks are rare.
      shape.capacity = power_of_two(k + std::max(std::min(k, int64_t{2048}), 3 * step));
      shape.rounds =
          static_cast<int>(std::clamp<int64_t>((shape.capacity - k) / step, 1, kMostRounds));
    } else {
      shape.rounds = static_cast<int>(kMostRounds);
    }
    shape.shared = shared_bytes(shape, values);
    return shape;
  };
  for (const int together : {8, 4}) {
    if (queries <= (together == 8 ? 4 : 1)) continue;
    const ScanShape shape = shape_for(together, true);
    if (shape.staged && shape.shared <= kSharedBytes) return shape;
  }
  const ScanShape shape = shape_for(1, true);
  return shape.staged && shape.shared <= kMostSharedBytes ? shape : shape_for(1, false);
}

void scan_top_k(const ScanInput& input, const ScanShape& shape, unsigned long long* lists,
                unsigned long long* thresholds, unsigned long long* not_finite, int multiprocessors,
                cudaStream_t stream) {
  ScanArguments job{};
  job.input = input;
  job.lists = lists;
  job.thresholds = thresholds;
  job.not_finite = not_finite;
  run(job, shape, multiprocessors, stream);
}

void scan_scores(const ScanInput& input, const ScanShape& shape, float* out, int64_t stride,
                 bool ranked, unsigned long long* not_finite, int multiprocessors,
                 cudaStream_t stream) {
  ScanArguments job{};
  job.input = input;
  job.out = out;
  job.out_stride = stride;
  job.sign = ranked ? 1.0f : -1.0f;
  job.not_finite = not_finite;
  run(job, shape, multiprocessors, stream);
}

}  // namespace pytrace::cuda
