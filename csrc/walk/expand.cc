#include <memory>

#include "common/parallel.h"
#include "walk/links.h"
#include "walk/walk.h"

namespace pytrace {
namespace {

using walk_detail::offsets_of;
using walk_detail::row_of;
using walk_detail::target_of;

// One thread's memory: clean between questions.
using Marks = std::vector<uint8_t>;

struct Reached {
  int64_t node;
  int64_t hop;
  int64_t parent;
};

template <typename Target>
void expand_question(const Links<Target>& links, const Seeds& sources, const ExpandOptions& how,
                     int64_t question, Marks& marks, std::vector<Reached>& order) {
  struct Cleaner {
    Marks& marks;
    const std::vector<Reached>& order;
    ~Cleaner() {
      for (const Reached& each : order) marks[static_cast<size_t>(each.node)] = 0;
    }
  } const cleaner{marks, order};
  const auto reach = [&](int64_t node, int64_t hop, int64_t parent) {
    uint8_t& reached = marks[static_cast<size_t>(node)];
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
    const walk_detail::Row row = row_of(links, from.node);
    for (int64_t link = row.begin; link < row.end; ++link) {
      reach(target_of(links, link), from.hop + 1, from.node);
    }
  }
}

}  // namespace

template <typename Target>
ExpandResult expand_links(const Links<Target>& links, const Seeds& sources,
                          const ExpandOptions& how, int threads) {
  walk_detail::require_batch(links, sources);
  if (how.hops < 0) fail("hops is " + to_text(how.hops) + "; it must be at least 0");
  if (how.budget < 0) fail("budget is " + to_text(how.budget) + "; it must be at least 0");
  const int64_t questions = sources.offsets.size - 1;
  std::vector<std::vector<Reached>> order(static_cast<size_t>(questions));
  std::vector<Marks> marks(static_cast<size_t>(resolve_threads(threads, questions)));
  parallel_for(questions, 1, threads, [&](int64_t begin, int64_t end, int thread) {
    Marks& own = marks[static_cast<size_t>(thread)];
    own.resize(static_cast<size_t>(links.nodes()));
    for (int64_t question = begin; question < end; ++question) {
      expand_question(links, sources, how, question, own, order[static_cast<size_t>(question)]);
    }
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

template ExpandResult expand_links(const Links<int32_t>&, const Seeds&, const ExpandOptions&, int);
template ExpandResult expand_links(const Links<int64_t>&, const Seeds&, const ExpandOptions&, int);

}  // namespace pytrace
