#include <algorithm>

#include "cuda/topk_finish.cuh"
#include "cuda/topk_rows.h"
#include "cuda/topk_scan.h"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfBlock = kThreads / kWarp;

// A warp a query. `pack`: values of an item's 16 bytes.
template <typename T>
__global__ void prepare(const T* __restrict__ rows, int64_t count, int64_t cols, int64_t stride,
                        int pack, int64_t padded, float* __restrict__ out,
                        float* __restrict__ lengths) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = int64_t{gridDim.x} * kRowsOfBlock;
  const int64_t packs = int64_t{kLanesOfPair} * pack;
  for (int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + warp; row < count; row += step) {
    const T* from = rows + row * stride;
    for (int64_t at = lane; at < padded; at += kWarp) {
      const auto inside = static_cast<int>(at % packs);
      const int part = inside / (4 * kLanesOfPair);
      const int owner = inside / 4 % kLanesOfPair;
      const int64_t column = at - inside + owner * pack + part * 4 + inside % 4;
      out[row * padded + at] = column < cols ? to_float(from[column]) : 0.0f;
    }
    if (lengths != nullptr) {
      const float length = length_of_query(from, cols);
      if (lane == 0) lengths[row] = length;
    }
  }
}

template <typename T>
__global__ void find_bad(const T* __restrict__ rows, int64_t count, int64_t cols, int64_t stride,
                         unsigned long long* first) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = int64_t{gridDim.x} * kRowsOfBlock;
  for (int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + warp; row < count; row += step) {
    for (int64_t column = lane; column < cols; column += kWarp) {
      if (!is_finite(to_float(rows[row * stride + column])))
        atomicMin(first, static_cast<unsigned long long>(row * cols + column));
    }
  }
}

dim3 blocks_for(int64_t rows) { return dim3(grid_of(rows, kRowsOfBlock)); }

template <typename Use>
void with_type(const DeviceRows& rows, const Use& use) {
  switch (rows.type) {
    case Number::kFloat32:
      return use(static_cast<const float*>(rows.data));
    case Number::kFloat16:
      return use(static_cast<const Half*>(rows.data));
    case Number::kBfloat16:
      return use(static_cast<const Bfloat16*>(rows.data));
    case Number::kInt8:
      break;  // always finite, and never a query
  }
}

}  // namespace

void prepare_queries(const DeviceRows& queries, Number items, float* out, float* lengths,
                     cudaStream_t stream) {
  const int pack = items == Number::kFloat32 ? 4 : items == Number::kInt8 ? 16 : 8;
  with_type(queries, [&](const auto* data) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    launch(stream, blocks_for(queries.rows), dim3(kThreads), 0, &prepare<T>, data, queries.rows,
           queries.cols, queries.stride, pack, scanned_query_values(queries.cols, items), out,
           lengths);
  });
}

void find_not_finite(const DeviceRows& rows, unsigned long long* first, cudaStream_t stream) {
  with_type(rows, [&](const auto* data) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    launch(stream, blocks_for(rows.rows), dim3(kThreads), 0, &find_bad<T>, data, rows.rows,
           rows.cols, rows.stride, first);
  });
}

}  // namespace pytrace::cuda
