// Walks over the links of a corpus, for many questions at once.
//
// Personalised PageRank by forward push (Andersen, Chung and Lang, "Local graph partitioning using
// PageRank vectors", 2006): each question's mass starts at its seeds; a node keeps the share
// `restart` of what reaches it and pushes the rest along its links by weight, while what waits at
// it is above `tolerance` times its links (at least one). So a question costs what it touches,
// O(1 / (restart * tolerance)) link visits at most, whatever the size of the graph. Nodes are
// visited in passes from the lowest to the highest, so that a walk that comes to touch many of them
// becomes a Gauss-Seidel iteration over rows side by side in memory, as in PowerPush (Wu, Gan, Wei
// and Zhang, "Unifying the Global and Local Approaches: An Efficient Power Iteration with Forward
// Push", 2021). Where the tolerance is so fine that questions come to touch most nodes, they are
// walked over all of them by power iteration (dense.h). And breadth first expansion, bounded in
// hops and in nodes.
//
// Time goes into links' targets, which lie anywhere in memory: a push has no vector form by hand,
// for AVX2 gained nothing that could be measured. Questions of a batch that may touch the same
// nodes are walked eight at a time, so that a target fetched serves all of them.
//
// Links lie in compressed sparse rows and are read as they are, from a mapped file too: what a
// corrupt file may hold (a target that is no node, rows that go back) is found where it is read.
//
// Each question is walked by one thread, in an order in which the others have no part: results do
// not depend on the threads, or on the other questions of the batch.

#pragma once

#include <cstdint>
#include <vector>

#include "common/views.h"

namespace pytrace {

// The links from node u are [offsets[u], offsets[u + 1]).
template <typename Target>
struct Links {
  Span<const int64_t> offsets;
  Span<const Target> targets;
  Span<const float> weights;  // finite and at least 0; empty: all 1

  int64_t nodes() const { return offsets.size - 1; }
};

// Seeds of question q: [offsets[q], offsets[q + 1]).
struct Seeds {
  Span<const int64_t> offsets;
  Span<const int64_t> nodes;
  Span<const double> weights;  // finite and at least 0; empty: all 1
};

inline constexpr double kLeastRestart = 0.01;
inline constexpr double kLeastTolerance = 1e-12;

struct WalkOptions {
  double restart = 0.5;     // from kLeastRestart to 1
  double tolerance = 1e-6;  // at least kLeastTolerance
  int64_t k = 10;           // the heaviest nodes kept
};

// Nodes of question q, heaviest first (equal scores: the lower node): [offsets[q], offsets[q + 1]).
struct WalkResult {
  std::vector<int64_t> offsets;
  std::vector<int64_t> nodes;
  std::vector<double> scores;
  std::vector<double>
      left;  // mass that was not walked any further, and what rounding may have done
};

struct ExpandOptions {
  int64_t hops = 2;      // at least 0
  int64_t budget = 100;  // nodes a question, sources included
};

// Nodes of question q in the order in which they are reached: sources, then by hop; `parents` are
// the nodes that they were reached from, -1 for sources.
struct ExpandResult {
  std::vector<int64_t> offsets;
  std::vector<int64_t> nodes;
  std::vector<int64_t> hops;
  std::vector<int64_t> parents;
};

// Throw std::invalid_argument for what is out of range, NaN, negative or infinite.
template <typename Target>
WalkResult personalised_pagerank(const Links<Target>& links, const Seeds& seeds,
                                 const WalkOptions& how, int threads);

template <typename Target>
ExpandResult expand_links(const Links<Target>& links, const Seeds& sources,
                          const ExpandOptions& how, int threads);

extern template WalkResult personalised_pagerank(const Links<int32_t>&, const Seeds&,
                                                 const WalkOptions&, int);
extern template WalkResult personalised_pagerank(const Links<int64_t>&, const Seeds&,
                                                 const WalkOptions&, int);
extern template ExpandResult expand_links(const Links<int32_t>&, const Seeds&, const ExpandOptions&,
                                          int);
extern template ExpandResult expand_links(const Links<int64_t>&, const Seeds&, const ExpandOptions&,
                                          int);

}  // namespace pytrace
