// Batched global alignment on a card: what csrc/align/align.h computes, score for score and column
// for column.
//
// W lanes share a pair (4, 8 or 32, by the candidate's length): lane i has row i of a strip of W
// rows and runs one column behind the lane above, so that a strip is a wavefront over
// anti-diagonals; what a cell needs from above comes by shuffles, the row between two strips lies
// in the workspace. With each score go the matches and columns of its path under the order of ties,
// so that no table is needed for them: O(n m) time, O(m) memory a warp.
//
// Whole-number parameters run in int32 where that cannot overflow, all others in double with the
// processor's sums in the processor's order: scores are the same, bit for bit.
//
// With steps, the best pairs are run again by a warp each, which keeps a byte of directions a cell
// and walks back. Where the bytes of a pair exceed what memory is left, only rows some 4 sqrt(n)
// apart are kept on the way down, and the rows between two of them are computed again on the way
// back (O(m sqrt(n)) memory, twice the time); the path is the same.
//
// What lies on the host and is larger than the card is streamed in parts (align_parts.h). What lies
// on the card is read there, and needs 40 bytes a reference and 48 a candidate beside it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

#include "align/align.h"
#include "cuda/runtime.h"

namespace pytrace::cuda {

// Offsets, groups and the score matrix lie on the host, values where the flags say. With a matrix,
// symbols were checked to be within it.
struct AlignBatch {
  RaggedSymbols candidates;
  RaggedSymbols references;
  Span<const int64_t> groups;
  Scoring scoring;  // `function` is null
  bool candidates_on_card = false;
  bool references_on_card = false;
};

// Arrays for the results, all on the card or all on the host.
struct AlignedArrays {
  int64_t* best = nullptr;
  double* scores = nullptr;
  int64_t* matches = nullptr;
  int64_t* lengths = nullptr;
  bool on_card = false;
};
struct StepArrays {
  int64_t* candidate_steps = nullptr;
  int64_t* reference_steps = nullptr;
  int64_t* offsets = nullptr;
};

// `room` is called once for the steps, if they are wanted, with their count, and returns arrays
// where those of `out` are. Everything was checked before.
void align_batch(Context& context, const AlignBatch& batch, const AlignedArrays& out,
                 const std::function<StepArrays(int64_t)>* room);

}  // namespace pytrace::cuda
