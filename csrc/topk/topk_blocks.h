// Queries laid out for topk_scan.h, and what a candidate must reach.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "topk/topk.h"
#include "topk/topk_bytes.h"
#include "topk/topk_scan.h"

namespace pytrace {

// The scan for the active instruction set.
const ScanKernels& scan_kernels();

// Vectors whose squared length lies outside of this are left to the plain kernel: their products
// might leave the range in which float32 rounds relative to their size.
bool scannable(float squared_length);

class QueryBlocks {
 public:
  // Queries [first, first + count), whose squared lengths are given; as bytes where `bytes` says
  // how. Needs room for as many floats.
  QueryBlocks(const Matrix<const float>& queries, int64_t first, int64_t count, Metric metric,
              const float* squared_lengths, const ByteKernels* bytes);

  // Whether all queries are within the range that the scan is right for.
  bool scannable() const { return scannable_; }
  int64_t block_rows() const { return rows_; }
  const float* block(int64_t first_row) const { return packed_.get() + first_row * dim_; }
  const int8_t* byte_block(int64_t first_row) const {
    return bytes_.data() + first_row * steps() * 4;
  }
  const float* slacks() const { return slacks_.data(); }

  // How to scan in bytes, nullptr for floats.
  const ByteKernels* bytes() const { return byte_kernels_; }
  // Of four dimensions each.
  int64_t steps() const { return (dim_ + 3) / 4; }
  const float* byte_scales() const { return byte_scales_.data(); }
  const int32_t* byte_sums() const { return byte_sums_.data(); }

  // The least that ScanTest must find for a score above the threshold, less all rounding.
  float floor(int64_t row, float threshold) const;

  // What ScanTest adds for an item of this squared length.
  float item_weight(float squared_length) const;
  float item_offset(float squared_length) const;

 private:
  void pack(const Matrix<const float>& queries, int64_t first, int64_t count);
  void pack_bytes(const Matrix<const float>& queries, int64_t first, int64_t count);

  Metric metric_;
  int64_t dim_;
  const ByteKernels* byte_kernels_;
  int64_t rows_ = 0;
  bool scannable_ = true;
  double rounding_;
  std::unique_ptr<float[]> packed_;
  std::vector<int8_t> bytes_;
  std::vector<float> byte_scales_;
  std::vector<int32_t> byte_sums_;
  std::vector<double> lost_;  // the length of what a query lost when it became bytes
  std::vector<float> slacks_;
  std::vector<double> squared_lengths_;
};

}  // namespace pytrace
