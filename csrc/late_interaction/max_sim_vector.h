// The half of MaxSim that is compiled once per instruction set; max_sim.cc picks one.
#pragma once

#include <cstdint>

#include "topk/topk.h"

namespace pytrace {

// A question's vectors, laid out: panels of 2 * lanes vectors, panel[d * 2 * lanes + lane], the
// last one of `lanes` if that is enough. Lanes without a vector hold zeros.
struct MaxSimPanels {
  const float* values;
  int64_t lanes_used;  // a multiple of `lanes`
  int64_t dim;
};

struct MaxSimKernels {
  // Sets best[lane] to the largest inner product of each lane's vector with rows [first, last) of
  // the documents, at least one. `widened` has room for tile_rows * dim values. Returns false if a
  // product is not finite.
  bool (*largest)(const MaxSimPanels& panels, const Items& documents, int64_t first, int64_t last,
                  float* widened, float* best);

  int lanes;
  int tile_rows;
};

namespace baseline {
extern const MaxSimKernels kMaxSimKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const MaxSimKernels kMaxSimKernels;
}
namespace avx512 {
extern const MaxSimKernels kMaxSimKernels;
}
#endif

}  // namespace pytrace
