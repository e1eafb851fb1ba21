#include <algorithm>
#include <utility>

#include "cover/cover_search.h"

namespace pytrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Problems of at most 64 sets and 64 features, which is nearly all that one question asks: every
// row of bits is one word, and the bound of a node is the dual solution in which a feature pays the
// least share that any set asks of it. It takes one look at each bit and is most often tight, where
// the full search would spend longer on setting up.
class SmallSearch {
 public:
  SmallSearch(const CoverProblem& problem, const std::vector<int64_t>& incumbent)
      : problem_(problem),
        steps_(weight_steps(problem)),
        best_count_(static_cast<int>(incumbent.size())) {
    std::copy(incumbent.begin(), incumbent.end(), best_);
    for (int64_t s = 0; s < problem.sets; ++s) {
      weights_[s] = problem.weights != nullptr ? problem.weights[s] : 1.0;
    }
    for (int64_t s : incumbent) best_weight_ += weights_[s];
  }

  // False if the problem needs more nodes than is worth it without better bounds.
  bool run(Word features) {
    const Word sets = problem_.sets == 64 ? ~Word{0} : (Word{1} << problem_.sets) - 1;
    explore(features, sets, 0.0, 0);
    return nodes_ <= kPatience;
  }

  std::vector<int64_t> best() const { return {best_, best_ + best_count_}; }
  int64_t nodes() const { return nodes_; }

 private:
  // About what the full search costs, a node being some 200 ns.
  static constexpr int64_t kPatience = 500;

  bool hopeless(double bound) const {
    return steps_.whole ? bound > best_weight_ - steps_.step + 1e-6 * steps_.step
                        : bound >= best_weight_ - 1e-9 * std::max(best_weight_, 1e-300);
  }

  // A set is needless if another, no heavier, has all it has. From the last on, so that of twins
  // the first stays.
  Word without_dominated(Word sets) const {
    for (int s = static_cast<int>(problem_.sets) - 1; s >= 0; --s) {
      for (Word rest = sets & ~(Word{1} << s); rest != 0; rest &= rest - 1) {
        const int t = __builtin_ctzll(rest);
        if ((problem_.members[s] & ~problem_.members[t]) == 0 && weights_[t] <= weights_[s]) {
          sets &= ~(Word{1} << s);
          break;
        }
      }
    }
    return sets;
  }

  void explore(Word features, Word sets, double cost, int depth) {
    if (features == 0) {
      if (cost < best_weight_) {
        best_weight_ = cost;
        best_count_ = depth;
        std::copy(chosen_, chosen_ + depth, best_);
      }
      return;
    }
    if (++nodes_ > kPatience) return;
    double share[64];
    Word owners[64];
    for (Word rest = features; rest != 0; rest &= rest - 1) {
      const int f = __builtin_ctzll(rest);
      share[f] = kInfinity;
      owners[f] = 0;
    }
    for (Word rest = sets; rest != 0; rest &= rest - 1) {
      const int s = __builtin_ctzll(rest);
      const Word has = problem_.members[s] & features;
      if (has == 0) continue;
      const double asked = weights_[s] / count_bits(has);
      for (Word bits = has; bits != 0; bits &= bits - 1) {
        const int f = __builtin_ctzll(bits);
        share[f] = std::min(share[f], asked);
        owners[f] |= Word{1} << s;
      }
    }
    double bound = cost;
    int rarest = 0;
    int least = 65;
    for (Word rest = features; rest != 0; rest &= rest - 1) {
      const int f = __builtin_ctzll(rest);
      if (owners[f] == 0) return;
      bound += share[f];
      const int holders = count_bits(owners[f]);
      if (holders < least) {
        least = holders;
        rarest = f;
      }
    }
    if (hopeless(bound)) return;
    if (depth == 0) {
      sets = without_dominated(sets);
      least = 65;
      for (Word rest = features; rest != 0; rest &= rest - 1) {
        const int f = __builtin_ctzll(rest);
        owners[f] &= sets;
        const int holders = count_bits(owners[f]);
        if (holders < least) {
          least = holders;
          rarest = f;
        }
      }
    }
    // The sets that promise most for their weight first.
    std::pair<double, int> branches[64];
    int count = 0;
    for (Word rest = owners[rarest]; rest != 0; rest &= rest - 1) {
      const int s = __builtin_ctzll(rest);
      branches[count++] = {weights_[s] / count_bits(problem_.members[s] & features), s};
    }
    std::sort(branches, branches + count);
    for (int b = 0; b < count && nodes_ <= kPatience; ++b) {
      const int s = branches[b].second;
      sets &= ~(Word{1} << s);
      chosen_[depth] = s;
      if (!hopeless(cost + weights_[s]) || (features & ~problem_.members[s]) == 0) {
        explore(features & ~problem_.members[s], sets, cost + weights_[s], depth + 1);
      }
    }
  }

  const CoverProblem& problem_;
  double weights_[64] = {};
  const WeightSteps steps_;
  double best_weight_ = 0.0;
  int64_t nodes_ = 0;
  int best_count_;
  int64_t best_[64];
  int64_t chosen_[64];
};

}  // namespace

FoundCover search_small_cover(const CoverProblem& problem, Word features,
                              const std::vector<int64_t>& incumbent) {
  SmallSearch search(problem, incumbent);
  FoundCover found;
  found.optimal = search.run(features);
  found.sets = search.best();
  found.nodes = search.nodes();
  return found;
}

}  // namespace pytrace
