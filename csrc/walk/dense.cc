#include "walk/dense.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "common/dispatch.h"
#include "common/parallel.h"
#include "walk/dense_vector.h"
#include "walk/links.h"
#include "walk/node_set.h"
#include "walk/zeros.h"

namespace pytrace::walk_detail {
namespace {

// What may be left at most: where it is more, a push ends before all links are checked.
constexpr double kMostLeft = 1.0 / 16;

// What may be left times restart^2, at least, in float32: four times what it may be off by where
// walks stand at nodes with a thousand links to them on average.
constexpr double kLeastOfFloats = 0x1p-12;

// A node's weights add up to no more than this in float32, and to no less than its inverse, so that
// products keep all digits.
constexpr double kMostOfFloats = 0x1p40;

// Nodes whose masses are summed up in the lanes' own type: half of the first cache.
constexpr int64_t kBlock = 256;

// More than what rounding does to such sums.
constexpr double kSlack = 1.0001;

// With fewer than one node in so many reached, the next ones are found along the links.
constexpr int64_t kFewReached = 64;

// A graph, checked: a copy of what tells where to read and write, and what its nodes sum up to.
struct Graph {
  template <typename Target>
  Graph(const Links<Target>& links, int threads)
      : nodes(links.nodes()),
        offsets(links.offsets.begin(), links.offsets.end()),
        weights(links.weights.size == 0 ? &kWeight : links.weights.data),
        weighted(links.weights.size > 0),
        totals(static_cast<size_t>(nodes)),
        in_links(static_cast<size_t>(nodes)) {
    if (nodes == 0) return;
    const Links<Target> own{{offsets.data(), nodes + 1}, links.targets, links.weights};
    parallel_for(nodes, 4096, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t node = begin; node < end; ++node)
        totals[static_cast<size_t>(node)] = weight_of(own, row_of(own, node));
    });
    // By one thread: to count takes longer than to copy, and has to be done by one.
    targets.reset(new int32_t[static_cast<size_t>(offsets.back() + kDenseAhead)]);
    std::fill_n(targets.get() + offsets.back(), kDenseAhead, 0);
    for (int64_t link = offsets.front(); link < offsets.back(); ++link) {
      const int64_t target = target_of(own, link);
      targets[static_cast<size_t>(link)] = static_cast<int32_t>(target);
      ++in_links[static_cast<size_t>(target)];
    }
  }

  bool fits_floats() const {
    return std::all_of(totals.begin(), totals.end(), [](double total) {
      return total == 0.0 || (total >= 1.0 / kMostOfFloats && total <= kMostOfFloats);
    });
  }

  static constexpr float kWeight = 1.0F;

  int64_t nodes;
  std::vector<int64_t> offsets;
  std::unique_ptr<int32_t[]> targets;
  const float* weights;
  bool weighted;
  std::vector<double> totals;
  std::vector<uint32_t> in_links;
};

// Some questions side by side, a lane each, in one thread's memory. In none of them does anything
// depend on the others.
template <typename Real>
class DenseWalk {
 public:
  // What all threads read.
  struct Shared {
    Shared(const Graph& checked, const DenseKernels<Real>& chosen, int64_t side_by_side,
           const WalkOptions& options, double promised)
        : graph(checked), kernels(chosen), lanes(side_by_side), how(options), most_left(promised) {
      shares.reserve(graph.totals.size());
      roundings.reserve(graph.totals.size());
      for (const double total : graph.totals)
        shares.push_back(static_cast<Real>(total > 0.0 ? (1.0 - how.restart) / total : 0.0));
      for (const uint32_t links : graph.in_links) roundings.push_back(static_cast<Real>(links) + 5);
    }

    const Graph& graph;
    const DenseKernels<Real>& kernels;
    int64_t lanes;
    const WalkOptions& how;
    double most_left;
    std::vector<Real> shares;     // of a node's mass, by weight
    std::vector<Real> roundings;  // at a node in a step
  };

  explicit DenseWalk(const Shared& shared)
      : shared_(shared),
        lanes_(shared.lanes),
        memory_(3 * size(), true),
        before_(memory_.values()),
        now_(before_ + size()),
        next_(now_ + size()),
        reached_(shared.graph.nodes) {}

  // Questions [begin, end), at most as many as there are lanes.
  void run(const Seeds& seeds, int64_t begin, int64_t end, std::vector<std::vector<Scored>>& found,
           std::vector<double>& left) {
    clear();
    std::vector<int64_t> walking;
    for (int64_t question = begin; question < end; ++question) {
      if (start(seeds, question, question - begin)) walking.push_back(question);
    }
    // By then nothing but rounding is left.
    const double last = 2.0 + 42.0 / -std::log1p(-shared_.how.restart);
    for (int64_t steps = 1; !walking.empty(); ++steps) {
      step();
      if (steps == 1) continue;  // nothing was before
      const auto ended = std::partition(walking.begin(), walking.end(), [&](int64_t question) {
        return left_of(question - begin, 0.0) > shared_.most_left &&
               static_cast<double>(steps) < last;
      });
      if (ended != walking.end()) collect({ended, walking.end()}, begin, found, left);
      walking.erase(ended, walking.end());
    }
  }

