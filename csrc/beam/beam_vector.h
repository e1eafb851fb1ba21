// The half of the beam kernel that is compiled once per instruction set; beam.cc picks one.
#pragma once

#include <cstdint>

namespace pytrace {

// `double* values` must have room for `count` rounded up to 8; the functions fill that up with
// -inf.
struct BeamKernels {
  // The largest value (-inf if there is none) and the sum of exp(value - largest), each term within
  // 2 units in the last place; a term below exp(-700) counts as that, which no sum notices. False
  // if a value is NaN or +inf.
  bool (*sum_exp)(double* values, int64_t count, double* largest, double* sum);

  // The same of float32 values, without room behind them and without changing them, each term
  // within a millionth; a term below exp(-87) counts as that.
  bool (*sum_exp_floats)(const float* values, int64_t count, float* largest, double* sum);

  // Positions of the `wanted` largest values, largest first, equal ones by position; values of -inf
  // are never among them. Returns how many there are. Sets what it took to -inf. Each takes one
  // pass, so that nothing branches on the values.
  int64_t (*best)(double* values, int64_t count, int64_t wanted, int64_t* positions);
};

namespace baseline {
extern const BeamKernels kBeamKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const BeamKernels kBeamKernels;
}
namespace avx512 {
extern const BeamKernels kBeamKernels;
}
#endif

}  // namespace pytrace
