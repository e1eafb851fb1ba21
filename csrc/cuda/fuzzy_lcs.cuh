// One LCS by the lanes of a warp.
#pragma once

#include "cuda/fuzzy_pairs.cuh"

namespace pytrace::cuda {

// Rows that one lane holds in a stripe: a sum of two states and a carry stays within 32 bits, and
// the rows of a warp take 2 KiB of shared memory.
inline constexpr int kRowsOfLane = 16;
inline constexpr int64_t kStripe = int64_t{kRowsOfLane} * kWarp;
inline constexpr int kStripeRows = kRowsOfLane * kWarp;

// Bytes of `carries` for a pair of these sizes.
inline size_t carries_of(int64_t shorter, int64_t longer) {
  return longer > kStripe ? static_cast<size_t>(shorter) : 0;
}

// Length of the longest common subsequence, in every lane. The longer text's characters are the
// rows of Hyyrö's recurrence, spread evenly over the lanes; lane l is at column t - l in step t,
// and gets from lane l - 1 the column's character and the carry of its addition. From stripe to
// stripe the carries pass through memory.
__device__ inline int64_t lcs_of_warp(FuzzyString a, FuzzyString b, uint32_t* shared_rows,
                                      uint8_t* carries, int lane) {
  const FuzzyString rows = a.size < b.size ? b : a;
  const FuzzyString columns = a.size < b.size ? a : b;
  const int64_t n = columns.size;
  int64_t lcs = 0;
  for (int64_t base = 0; base < rows.size && n > 0; base += kStripe) {
    const int here = static_cast<int>(rows.size - base < kStripe ? rows.size - base : kStripe);
    const int bits = (here + kWarp - 1) / kWarp;
    const int lanes = (here + bits - 1) / bits;
    for (int r = 0; r < bits; ++r) {
      const int row = lane * bits + r;
      shared_rows[r * kWarp + lane] = row < here ? rows.characters[base + row] : kNoRow;
    }
    const uint32_t full = (1u << bits) - 1;
    const bool first = base == 0;
    const bool last = base + kStripe >= rows.size;
    uint32_t state = full;
    uint32_t character = kNoColumn;
    uint32_t carry = 0;
    uint32_t next_character = kNoColumn;
    uint32_t next_carry = 0;
    __syncwarp();  // the carries of the stripe before
    for (int64_t t = 0; t < n + lanes - 1; ++t) {
      if (t % kWarp == 0) {
        const int64_t column = t + lane;
        next_character = column < n ? columns.characters[column] : kNoColumn;
        next_carry = !first && column < n ? carries[column] : 0;
        __syncwarp();  // the last lane writes in their places from now on
      }
      const auto from = static_cast<int>(t % kWarp);
      const uint32_t new_character = __shfl_sync(kWholeWarp, next_character, from);
      const uint32_t new_carry = __shfl_sync(kWholeWarp, next_carry, from);
      const uint32_t passed_character = __shfl_up_sync(kWholeWarp, character, 1);
      const uint32_t passed_carry = __shfl_up_sync(kWholeWarp, carry, 1);
      character = lane == 0 ? new_character : passed_character;
      carry = lane == 0 ? new_carry : passed_carry;
      uint32_t mask = 0;
      for (int r = 0; r < bits; ++r) {
        mask |= static_cast<uint32_t>(shared_rows[r * kWarp + lane] == character) << r;
      }
      const uint32_t sum = state + (state & mask) + carry;
      carry = sum >> bits;
      state = (sum & full) | (state & ~mask);
      const int64_t column = t - lane;
      if (!last && lane == kWarp - 1 && column >= 0) carries[column] = static_cast<uint8_t>(carry);
    }
    lcs += __popc(~state & full);
    __syncwarp();
  }
  auto sum = static_cast<long long>(lcs);
  PYTRACE_UNROLL
  for (int apart = kWarp / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, apart);
  return sum;
}

}  // namespace pytrace::cuda