 private:
  struct Seed {
    int64_t at;
    Real mass;  // that starts anew in each step
  };

  int64_t size() const { return shared_.graph.nodes * lanes_; }

  void clear() {
    if (used_) {
      std::fill_n(before_, size(), Real{0});
      std::fill_n(now_, size(), Real{0});
    }
    used_ = true;
    seeds_.clear();
    reached_.clear();
    few_reached_ = true;
  }

  bool start(const Seeds& seeds, int64_t question, int64_t lane) {
    const double total = seed_total(seeds, question);
    if (!(total > 0.0)) return false;
    for (int64_t i = seeds.offsets[question]; i < seeds.offsets[question + 1]; ++i) {
      const int64_t at = seeds.nodes[i] * lanes_ + lane;
      const double mass = seed_weight(seeds, i) / total;
      now_[at] += static_cast<Real>(mass);
      seeds_.push_back({at, static_cast<Real>(shared_.how.restart * mass)});
      reached_.add(seeds.nodes[i]);
    }
    return true;
  }

  void step() {
    for (const Seed& seed : seeds_) next_[seed.at] += seed.mass;
    std::fill_n(masses_, lanes_, 0.0);
    std::fill_n(changes_, lanes_, 0.0);
    if (few_reached_) {
      push_reached();
    } else {
      push_all();
    }
    std::swap(before_, now_);
    std::swap(now_, next_);
  }

  void push_all() {
    Real least[kLineLanes<Real>], sums[2 * kLineLanes<Real>];
    std::fill_n(least, lanes_, std::numeric_limits<Real>::denorm_min());
    int32_t nodes[kBlock];
    for (int64_t begin = 0; begin < shared_.graph.nodes; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, shared_.graph.nodes);
      push(nodes,
           shared_.kernels.find(now_, shared_.roundings.data(), begin, end, least, sums, nodes));
    }
  }

  // A node that is reached stays so: walks start anew, and come to it again.
  void push_reached() {
    std::vector<int32_t> nodes;
    reached_.pass([&](int64_t node) { nodes.push_back(static_cast<int32_t>(node)); });
    const auto count = static_cast<int64_t>(nodes.size());
    for (int64_t begin = 0; begin < count; begin += kBlock)
      push(nodes.data() + begin, std::min(kBlock, count - begin));
    few_reached_ = count * kFewReached <= shared_.graph.nodes;
    for (int64_t i = 0; i < count && few_reached_; ++i) {
      const auto node = static_cast<size_t>(nodes[static_cast<size_t>(i)]);
      reached_.add(static_cast<int64_t>(node));
      for (int64_t link = shared_.graph.offsets[node]; link < shared_.graph.offsets[node + 1];
           ++link)
        reached_.add(shared_.graph.targets[static_cast<size_t>(link)]);
    }
  }

  void push(const int32_t* nodes, int64_t count) {
    const Graph& graph = shared_.graph;
    const DenseStep<Real> step{graph.offsets.data(),
                               graph.targets.get(),
                               graph.weights,
                               graph.weighted,
                               shared_.shares.data(),
                               before_,
                               now_,
                               next_};
    Real sums[2 * kLineLanes<Real>];
    shared_.kernels.push(step, nodes, count, sums);
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      masses_[lane] += double{sums[lane]};
      changes_[lane] += double{sums[lanes_ + lane]};
    }
  }

  // What is left of a lane's walk, with what rounding may have done to it. Walks that ended at
  // nodes without links start anew at the seeds and spread as the first did, so that all scores
  // grow.
  double left_of(int64_t lane, double rounding) const {
    const double on = 1.0 - shared_.how.restart;
    const double before = on / shared_.how.restart * changes_[lane] * kSlack;
    const double missing = on * before + rounding;
    const double all = masses_[lane] / kSlack - before - rounding;
    return missing < all ? missing / all : 1.0;
  }

  void collect(const std::vector<int64_t>& questions, int64_t first,
               std::vector<std::vector<Scored>>& found, std::vector<double>& left) {
    // What is lighter may round to nothing in one step and not in the next.
    constexpr Real kLightest =
        std::numeric_limits<Real>::min() / std::numeric_limits<Real>::epsilon();
    Real least[kLineLanes<Real>], sums[2 * kLineLanes<Real>];
    double totals[2 * kLineLanes<Real>] = {};
    std::fill_n(least, lanes_, std::numeric_limits<Real>::infinity());
    for (const int64_t question : questions) least[question - first] = kLightest;
    const auto k = static_cast<size_t>(std::min(shared_.how.k, shared_.graph.nodes));
    std::vector<Heaviest> heaviest(questions.size(), Heaviest(k));
    int32_t nodes[kBlock];
    for (int64_t begin = 0; begin < shared_.graph.nodes; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, shared_.graph.nodes);
      const int64_t count =
          shared_.kernels.find(now_, shared_.roundings.data(), begin, end, least, sums, nodes);
      for (int64_t i = 0; i < 2 * lanes_; ++i) totals[i] += double{sums[i]};
      for (size_t i = 0; i < questions.size() && count > 0; ++i) {
        const int64_t lane = questions[i] - first;
        for (int64_t j = 0; j < count; ++j) {
          const Real mass = now_[nodes[j] * lanes_ + lane];
          if (mass >= least[lane]) heaviest[i].add({nodes[j], double{mass}});
        }
        least[lane] = std::max(least[lane], static_cast<Real>(heaviest[i].least()));
      }
    }
    for (size_t i = 0; i < questions.size(); ++i) {
      const auto question = static_cast<size_t>(questions[i]);
      const int64_t lane = questions[i] - first;
      // Not finite only if another thread wrote into the weights meanwhile.
      if (std::isfinite(totals[lane])) found[question] = heaviest[i].sorted();
      for (Scored& each : found[question]) each.score /= totals[lane];
      const double unit = double{std::numeric_limits<Real>::epsilon()} / 2;
      const double steps =
          totals[lanes_ + lane] * kSlack / (shared_.how.restart * shared_.how.restart);
      left[question] = left_of(lane, unit * (steps + kBlock));
    }
  }

  const Shared& shared_;
  int64_t lanes_;
  Zeros<Real> memory_;  // what was a step ago, what is, and what will be: zeros before and after
  Real* before_;
  Real* now_;
  Real* next_;
  bool used_ = false;
  std::vector<Seed> seeds_;
  NodeSet reached_;
  bool few_reached_ = true;  // the set has all nodes that were
  double masses_[kLineLanes<Real>];
  double changes_[kLineLanes<Real>];  // since the step before
};

