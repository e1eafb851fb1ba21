#include "walk/walk.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "common/parallel.h"

namespace pytrace {
namespace {

// The links of one node.
struct Row {
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

template <typename Target>
Row row_of(const Links<Target>& links, int64_t node) {
  const Row row{links.offsets[node], links.offsets[node + 1]};
  if (row.begin < 0 || row.end < row.begin || row.end > links.targets.size) {
    fail("the links of node " + to_text(node) + " lie from " + to_text(row.begin) + " to " +
         to_text(row.end) + ", but there are " + to_text(links.targets.size) + " links");
  }
  return row;
}

template <typename Target>
int64_t target_of(const Links<Target>& links, int64_t link) {
  const auto target = static_cast<int64_t>(links.targets[link]);
  if (target < 0 || target >= links.nodes()) {
    fail("targets[" + to_text(link) + "] is " + to_text(target) + ", but there are " +
         to_text(links.nodes()) + " nodes");
  }
  return target;
}

template <typename Target>
double weight_of(const Links<Target>& links, int64_t link) {
  if (links.weights.size == 0) return 1.0;
  const float weight = links.weights[link];
  if (!(weight >= 0.0F && std::isfinite(weight))) {
    fail("weights[" + to_text(link) + "] is " + number_text(weight) +
         "; it must be finite and at least 0");
  }
  return weight;
}

template <typename Target>
void require_batch(const Links<Target>& links, const Seeds& seeds) {
  if (links.offsets.size < 1) fail("offsets is empty; it needs at least the value 0");
  if (links.weights.size > 0 && links.weights.size != links.targets.size) {
    fail("weights has " + to_text(links.weights.size) + " values, but there are " +
         to_text(links.targets.size) + " targets");
  }
  require_offsets(seeds.offsets, seeds.nodes.size, "seed_offsets");
  if (seeds.weights.size > 0 && seeds.weights.size != seeds.nodes.size) {
    fail("seed_weights has " + to_text(seeds.weights.size) + " values, but there are " +
         to_text(seeds.nodes.size) + " seeds");
  }
  for (int64_t i = 0; i < seeds.nodes.size; ++i) {
    if (seeds.nodes[i] < 0 || seeds.nodes[i] >= links.nodes()) {
      fail("seeds[" + to_text(i) + "] is " + to_text(seeds.nodes[i]) + ", but there are " +
           to_text(links.nodes()) + " nodes");
    }
  }
  for (int64_t i = 0; i < seeds.weights.size; ++i) {
    if (!(seeds.weights[i] >= 0.0 && std::isfinite(seeds.weights[i]))) {
      fail("seed_weights[" + to_text(i) + "] is " + number_text(seeds.weights[i]) +
           "; it must be finite and at least 0");
    }
  }
}

// What a node holds during a walk: what it keeps, what waits to be pushed, and whether it queues.
struct Mass {
  double kept = 0.0;
  double waiting = 0.0;
  bool known = false;
  bool queued = false;
};

// One thread's memory: as large as the graph, and clean between questions.
struct WalkMemory {
  explicit WalkMemory(int64_t nodes) : masses(static_cast<size_t>(nodes)) {}

  std::vector<Mass> masses;
  std::vector<int64_t> touched;
  std::vector<int64_t> queue;  // of those that are pushed now
  std::vector<int64_t> next;   // and of those after them
};

struct Found {
  int64_t node;
  double score;
};

template <typename Target>
class Walk {
 public:
  Walk(const Links<Target>& links, const WalkOptions& how, WalkMemory& memory)
      : links_(links), how_(how), memory_(memory) {}

  // Walks one question; returns the mass that was left waiting.
  double run(const Seeds& seeds, int64_t question, std::vector<Found>& found) {
    const Cleaner cleaner{memory_};
    const int64_t begin = seeds.offsets[question], end = seeds.offsets[question + 1];
    double total = 0.0;
    for (int64_t i = begin; i < end; ++i) total += weight(seeds, i);
    if (!(total > 0.0)) return 0.0;
    if (!std::isfinite(total))
      fail("the seed_weights of question " + to_text(question) + " add up to infinity");
    for (int64_t i = begin; i < end; ++i) receive(seeds.nodes[i], weight(seeds, i) / total);
    // First in, first out: the order in which mass spreads, and few nodes come twice.
    while (!memory_.next.empty()) {
      memory_.queue.swap(memory_.next);
      for (const int64_t node : memory_.queue) push(node);
      memory_.queue.clear();
    }
    return collect(found);
  }

