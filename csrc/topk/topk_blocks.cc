#include "topk/topk_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/dispatch.h"

namespace pytrace {
namespace {

float rounded_down(double value) {
  const auto rounded = static_cast<float>(value);
  return std::nextafter(rounded, -std::numeric_limits<float>::infinity());
}

float rounded_up(double value) {
  const auto rounded = static_cast<float>(value);
  return std::nextafter(rounded, std::numeric_limits<float>::infinity());
}

}  // namespace

const ScanKernels& scan_kernels() { return *PYTRACE_SELECT_ISA(kScanKernels); }

bool scannable(float squared_length) {
  return squared_length == 0.0f || (squared_length > 1e-24f && squared_length < 1e30f);
}

QueryBlocks::QueryBlocks(const Matrix<const float>& queries, int64_t first, int64_t count,
                         Metric metric, const float* squared_lengths)
    : metric_(metric), dim_(queries.cols) {
  // A float32 sum of n products, in any order, is within n 2^-24 |q||x| of the true one (Higham,
  // "Accuracy and Stability of Numerical Algorithms", section 3.1). Two such sums are compared
  // here, of which one may have been divided by two lengths or be a sum of squared differences, and
  // each length has an error of its own: six times n covers all, 512 the few operations beside the
  // sums.
  rounding_ = (6.0 * static_cast<double>(dim_) + 512.0) * 0x1p-24;
  const ScanKernels& scan = scan_kernels();
  // Blocks of about the same size cost less than full ones and a small rest.
  const int64_t blocks = (count + scan.block_queries - 1) / scan.block_queries;
  rows_ = (count + blocks - 1) / blocks;
  packed_.resize(static_cast<size_t>(count * dim_));
  for (int64_t row = 0; row < count; row += rows_) {
    scan.pack_block(queries.row(first + row), queries.stride, std::min(rows_, count - row), dim_,
                    packed_.data() + row * dim_);
  }
  for (int64_t row = 0; row < count; ++row) {
    const float squared = squared_lengths[row];
    scannable_ = scannable_ && pytrace::scannable(squared);
    squared_lengths_.push_back(double{squared});
    slacks_.push_back(
        metric == Metric::kEuclidean ? 0.0f : rounded_up(rounding_ * std::sqrt(double{squared})));
  }
}

float QueryBlocks::floor(int64_t row, float threshold) const {
  const double squared = squared_lengths_[static_cast<size_t>(row)];
  switch (metric_) {
    case Metric::kInnerProduct:
      return rounded_down(threshold);
    case Metric::kCosine:
      return rounded_down(double{threshold} * std::sqrt(squared));
    case Metric::kEuclidean:
      break;
  }
  // |q - x|^2 = |q|^2 + |x|^2 - 2 qx, and (|q| + |x|)^2 <= 2 |q|^2 + 2 |x|^2 bounds its rounding.
  const double distance = double{threshold};
  return rounded_down(
      0.5 * (squared * (1.0 - 2.0 * rounding_) - distance * distance * (1.0 + rounding_)));
}

float QueryBlocks::item_weight(float squared_length) const {
  switch (metric_) {
    case Metric::kInnerProduct:
      return rounded_up(std::sqrt(double{squared_length}));
    case Metric::kCosine:
      return 1.0f;
    case Metric::kEuclidean:
      break;
  }
  return 0.0f;
}

float QueryBlocks::item_offset(float squared_length) const {
  if (metric_ != Metric::kEuclidean) return 0.0f;
  return rounded_up(double{squared_length} * (rounding_ - 0.5));
}

}  // namespace pytrace
