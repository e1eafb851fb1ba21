#include <algorithm>
#include <cmath>

#include "cuda/device.cuh"
#include "cuda/rows.h"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfBlock = kThreads / kWarp;

// A warp a row. The sum's order is that of the lanes: the same for every row of one width.
__global__ void normalize_rows(const float* __restrict__ rows, int64_t count, int64_t dim,
                               int64_t stride, float* __restrict__ out, int64_t* first_bad) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = int64_t{gridDim.x} * kRowsOfBlock;
  for (int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + warp; row < count; row += step) {
    const float* from = rows + row * stride;
    double sum = 0.0;
    for (int64_t column = lane; column < dim; column += kWarp) {
      const float value = from[column];
      if (!is_finite(value)) {
        atomicMin(reinterpret_cast<unsigned long long*>(first_bad),
                  static_cast<unsigned long long>(row * dim + column));
      }
      sum += double{value} * double{value};
    }
    PYTRACE_UNROLL
    for (int apart = kWarp / 2; apart > 0; apart /= 2)
      sum += __shfl_xor_sync(kWholeWarp, sum, apart);
    const double length = sqrt(sum);
    for (int64_t column = lane; column < dim; column += kWarp) {
      out[row * dim + column] =
          length > 0.0 ? static_cast<float>(double{from[column]} / length) : 0.0f;
    }
  }
}

}  // namespace

void normalize(const float* rows, int64_t count, int64_t dim, int64_t stride, float* out,
               int64_t* first_bad, cudaStream_t stream) {
  launch(stream, dim3(grid_of(count, kRowsOfBlock)), dim3(kThreads), 0, normalize_rows, rows, count,
         dim, stride, out, first_bad);
}

}  // namespace pytrace::cuda