 private:
  // Leaves the memory clean, whatever ends the walk.
  struct Cleaner {
    WalkMemory& memory;
    ~Cleaner() {
      for (const int64_t node : memory.touched) memory.masses[static_cast<size_t>(node)] = Mass{};
      memory.touched.clear();
      memory.queue.clear();
      memory.next.clear();
    }
  };

  static double weight(const Seeds& seeds, int64_t i) {
    return seeds.weights.size == 0 ? 1.0 : seeds.weights[i];
  }

  void receive(int64_t node, double amount) {
    Mass& mass = memory_.masses[static_cast<size_t>(node)];
    if (!mass.known) {
      mass.known = true;
      memory_.touched.push_back(node);
    }
    mass.waiting += amount;
    if (mass.queued) return;
    const int64_t links = links_.offsets[node + 1] - links_.offsets[node];
    if (mass.waiting > how_.tolerance * static_cast<double>(std::max<int64_t>(links, 1))) {
      mass.queued = true;
      memory_.next.push_back(node);
    }
  }

  void push(int64_t node) {
    Mass& mass = memory_.masses[static_cast<size_t>(node)];
    const double waiting = mass.waiting;
    mass.waiting = 0.0;
    mass.queued = false;
    const Row row = row_of(links_, node);
    double total = 0.0;
    for (int64_t link = row.begin; link < row.end; ++link) total += weight_of(links_, link);
    mass.kept += how_.restart * waiting;
    if (!(total > 0.0)) {  // the walk ends here, and starts anew at the seeds
      ended_ += (1.0 - how_.restart) * waiting;
      return;
    }
    const double share = (1.0 - how_.restart) * waiting / total;
    for (int64_t link = row.begin; link < row.end; ++link) {
      const double amount = share * weight_of(links_, link);
      if (amount > 0.0) receive(target_of(links_, link), amount);
    }
  }

  // Walks that start anew at the seeds spread as the first did, so that only the scale changes.
  double collect(std::vector<Found>& found) {
    const double scale = 1.0 / (1.0 - ended_);
    double left = 0.0;
    for (const int64_t node : memory_.touched) {
      const Mass& mass = memory_.masses[static_cast<size_t>(node)];
      left += mass.waiting;
      if (mass.kept > 0.0) found.push_back({node, mass.kept * scale});
    }
    const auto heavier = [](const Found& a, const Found& b) {
      return a.score != b.score ? a.score > b.score : a.node < b.node;
    };
    const size_t k = std::min(found.size(), static_cast<size_t>(how_.k));
    std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(k), found.end(),
                      heavier);
    found.resize(k);
    ended_ = 0.0;
    return left * scale;
  }

  const Links<Target>& links_;
  const WalkOptions& how_;
  WalkMemory& memory_;
  double ended_ = 0.0;
};

// Runs body(question, memory) for all questions, with one memory a thread, made when it is needed.
template <typename Memory, typename Body>
void for_questions(int64_t questions, int64_t nodes, int threads, const Body& body) {
  const int team = resolve_threads(threads, questions);
  std::vector<std::unique_ptr<Memory>> memories(static_cast<size_t>(team));
  parallel_for(questions, 1, threads, [&](int64_t begin, int64_t end, int thread) {
    auto& memory = memories[static_cast<size_t>(thread)];
    if (memory == nullptr) memory = std::make_unique<Memory>(nodes);
    for (int64_t question = begin; question < end; ++question) body(question, *memory);
  });
}

template <typename Item>
std::vector<int64_t> offsets_of(const std::vector<std::vector<Item>>& lists) {
  std::vector<int64_t> offsets{0};
  for (const auto& list : lists) {
    offsets.push_back(offsets.back() + static_cast<int64_t>(list.size()));
  }
  return offsets;
}

struct ExpandMemory {
  explicit ExpandMemory(int64_t nodes) : reached(static_cast<size_t>(nodes)) {}

