// Rows on a card beside their scores: queries made ready for the scan, and the first value that has
// no place in an order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/topk.h"

namespace pytrace::cuda {

// Queries (float32, float16 or bfloat16) as the scan reads them beside items of a type: float32,
// scanned_query_values a row (topk_scan.h), zeros behind the end. Step s of eight packs holds, for
// each quarter v of a pack, value i of lane j's at s * 8 * pack + (v * 8 + j) * 4 + i, so that
// eight lanes read 128 neighbouring bytes. lengths[query], if wanted, is its length.
void prepare_queries(const DeviceRows& queries, Number items, float* out, float* lengths,
                     cudaStream_t stream);

// *first becomes the least of itself and row * cols + column of the values that are NaN or
// infinite.
void find_not_finite(const DeviceRows& rows, unsigned long long* first, cudaStream_t stream);

}  // namespace pytrace::cuda
