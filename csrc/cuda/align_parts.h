// Batches on the host that a card has no room for: cut into parts of consecutive pairs, which two
// contexts take in turns, so that the copies of one part overlap with the kernels of another. Where
// a candidate's references fall into several parts, the best of the parts' bests is its best, ties
// to the lowest reference, so that nothing depends on the cuts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/align.h"

namespace pytrace::cuda {

// The pairs of `references`, and the candidates that they belong to.
struct AlignPart {
  int64_t first_candidate = 0;
  int64_t last_candidate = 0;
  int64_t first_reference = 0;
  int64_t last_reference = 0;
};

// Cuts a batch so that what grows with the pairs (symbols, offsets, results, steps if wanted) takes
// at most `bytes` on the card in each part; one pair may take more. Candidates without references
// may be in no part.
std::vector<AlignPart> cut_pairs(const AlignBatch& batch, bool want_steps, int64_t bytes);

// Aligns a batch that fits, taking at most so many bytes of the card.
using AlignPartly =
    std::function<void(Context&, const AlignBatch&, int64_t memory, const AlignedArrays&,
                       const std::function<StepArrays(int64_t)>* room)>;

// Aligns the parts on the current device, two at a time, each with half of the memory, and puts
// their results together. All of `batch` and `out` lies on the host.
void align_parts(const AlignBatch& batch, const std::vector<AlignPart>& parts, int device,
                 int64_t memory, const AlignPartly& align, const AlignedArrays& out,
                 const std::function<StepArrays(int64_t)>* room);

}  // namespace pytrace::cuda
