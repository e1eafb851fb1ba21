// What walks and expansion share: links that are checked where they are read.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/views.h"
#include "walk/walk.h"

namespace pytrace::walk_detail {

// The links of one node.
struct Row {
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

// Messages stand apart, so that what is read link by link stays small enough to be inlined.
[[noreturn]] inline __attribute__((noinline)) void fail_row(int64_t node, Row row, int64_t links) {
  fail("the links of node " + to_text(node) + " lie from " + to_text(row.begin) + " to " +
       to_text(row.end) + ", but there are " + to_text(links) + " links");
}

[[noreturn]] inline __attribute__((noinline)) void fail_target(int64_t link, int64_t target,
                                                               int64_t nodes) {
  fail("targets[" + to_text(link) + "] is " + to_text(target) + ", but there are " +
       to_text(nodes) + " nodes");
}

[[noreturn]] inline __attribute__((noinline)) void fail_weight(const std::string& name,
                                                               int64_t index, double weight) {
  fail(name + "[" + to_text(index) + "] is " + number_text(weight) +
       "; it must be finite and at least 0");
}

template <typename Target>
Row row_of(const Links<Target>& links, int64_t node) {
  const Row row{links.offsets[node], links.offsets[node + 1]};
  if (row.begin < 0 || row.end < row.begin || row.end > links.targets.size)
    fail_row(node, row, links.targets.size);
  return row;
}

template <typename Target>
int64_t target_of(const Links<Target>& links, int64_t link) {
  const auto target = static_cast<int64_t>(links.targets[link]);
  if (target < 0 || target >= links.nodes()) fail_target(link, target, links.nodes());
  return target;
}

// The sum of a row's weights.
template <typename Target>
double weight_of(const Links<Target>& links, const Row& row) {
  if (links.weights.size == 0) return static_cast<double>(row.size());
  const float* weights = links.weights.data;
  double total = 0.0;
  float least = 0.0F;
  for (int64_t link = row.begin; link < row.end; ++link) {
    least = weights[link] < least ? weights[link] : least;
    total += static_cast<double>(weights[link]);
  }
  // The sum tells of NaN and infinity, too; which weight it is matters only then.
  for (int64_t link = row.begin; link < row.end && !(least >= 0.0F && std::isfinite(total));
       ++link) {
    const float weight = weights[link];
    if (!(weight >= 0.0F && weight <= std::numeric_limits<float>::max()))
      fail_weight("weights", link, static_cast<double>(weight));
  }
  return total;
}

inline double seed_weight(const Seeds& seeds, int64_t i) {
  return seeds.weights.size == 0 ? 1.0 : seeds.weights[i];
}

inline double seed_total(const Seeds& seeds, int64_t question) {
  double total = 0.0;
  for (int64_t i = seeds.offsets[question]; i < seeds.offsets[question + 1]; ++i)
    total += seed_weight(seeds, i);
  if (!std::isfinite(total))
    fail("the seed_weights of question " + to_text(question) + " add up to infinity");
  return total;
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
      fail_weight("seed_weights", i, seeds.weights[i]);
    }
  }
}

template <typename Item>
std::vector<int64_t> offsets_of(const std::vector<std::vector<Item>>& lists) {
  std::vector<int64_t> offsets{0};
  for (const auto& list : lists) {
    offsets.push_back(offsets.back() + static_cast<int64_t>(list.size()));
  }
  return offsets;
}

}  // namespace pytrace::walk_detail
