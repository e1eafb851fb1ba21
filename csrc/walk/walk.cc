#include "walk/walk.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

#include "common/parallel.h"
#include "walk/dense.h"
#include "walk/heaviest.h"
#include "walk/links.h"
#include "walk/node_set.h"
#include "walk/zeros.h"

namespace pytrace {
namespace {

using walk_detail::Heaviest;
using walk_detail::offsets_of;
using walk_detail::Row;
using walk_detail::row_of;
using walk_detail::Scored;
using walk_detail::seed_weight;
using walk_detail::target_of;
using walk_detail::weight_of;
using walk_detail::Zeros;

// Questions that are walked side by side: a node's mass in eight of them is one line of the cache,
// which a visit of a link has to fetch for one of them, too.
constexpr int kLanes = 8;

// How many links ahead a target's line is asked for: some ten lines are on their way at a time.
constexpr int64_t kAhead = 16;

// What a node must hold for each of its links to be pushed in the first pass over the nodes, and
// how much less in each further one until it is the tolerance: mass gathers before it is moved on,
// and a quarter fewer links are visited than with the tolerance from the start.
constexpr double kFirstLeast = 1e-3;
constexpr double kLeastFalls = 0.1;

template <int lanes>
struct alignas(sizeof(double) * lanes) Masses {
  double of[lanes];
};

// One thread's memory: as large as the graph, and clean between questions.
template <int lanes>
struct WalkMemory {
  explicit WalkMemory(int64_t nodes)
      : kept(nodes), waiting(nodes), reached(nodes), touched(nodes) {}

  Zeros<Masses<lanes>> kept;
  Zeros<Masses<lanes>> waiting;  // to be pushed
  NodeSet reached;               // by mass, since they were last visited
  NodeSet touched;
};

// Some questions side by side. In none of them does anything depend on the others: a node that is
// visited for the sake of one is pushed only where enough waits.
template <typename Target, int lanes>
class Walk {
 public:
  Walk(const Links<Target>& links, const WalkOptions& how, WalkMemory<lanes>& memory)
      : links_(links), how_(how), memory_(memory), waiting_(memory.waiting.values()) {}

  // Questions [begin, end), at most as many as there are lanes.
  void run(const Seeds& seeds, int64_t begin, int64_t end, std::vector<std::vector<Scored>>& found,
           std::vector<double>& left) {
    const Cleaner cleaner{memory_};
    for (int64_t question = begin; question < end; ++question)
      start(seeds, question, question - begin);
    least_ = std::max(how_.tolerance, kFirstLeast);
    while (memory_.reached.pass([&](int64_t node) { visit(node); }))
      least_ = std::max(how_.tolerance, least_ * kLeastFalls);
    collect(begin, end, found, left);
  }

 private:
  // Leaves the memory clean, whatever ends the walk.
  struct Cleaner {
    WalkMemory<lanes>& memory;
    ~Cleaner() {
      const auto clean = [&](int64_t node) { memory.kept[node] = memory.waiting[node] = {}; };
      memory.touched.pass(clean);
      memory.reached.pass(clean);
    }
  };

  void start(const Seeds& seeds, int64_t question, int64_t lane) {
    const double total = walk_detail::seed_total(seeds, question);
    if (!(total > 0.0)) return;
    for (int64_t i = seeds.offsets[question]; i < seeds.offsets[question + 1]; ++i) {
      memory_.waiting[seeds.nodes[i]].of[lane] += seed_weight(seeds, i) / total;
      memory_.reached.add(seeds.nodes[i]);
    }
  }

  void visit(int64_t node) {
    memory_.touched.add(node);
    const Row row = row_of(links_, node);
    const auto links = static_cast<double>(std::max<int64_t>(row.size(), 1));
    const double least = least_ * links;
    Masses<lanes>& waiting = memory_.waiting[node];
    Masses<lanes> moved;
    double most_moved = 0.0, most_left = 0.0;
    for (int lane = 0; lane < lanes; ++lane) {
      moved.of[lane] = waiting.of[lane] > least ? waiting.of[lane] : 0.0;
      most_moved = std::max(most_moved, moved.of[lane]);
      most_left = std::max(most_left, waiting.of[lane] - moved.of[lane]);
    }
    if (most_left > how_.tolerance * links) memory_.reached.add(node);
    if (most_moved == 0.0) return;
    Masses<lanes>& kept = memory_.kept[node];
    for (int lane = 0; lane < lanes; ++lane) {
      waiting.of[lane] -= moved.of[lane];
      kept.of[lane] += how_.restart * moved.of[lane];
      moved.of[lane] *= 1.0 - how_.restart;
    }
    const double total = weight_of(links_, row);
    if (!(total > 0.0)) {  // the walk ends here, and starts anew at the seeds
      for (int lane = 0; lane < lanes; ++lane) ended_[lane] += moved.of[lane];
      return;
    }
    for (int lane = 0; lane < lanes; ++lane) moved.of[lane] /= total;
    if (links_.weights.size == 0) {
      spread(row, moved, [](int64_t) { return 1.0; });
    } else {
      const float* weights = links_.weights.data;
      spread(row, moved, [weights](int64_t link) { return static_cast<double>(weights[link]); });
    }
  }

