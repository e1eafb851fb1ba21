// Rows of numbers on a card: their lengths made 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace pytrace::cuda {

// out[row] = rows[row] / its length, computed in float64; rows of length 0 stay 0. rows is [count,
// dim] with `stride` values from row to row, out is contiguous. *first_bad becomes the least
// row * dim + column that is NaN or infinite; it must hold the largest int64 before.
void normalize(const float* rows, int64_t count, int64_t dim, int64_t stride, float* out,
               int64_t* first_bad, cudaStream_t stream);

}  // namespace pytrace::cuda
