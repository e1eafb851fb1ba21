// One step of a beam search on a card: what csrc/beam/beam.h computes, with its order of ties, all
// in float64.
//
// Each chain's options are cut into segments of a fixed size; a warp a segment adds up the
// exponentials and keeps the best options on the way, so that logits are read once. A warp a chain
// joins its segments, scores what they kept and lays the candidates into the chain's places; a warp
// a segment of a question's candidates keeps the best of those. More than 32 options a chain, or
// chains a question, are found by sorting segments and merging them (selection.cuh). Sums are added
// in an order that depends on an option's place alone: what a chain scores does not depend on the
// rest of the batch, nor on the launch. The last bit may differ from the processor's.
//
// Logits on the host are streamed in tiles of whole chains, the next on its way while one is
// worked on; each is read once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

#include "beam/beam.h"
#include "cuda/runtime.h"

namespace pytrace::cuda {

// A step whose spans say how much there is; offsets and lengths lie on the host, the rest where the
// flags say.
template <typename T>
struct BeamStep {
  BeamInput input;
  Options<T> options;
  BeamOptions how;
  bool scores_on_card = false;
  bool finished_on_card = false;
  bool logits_on_card = false;
};

// Where the extensions go, all on the card or all on the host.
struct ExtensionArrays {
  int64_t* parents = nullptr;
  int64_t* options = nullptr;
  double* scores = nullptr;
  double* steps = nullptr;
  bool* finished = nullptr;
  bool* stuck = nullptr;
  int64_t* offsets = nullptr;  // one more than there are questions
  bool on_card = false;
};

// Takes the step. `room` is called once, when it is known how many extensions there are, and
// returns arrays for them. Throws std::invalid_argument as the processor's `expand` does.
template <typename T>
void expand(Context& context, const BeamStep<T>& step,
            const std::function<ExtensionArrays(int64_t)>& room);

extern template void expand(Context&, const BeamStep<float>&,
                            const std::function<ExtensionArrays(int64_t)>&);
extern template void expand(Context&, const BeamStep<double>&,
                            const std::function<ExtensionArrays(int64_t)>&);

}  // namespace pytrace::cuda
