// Fuzzy scores of many pairs of texts on a card: csrc/fuzzy/fuzzy.h, bit for bit.
//
// partial_ratio, shorter text of up to 64 characters: a warp a pair, a lane a window. The lanes
// make the masks of the text's characters in shared memory, with zeros around the text, so that the
// shortened windows of both ends are windows like all others; then each lane runs Hyyrö's
// recurrence over its window: O((n + m) m / 32) steps a pair. Longer ones: a block a pair, Tiskin's
// combing of strands along the anti-diagonals: O(n m / 128) steps and as many barriers as
// characters.
//
// ratio: the shorter text is the needle of Hyyrö's recurrence where it has up to 32 characters, a
// lane a pair; longer ones spread over a warp's lanes, which run one character behind each other
// and hand the addition's carry on: O(n m / 32) steps, in stripes of 512 rows.
//
// token_set_ratio: a warp a pair; words are numbered on the host, the card intersects the numbers,
// joins the words that are left and takes their LCS as ratio does.
//
// The texts go up and the scores come down in tiles that fit memory_to_use; the host prepares and
// copies one while the card computes the next.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"
#include "fuzzy/fuzzy.h"

namespace pytrace::cuda {

// out[i * choices.size + j] = score of queries[i] and choices[j], in the host's memory.
void fuzzy_cdist(Context& context, Span<const Text> queries, Span<const Text> choices,
                 const FuzzyCdist& options, FuzzyType type, void* out);

// out[i] = score of queries[i] and choices[i].
void fuzzy_cpdist(Context& context, Span<const Text> queries, Span<const Text> choices,
                  const FuzzyCdist& options, FuzzyType type, void* out);

}  // namespace pytrace::cuda
