// The half of the dense walk that is compiled once per instruction set; dense.cc picks one.
#pragma once

#include <cstdint>

namespace pytrace {

// As many lanes as fit one line of the cache, which a visit of a link has to fetch for one of them,
// too.
template <typename Real>
inline constexpr int kLineLanes = 64 / static_cast<int>(sizeof(Real));

// Side by side, so that a row is on few lines of the cache.
template <typename Real>
struct DenseLink {
  int32_t target;
  Real share;  // of what is at the node
};

struct DenseRow {
  int64_t begin;
  int64_t end;
};

// Behind the links, as many more can be read.
inline constexpr int64_t kDenseAhead = 64;

// A step of the walk of some questions, a lane each, whose masses lie side by side: those of node u
// at [u * lanes].
template <typename Real>
struct DenseStep {
  const DenseLink<Real>* links;
  const DenseRow* rows;  // of nodes
  Real* before;          // a step ago; zeros where it was read
  const Real* now;
  Real* next;  // added to
};

// Results are the same on every instruction set, for lanes do not meet.
template <typename Real>
struct DenseKernels {
  // Finds the nodes of [begin, end) that hold at least `least[lane]` in some lane; returns how
  // many. Adds up what all hold: sums[lane].
  int64_t (*find)(const Real* masses, int64_t begin, int64_t end, const Real* least, Real* sums,
                  int32_t* nodes);

  // Moves what is at nodes, in ascending order, along their links. Adds it up: sums[lane]; how much
  // it changed since the step before: sums[lanes + lane]; and what the additions came to, by which
  // their rounding is bounded: sums[2 * lanes + lane].
  void (*push)(const DenseStep<Real>& step, const int32_t* nodes, int64_t count, Real* sums);
};

struct DenseTable {
  DenseKernels<float> floats, one_float;  // of a line of lanes, and of one
  DenseKernels<double> doubles, one_double;
};

namespace baseline {
extern const DenseTable kDenseTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const DenseTable kDenseTable;
}
namespace avx512 {
extern const DenseTable kDenseTable;
}
#endif

}  // namespace pytrace