  std::vector<uint8_t> reached;
};

struct Reached {
  int64_t node;
  int64_t hop;
  int64_t parent;
};

template <typename Target>
void expand_question(const Links<Target>& links, const Seeds& sources, const ExpandOptions& how,
                     int64_t question, ExpandMemory& memory, std::vector<Reached>& order) {
  struct Cleaner {
    ExpandMemory& memory;
    const std::vector<Reached>& order;
    ~Cleaner() {
      for (const Reached& each : order) memory.reached[static_cast<size_t>(each.node)] = 0;
    }
  } const cleaner{memory, order};
  const auto reach = [&](int64_t node, int64_t hop, int64_t parent) {
    uint8_t& reached = memory.reached[static_cast<size_t>(node)];
    if (reached != 0 || static_cast<int64_t>(order.size()) >= how.budget) return;
    order.push_back({node, hop, parent});
    reached = 1;
  };
  for (int64_t i = sources.offsets[question]; i < sources.offsets[question + 1]; ++i) {
    reach(sources.nodes[i], 0, -1);
  }
  for (size_t next = 0; next < order.size(); ++next) {
    const Reached from = order[next];
    if (from.hop == how.hops || static_cast<int64_t>(order.size()) >= how.budget) break;
    const Row row = row_of(links, from.node);
    for (int64_t link = row.begin; link < row.end; ++link) {
      reach(target_of(links, link), from.hop + 1, from.node);
    }
  }
}

}  // namespace

template <typename Target>
WalkResult personalised_pagerank(const Links<Target>& links, const Seeds& seeds,
                                 const WalkOptions& how, int threads) {
  require_batch(links, seeds);
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
  std::vector<std::vector<Found>> found(static_cast<size_t>(questions));
  WalkResult result;
  result.left.resize(static_cast<size_t>(questions));
  for_questions<WalkMemory>(questions, links.nodes(), threads,
                            [&](int64_t question, WalkMemory& memory) {
                              const auto at = static_cast<size_t>(question);
                              Walk<Target> walk(links, how, memory);
                              result.left[at] = walk.run(seeds, question, found[at]);
                            });
  result.offsets = offsets_of(found);
  for (const auto& list : found) {
    for (const Found& each : list) {
      result.nodes.push_back(each.node);
      result.scores.push_back(each.score);
    }
  }
  return result;
}

template <typename Target>
ExpandResult expand_links(const Links<Target>& links, const Seeds& sources,
                          const ExpandOptions& how, int threads) {
  require_batch(links, sources);
  if (how.hops < 0) fail("hops is " + to_text(how.hops) + "; it must be at least 0");
  if (how.budget < 0) fail("budget is " + to_text(how.budget) + "; it must be at least 0");
  const int64_t questions = sources.offsets.size - 1;
  std::vector<std::vector<Reached>> order(static_cast<size_t>(questions));
  for_questions<ExpandMemory>(questions, links.nodes(), threads,
                              [&](int64_t question, ExpandMemory& memory) {
                                expand_question(links, sources, how, question, memory,
                                                order[static_cast<size_t>(question)]);
                              });
  ExpandResult result;
  result.offsets = offsets_of(order);
  for (const auto& list : order) {
    for (const Reached& each : list) {
      result.nodes.push_back(each.node);
      result.hops.push_back(each.hop);
      result.parents.push_back(each.parent);
    }
  }
  return result;
}

template WalkResult personalised_pagerank(const Links<int32_t>&, const Seeds&, const WalkOptions&,
                                          int);
template WalkResult personalised_pagerank(const Links<int64_t>&, const Seeds&, const WalkOptions&,
                                          int);
template ExpandResult expand_links(const Links<int32_t>&, const Seeds&, const ExpandOptions&, int);
template ExpandResult expand_links(const Links<int64_t>&, const Seeds&, const ExpandOptions&, int);

}  // namespace pytrace
