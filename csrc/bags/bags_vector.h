// The half of embedding_bag that is compiled once per instruction set; bags.cc picks one.
#pragma once

#include <cstdint>

#include "topk/topk.h"

namespace pytrace {

struct BagKernels {
  // out[d] = the sum of rows[i] of the table, times factors[i] unless that is nullptr, divided by
  // `count`, which is at least 1. Scales of the table are not looked at. rows[count] to
  // rows[known - 1] are asked for next.
  void (*mean)(const Items& table, const int64_t* rows, const float* factors, int64_t count,
               int64_t known, float* out);
};

namespace baseline {
extern const BagKernels kBagKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const BagKernels kBagKernels;
}
namespace avx512 {
extern const BagKernels kBagKernels;
}
#endif

}  // namespace pytrace
