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

// What may be left at most: where it is more, a push of a single question takes less time.
constexpr double kMostLeft = 1.0 / 16;

// What may be left times restart^2, at least, in float32: four times what it may be off by where
// walks stand at nodes with a thousand links to them on average.
constexpr double kLeastOfFloats = 0x1p-12;

// While walks came to fewer than one node in so many, the next ones are found along the links.
constexpr int64_t kFewReached = 16;

// Nodes that are looked at together, and whose masses are summed up in the lanes' own type.
constexpr int64_t kBlock = 256;

// More than what rounding does to such sums.
constexpr double kSlack = 1.0001;

// Some questions side by side, a lane each, in one thread's memory. In none of them does anything
// depend on the others: sums are of the same blocks whichever nodes they came to.
template <typename Target, typename Real>
class DenseWalk {
 public:
  DenseWalk(const Links<Target>& links, const WalkOptions& how, double most_left,
            const DenseKernels<Real>& kernels, int64_t lanes)
      : links_(links),
        how_(how),
        most_left_(most_left),
        kernels_(kernels),
        lanes_(lanes),
        known_(links.nodes()),
        rows_(links.nodes()),
        copies_(new DenseLink<Real>[static_cast<size_t>(links.targets.size + kDenseAhead)]),
        next_reached_(links.nodes()),
        memory_(3 * links.nodes() * lanes, true),
        before_(memory_.values()),
        now_(before_ + links.nodes() * lanes),
        next_(now_ + links.nodes() * lanes) {}