  template <typename Weight>
  void spread(const Row& row, const Masses<lanes>& moved, const Weight& weight) {
    const int64_t last = links_.targets.size - 1;
    for (int64_t link = row.begin; link < row.end; ++link) {
      // Not checked yet: an address that is only asked for may be any.
      const auto ahead = static_cast<uintptr_t>(links_.targets[std::min(link + kAhead, last)]);
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(waiting_) +
                                                       ahead * sizeof(Masses<lanes>)),
                         1);
      const int64_t target = target_of(links_, link);
      const double share = weight(link);
      Masses<lanes>& mass = waiting_[target];
      for (int lane = 0; lane < lanes; ++lane) mass.of[lane] += moved.of[lane] * share;
      memory_.reached.add(target);
    }
  }

  // Walks that start anew at the seeds spread as the first did, so that only the scale changes.
  void collect(int64_t begin, int64_t end, std::vector<std::vector<Scored>>& found,
               std::vector<double>& left) {
    const auto k = static_cast<size_t>(std::min(how_.k, links_.nodes()));
    std::vector<Heaviest> heaviest(static_cast<size_t>(end - begin), Heaviest(k));
    double waiting[lanes] = {};
    memory_.touched.pass([&](int64_t node) {
      Masses<lanes>& kept = memory_.kept[node];
      for (int64_t lane = 0; lane < end - begin; ++lane) {
        waiting[lane] += memory_.waiting[node].of[lane];
        if (kept.of[lane] > 0.0) heaviest[static_cast<size_t>(lane)].add({node, kept.of[lane]});
      }
      kept = memory_.waiting[node] = {};
    });
    for (int64_t question = begin; question < end; ++question) {
      const auto lane = static_cast<size_t>(question - begin);
      const double scale = 1.0 / (1.0 - ended_[lane]);
      std::vector<Scored> list = heaviest[lane].sorted();
      for (Scored& each : list) each.score *= scale;
      found[static_cast<size_t>(question)] = std::move(list);
      left[static_cast<size_t>(question)] = waiting[lane] * scale;
    }
  }

  const Links<Target>& links_;
  const WalkOptions& how_;
  WalkMemory<lanes>& memory_;
  Masses<lanes>* waiting_;
  double least_ = 0.0;  // of this pass
  double ended_[lanes] = {};
};

template <int lanes, typename Target>
void walk_all(const Links<Target>& links, const Seeds& seeds, const WalkOptions& how, int threads,
              std::vector<std::vector<Scored>>& found, std::vector<double>& left) {
  const int64_t questions = seeds.offsets.size - 1;
  const int team = resolve_threads(threads, (questions + lanes - 1) / lanes);
  std::vector<std::unique_ptr<WalkMemory<lanes>>> memories(static_cast<size_t>(team));
  parallel_for(questions, lanes, threads, [&](int64_t begin, int64_t end, int thread) {
    auto& memory = memories[static_cast<size_t>(thread)];
    if (memory == nullptr) memory = std::make_unique<WalkMemory<lanes>>(links.nodes());
    for (int64_t first = begin; first < end; first += lanes) {
      Walk<Target, lanes> walk(links, how, *memory);
      walk.run(seeds, first, std::min<int64_t>(first + lanes, end), found, left);
    }
  });
}

}  // namespace

template <typename Target>
WalkResult personalised_pagerank(const Links<Target>& links, const Seeds& seeds,
                                 const WalkOptions& how, int threads) {
  walk_detail::require_batch(links, seeds);
  // Below these a walk would hardly end.
  if (!(how.restart >= kLeastRestart && how.restart <= 1.0)) {
    fail("restart is " + number_text(how.restart) + "; it must be from " +
         number_text(kLeastRestart) + " to 1");
  }
  if (!(how.tolerance >= kLeastTolerance && std::isfinite(how.tolerance))) {
    fail("tolerance is " + number_text(how.tolerance) + "; it must be at least " +
         number_text(kLeastTolerance) + " and finite");
  }
  if (how.k < 0) fail("k is " + to_text(how.k) + "; it must be at least 0");
  const int64_t questions = seeds.offsets.size - 1;
  std::vector<std::vector<Scored>> found(static_cast<size_t>(questions));
  WalkResult result;
  result.left.resize(static_cast<size_t>(questions));
  const double visits = 1.0 / (how.restart * how.tolerance);
  if (walk_detail::is_dense(links, how)) {
    walk_detail::walk_densely(links, seeds, how, threads, found, result.left);
  } else if (visits >= static_cast<double>(links.targets.size) &&
             questions >= kLanes * int64_t{resolve_threads(threads, questions)}) {
    // Side by side where questions may meet, and where no thread is left without questions by it.
    walk_all<kLanes>(links, seeds, how, threads, found, result.left);
  } else {
    walk_all<1>(links, seeds, how, threads, found, result.left);
  }
  result.offsets = offsets_of(found);
  for (const auto& list : found) {
    for (const Scored& each : list) {
      result.nodes.push_back(each.node);
      result.scores.push_back(each.score);
    }
  }
  return result;
}

template WalkResult personalised_pagerank(const Links<int32_t>&, const Seeds&, const WalkOptions&,
                                          int);
template WalkResult personalised_pagerank(const Links<int64_t>&, const Seeds&, const WalkOptions&,
                                          int);

}  // namespace pytrace
