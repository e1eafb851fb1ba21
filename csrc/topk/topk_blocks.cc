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
                         Metric metric, const float* squared_lengths, const ByteKernels* bytes)
    : metric_(metric), dim_(queries.cols), byte_kernels_(bytes), lost_(static_cast<size_t>(count)) {
  // A float32 sum of n products, in any order, is within n 2^-24 |q||x| of the true one (Higham,
  // "Accuracy and Stability of Numerical Algorithms", section 3.1). Two such sums are compared
  // here, of which one may have been divided by two lengths or be a sum of squared differences, and
  // each length has an error of its own: six times n covers all, 512 the few operations beside the
  // sums.
  rounding_ = (6.0 * static_cast<double>(dim_) + 512.0) * 0x1p-24;
  for (int64_t row = 0; row < count; ++row) {
    scannable_ = scannable_ && pytrace::scannable(squared_lengths[row]);
    squared_lengths_.push_back(double{squared_lengths[row]});
  }
  if (!scannable_) return;
  // Blocks of about the same size cost less than full ones and a small rest.
  const int64_t most = bytes == nullptr ? scan_kernels().block_queries : bytes->block_queries;
  const int64_t blocks = (count + most - 1) / most;
  rows_ = (count + blocks - 1) / blocks;
  if (bytes == nullptr) {
    pack(queries, first, count);
  } else {
    pack_bytes(queries, first, count);
  }
  for (int64_t row = 0; row < count; ++row) {
    const auto at = static_cast<size_t>(row);
    const double rounding =
        metric == Metric::kEuclidean ? 0.0 : rounding_ * std::sqrt(squared_lengths_[at]);
    // A product differs by no more than what was lost, times the item's length.
    slacks_.push_back(rounding + lost_[at] == 0.0 ? 0.0f : rounded_up(rounding + lost_[at]));
  }
}

void QueryBlocks::pack(const Matrix<const float>& queries, int64_t first, int64_t count) {
  packed_.reset(new float[static_cast<size_t>(count * dim_)]);
  for (int64_t row = 0; row < count; row += rows_) {
    scan_kernels().pack_block(queries.row(first + row), queries.stride,
                              std::min(rows_, count - row), dim_, packed_.get() + row * dim_);
  }
}

void QueryBlocks::pack_bytes(const Matrix<const float>& queries, int64_t first, int64_t count) {
  std::vector<int8_t> narrow(static_cast<size_t>(rows_ * dim_));
  bytes_.resize(static_cast<size_t>(count * steps() * 4));
  for (int64_t row = 0; row < count; row += rows_) {
    const int64_t rows = std::min(rows_, count - row);
    for (int64_t q = 0; q < rows; ++q) {
      const float* from = queries.row(first + row + q);
      float most = 0.0f;
      for (int64_t d = 0; d < dim_; ++d) most = std::max(most, std::abs(from[d]));
      const float scale = most / 127.0f;
      int32_t sum = 0;
      double lost = 0.0;
      for (int64_t d = 0; d < dim_; ++d) {
        const float byte =
            scale > 0.0f ? std::clamp(std::nearbyint(from[d] / scale), -127.0f, 127.0f) : 0.0f;
        const double rest = double{from[d]} - double{byte} * double{scale};
        lost += rest * rest;
        sum += static_cast<int32_t>(byte);
        narrow[static_cast<size_t>(q * dim_ + d)] = static_cast<int8_t>(byte);
      }
      byte_scales_.push_back(scale);
      byte_sums_.push_back(sum);
      lost_[static_cast<size_t>(row + q)] = std::sqrt(lost) * (1.0 + 1e-6);
    }
    byte_kernels_->pack_block(narrow.data(), dim_, rows, dim_, bytes_.data() + row * steps() * 4);
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
    case Metric::kCosine:
      return rounded_up(1.0 + rounding_);
    case Metric::kInnerProduct:
    case Metric::kEuclidean:
      break;
  }
  return rounded_up(std::sqrt(double{squared_length}) * (1.0 + rounding_));
}

float QueryBlocks::item_offset(float squared_length) const {
  if (metric_ != Metric::kEuclidean) return 0.0f;
  return rounded_up(double{squared_length} * (rounding_ - 0.5));
}

}  // namespace pytrace
