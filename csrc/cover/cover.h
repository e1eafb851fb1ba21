// Set covers over bitsets: greedy, exact minimum, and the three-phase search of ScopeCoE.
//
// A problem has `sets` rows of bits over `features`; a cover is a choice of sets that together have
// every feature which any set has. Features that no set has are left out and reported by the
// caller, never an error.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "common/views.h"

namespace pytrace {

// Bit f % 64 of members[s * words + f / 64] says that set s has feature f; bits from `features` on
// are 0.
struct CoverProblem {
  const uint64_t* members = nullptr;
  int64_t sets = 0;
  int64_t features = 0;
  int64_t words = 0;
  const double* weights = nullptr;  // one a set, finite and not negative; nullptr: all 1
};

struct CoverLimits {
  double seconds = std::numeric_limits<double>::infinity();
  // Asked every few milliseconds; true ends the search as a time limit does.
  std::function<bool()> stop;
};

struct CoverResult {
  std::vector<int64_t> sets;  // ascending (greedy: in the order taken)
  double weight = 0.0;
  bool optimal = false;  // no cover weighs less
  double bound = 0.0;    // no cover weighs less than this
  std::vector<int64_t> uncovered;
  int64_t nodes = 0;  // of the search tree
};

// Throws std::invalid_argument for a weight that is negative or not finite.
void require_weights(Span<const double> weights, int64_t sets);

// Chvatal's greedy cover (1979): the set with the least weight per newly covered feature, again and
// again; ties: the lower index. At most H(d) times the minimum for sets of at most d features.
// `bound` is the weight of the dual solution that proves it, so `optimal` may be true.
CoverResult greedy_cover(const CoverProblem& problem);

// A cover of least weight, by branch and bound: essential sets, dominated sets and features are
// reduced at every node; the bound is Lagrangian (subgradient, Held & Karp 1971; Beasley 1987) with
// fixing by reduced costs, and its multipliers guide a primal heuristic; branches are on the
// feature that fewest sets have. Exponential at worst, so it can be stopped: the best cover found
// comes back with a bound that holds. Weights that are all whole numbers are exact; others are
// proved to within one part in 10^9. The answer depends on the problem alone unless a limit
// strikes.
CoverResult minimum_cover(const CoverProblem& problem, const CoverLimits& limits);

// ScopeCoE's minimal coverage search ("What External Knowledge is Preferred by LLMs? ...",
// algorithm 1), snippets by rank: every snippet with the intent; then for each relation not yet
// covered the first snippet that has it; then the same for the nodes. What is not yet covered is
// listed once at the beginning of a phase, as the paper has it, so a relation that a snippet taken
// in the same phase brings along still adds its own first snippet; `recheck` skips it. Judgements
// are row-major, snippets x features, non-zero for yes. Fills `chosen` in the order taken.
struct ScopeProblem {
  const uint8_t* intent = nullptr;
  const uint8_t* relations = nullptr;
  const uint8_t* nodes = nullptr;
  int64_t snippets = 0;
  int64_t relation_count = 0;
  int64_t node_count = 0;
};

struct ScopeResult {
  std::vector<int64_t> chosen;
  bool intent = false;
  std::vector<int64_t> uncovered_relations;
  std::vector<int64_t> uncovered_nodes;
};

ScopeResult scope_cover(const ScopeProblem& problem, bool recheck);

}  // namespace pytrace