  // Questions [begin, end), at most as many as there are lanes.
  void run(const Seeds& seeds, int64_t begin, int64_t end, std::vector<std::vector<Scored>>& found,
           std::vector<double>& left) {
    clear();
    std::vector<int64_t> walking;
    for (int64_t question = begin; question < end; ++question) {
      if (start(seeds, question, question - begin)) walking.push_back(question);
    }
    list_reached();
    // By then nothing but rounding is left.
    const double last = 2.0 + 42.0 / -std::log1p(-how_.restart);
    for (int64_t steps = 1; !walking.empty(); ++steps) {
      step();
      if (steps == 1) continue;  // nothing was before
      const auto ended = std::partition(walking.begin(), walking.end(), [&](int64_t question) {
        return left_of(question - begin, 0.0) > most_left_ && static_cast<double>(steps) < last;
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

  // Calls body(begin, end) for the nodes of each block that walks came to.
  template <typename Body>
  void for_blocks(const Body& body) {
    const int64_t nodes = links_.nodes();
    if (!few_) {
      for (int64_t begin = 0; begin < nodes; begin += kBlock)
        body(begin, std::min(begin + kBlock, nodes));
      return;
    }
    int64_t passed = 0;
    for (const int32_t node : reached_) {
      if (node < passed) continue;
      const int64_t begin = node / kBlock * kBlock;
      passed = std::min(begin + kBlock, nodes);
      body(begin, passed);
    }
  }

  void clear() {
    for_blocks([&](int64_t begin, int64_t end) {
      std::fill(before_ + begin * lanes_, before_ + end * lanes_, Real{0});
      std::fill(now_ + begin * lanes_, now_ + end * lanes_, Real{0});
    });
    reached_.clear();
    few_ = true;
    seeds_.clear();
  }

  bool start(const Seeds& seeds, int64_t question, int64_t lane) {
    const double total = seed_total(seeds, question);
    if (!(total > 0.0)) return false;
    for (int64_t i = seeds.offsets[question]; i < seeds.offsets[question + 1]; ++i) {
      const int64_t at = seeds.nodes[i] * lanes_ + lane;
      const double mass = seed_weight(seeds, i) / total;
      now_[at] += static_cast<Real>(mass);
      seeds_.push_back({at, static_cast<Real>(how_.restart * mass)});
      next_reached_.add(seeds.nodes[i]);
    }
    return true;
  }

  void step() {
    for (const Seed& seed : seeds_) next_[seed.at] += seed.mass;
    std::fill_n(totals_, lanes_, 0.0);
    std::fill_n(changes_, lanes_, 0.0);
    std::copy_n(added_, lanes_, added_before_);
    std::fill_n(added_, lanes_, 0.0);
    if (few_) {
      push_reached();
    } else {
      push_all();
    }
    std::swap(before_, now_);
    std::swap(now_, next_);
  }

  void push_all() {
    Real least[kLineLanes<Real>], sums[kLineLanes<Real>];
    std::fill_n(least, lanes_, std::numeric_limits<Real>::denorm_min());
    for_blocks([&](int64_t begin, int64_t end) {
      int32_t nodes[kBlock];
      push(nodes, kernels_.find(now_, begin, end, least, sums, nodes));
    });
  }

  void push_reached() {
    for (size_t begin = 0, end = 0; begin < reached_.size(); begin = end) {
      while (end < reached_.size() && reached_[end] / kBlock == reached_[begin] / kBlock) {
        copy_row(reached_[end]);
        ++end;
      }
      push(reached_.data() + begin, static_cast<int64_t>(end - begin));
    }
    // Walks start anew and come to where they were again.
    for (const int32_t node : reached_) {
      next_reached_.add(node);
      for (int64_t link = rows_[node].begin; link < rows_[node].end; ++link)
        next_reached_.add(copies_[static_cast<size_t>(link)].target);
    }
    list_reached();
  }

  void list_reached() {
    reached_.clear();
    next_reached_.pass([&](int64_t node) { reached_.push_back(static_cast<int32_t>(node)); });
    few_ = static_cast<int64_t>(reached_.size()) * kFewReached <= links_.nodes();
    // Where most rows are going to be read, it takes least in sequence.
    for (int64_t node = 0; node < links_.nodes() && !few_; ++node) copy_row(node);
  }

  void push(const int32_t* nodes, int64_t count) {
    Real sums[3 * kLineLanes<Real>];
    kernels_.push({copies_.get(), rows_.values(), before_, now_, next_}, nodes, count, sums);
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      totals_[lane] += double{sums[lane]};
      changes_[lane] += double{sums[lanes_ + lane]};
      added_[lane] += double{sums[2 * lanes_ + lane]};
    }
  }

  // When a walk comes to it first: its links are checked, and what they hold is ours from then on.
  void copy_row(int64_t node) {
    if (known_[node] != 0) return;
    const Row row = row_of(links_, node);
    const double total = weight_of(links_, row);
    const double factor = total > 0.0 ? (1.0 - how_.restart) / total : 0.0;
    const float* weights = links_.weights.size == 0 ? nullptr : links_.weights.data;
    DenseLink<Real>* copies = copies_.get();
    for (int64_t link = row.begin; link < row.end; ++link) {
      const double weight = weights == nullptr ? 1.0 : double{weights[link]};
      copies[link] = {static_cast<int32_t>(target_of(links_, link)),
                      static_cast<Real>(weight * factor)};
    }
    rows_[node] = {row.begin, row.end};
    known_[node] = 1;
  }

  // What is left of a lane's walk, with so much of rounding. Walks that ended at nodes without
  // links start anew at the seeds and spread as the first did, so that all scores grow.
  double left_of(int64_t lane, double rounding) const {
    const double on = 1.0 - how_.restart;
    const double before = on / how_.restart * changes_[lane] * kSlack;
    const double missing = on * before + rounding;
    const double all = totals_[lane] / kSlack - before - rounding;
    return missing < all ? missing / all : 1.0;
  }

  // An addition is off by a unit of what it comes to, at most; shares, products and seeds by four
  // more a step, totals by one for each node of a block. The sums of additions are rounded, too,
  // but by less than half.
  double rounding_of(int64_t lane) const {
    const double unit = double{std::numeric_limits<Real>::epsilon()} / 2;
    const double before = (1.0 - how_.restart) / how_.restart * (2.0 * added_before_[lane] + 4.0);
    return unit * (before + 2.0 * added_[lane] + 4.0 + kBlock);
  }

  void collect(const std::vector<int64_t>& questions, int64_t first,
               std::vector<std::vector<Scored>>& found, std::vector<double>& left) {
    // What is lighter may round to nothing in one step and not in the next.
    constexpr Real kLightest =
        std::numeric_limits<Real>::min() / std::numeric_limits<Real>::epsilon();
    Real least[kLineLanes<Real>], sums[kLineLanes<Real>];
    double totals[kLineLanes<Real>] = {};
    std::fill_n(least, lanes_, std::numeric_limits<Real>::infinity());
    for (const int64_t question : questions) least[question - first] = kLightest;
    const auto k = static_cast<size_t>(std::min(how_.k, links_.nodes()));
    std::vector<Heaviest> heaviest(questions.size(), Heaviest(k));
    for_blocks([&](int64_t begin, int64_t end) {
      int32_t nodes[kBlock];
      const int64_t count = kernels_.find(now_, begin, end, least, sums, nodes);
      for (int64_t lane = 0; lane < lanes_; ++lane) totals[lane] += double{sums[lane]};
      for (size_t i = 0; i < questions.size() && count > 0; ++i) {
        const int64_t lane = questions[i] - first;
        for (int64_t j = 0; j < count; ++j) {
          const Real mass = now_[nodes[j] * lanes_ + lane];
          if (mass >= least[lane]) heaviest[i].add({nodes[j], double{mass}});
        }
        least[lane] = std::max(least[lane], static_cast<Real>(heaviest[i].least()));
      }
    });
    for (size_t i = 0; i < questions.size(); ++i) {
      const auto question = static_cast<size_t>(questions[i]);
      const int64_t lane = questions[i] - first;
      // Not finite only if another thread wrote into the weights meanwhile.
      if (std::isfinite(totals[lane])) found[question] = heaviest[i].sorted();
      for (Scored& each : found[question]) each.score /= totals[lane];
      left[question] = left_of(lane, rounding_of(lane));
    }
  }

  const Links<Target>& links_;
  const WalkOptions& how_;
  double most_left_;
  const DenseKernels<Real>& kernels_;
  int64_t lanes_;
  std::vector<Seed> seeds_;
  Zeros<uint8_t> known_;  // whether a node's links were copied
  Zeros<DenseRow> rows_;
  std::unique_ptr<DenseLink<Real>[]> copies_;
  bool few_ = true;               // nodes were reached: all of them are
  std::vector<int32_t> reached_;  // here, in ascending order
  NodeSet next_reached_;
  Zeros<Real> memory_;  // zeros where it was not reached
  Real* before_;        // masses a step ago
  Real* now_;
  Real* next_;
  double totals_[kLineLanes<Real>];
  double changes_[kLineLanes<Real>];     // since the step before
  double added_[kLineLanes<Real>] = {};  // what additions came to
  double added_before_[kLineLanes<Real>];
};

template <typename Target, typename Real>
void walk_all(const Links<Target>& links, const Seeds& seeds, const WalkOptions& how,
              double most_left, int threads, const DenseKernels<Real>& line,
              const DenseKernels<Real>& one, std::vector<std::vector<Scored>>& found,
              std::vector<double>& left) {
  // A line of lanes takes as long as a quarter as many questions one by one.
  const int64_t questions = seeds.offsets.size - 1;
  const bool few = questions < kLineLanes<Real> / 4 * int64_t{resolve_threads(threads, questions)};
  const int64_t lanes = few ? 1 : kLineLanes<Real>;
  const int team = resolve_threads(threads, (questions + lanes - 1) / lanes);
  std::vector<std::unique_ptr<DenseWalk<Target, Real>>> walks(static_cast<size_t>(team));
  parallel_for(questions, lanes, threads, [&](int64_t begin, int64_t end, int thread) {
    auto& walk = walks[static_cast<size_t>(thread)];
    if (walk == nullptr) {
      walk =
          std::make_unique<DenseWalk<Target, Real>>(links, how, most_left, few ? one : line, lanes);
    }
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
  return promised(links, how) <= kMostLeft && links.nodes() <= std::numeric_limits<int32_t>::max();
}

template <typename Target>
void walk_densely(const Links<Target>& links, const Seeds& seeds, const WalkOptions& how,
                  int threads, std::vector<std::vector<Scored>>& found, std::vector<double>& left) {
  const DenseTable& table = *PYTRACE_SELECT_ISA(kDenseTable);
  const double most = promised(links, how);
  if (most * how.restart * how.restart >= kLeastOfFloats) {
    walk_all(links, seeds, how, most, threads, table.floats, table.one_float, found, left);
  } else {
    walk_all(links, seeds, how, most, threads, table.doubles, table.one_double, found, left);
  }
}

template bool is_dense(const Links<int32_t>&, const WalkOptions&);
template bool is_dense(const Links<int64_t>&, const WalkOptions&);
template void walk_densely(const Links<int32_t>&, const Seeds&, const WalkOptions&, int,
                           std::vector<std::vector<Scored>>&, std::vector<double>&);
template void walk_densely(const Links<int64_t>&, const Seeds&, const WalkOptions&, int,
                           std::vector<std::vector<Scored>>&, std::vector<double>&);

}  // namespace pytrace::walk_detail