template <typename Real>
void walk_all(const Graph& graph, const Seeds& seeds, const WalkOptions& how, double most_left,
              int threads, const DenseKernels<Real>& line, const DenseKernels<Real>& one,
              std::vector<std::vector<Scored>>& found, std::vector<double>& left) {
  // A line of lanes takes as long as a quarter as many questions one by one.
  const int64_t questions = seeds.offsets.size - 1;
  const bool few = questions < kLineLanes<Real> / 4 * int64_t{resolve_threads(threads, questions)};
  const int64_t lanes = few ? 1 : kLineLanes<Real>;
  const typename DenseWalk<Real>::Shared shared(graph, few ? one : line, lanes, how, most_left);
  const int team = resolve_threads(threads, (questions + lanes - 1) / lanes);
  std::vector<std::unique_ptr<DenseWalk<Real>>> walks(static_cast<size_t>(team));
  parallel_for(questions, lanes, threads, [&](int64_t begin, int64_t end, int thread) {
    auto& walk = walks[static_cast<size_t>(thread)];
    if (walk == nullptr) walk = std::make_unique<DenseWalk<Real>>(shared);
    for (int64_t first = begin; first < end; first += lanes)
      walk->run(seeds, first, std::min(first + lanes, end), found, left);
  });
}

// What may be left of a question: as much for each link as for each node.
template <typename Target>
double promised(const Links<Target>& links, const WalkOptions& how) {
  return how.tolerance * static_cast<double>(links.targets.size + links.nodes());
}

}  // namespace

template <typename Target>
bool is_dense(const Links<Target>& links, const WalkOptions& how) {
  return promised(links, how) <= kMostLeft &&
         links.nodes() <= std::numeric_limits<int32_t>::max() &&
         links.targets.size <= std::numeric_limits<uint32_t>::max();
}

template <typename Target>
void walk_densely(const Links<Target>& links, const Seeds& seeds, const WalkOptions& how,
                  int threads, std::vector<std::vector<Scored>>& found, std::vector<double>& left) {
  const DenseTable& table = *PYTRACE_SELECT_ISA(kDenseTable);
  const Graph graph(links, threads);
  const double most_left = promised(links, how);
  if (most_left * how.restart * how.restart >= kLeastOfFloats && graph.fits_floats()) {
    walk_all(graph, seeds, how, most_left, threads, table.floats, table.one_float, found, left);
  } else {
    walk_all(graph, seeds, how, most_left, threads, table.doubles, table.one_double, found, left);
  }
}

template bool is_dense(const Links<int32_t>&, const WalkOptions&);
template bool is_dense(const Links<int64_t>&, const WalkOptions&);
template void walk_densely(const Links<int32_t>&, const Seeds&, const WalkOptions&, int,
                           std::vector<std::vector<Scored>>&, std::vector<double>&);
template void walk_densely(const Links<int64_t>&, const Seeds&, const WalkOptions&, int,
                           std::vector<std::vector<Scored>>&, std::vector<double>&);

}  // namespace pytrace::walk_detail
