#include "cover/cover.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "cover/cover_bits.h"
#include "cover/cover_search.h"

namespace pytrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void report_uncovered(const CoverProblem& problem, const std::vector<Word>& covered,
                      CoverResult* result) {
  for (int64_t f = 0; f < problem.features; ++f) {
    if (!has_bit(covered.data(), f)) result->uncovered.push_back(f);
  }
}

// Drops sets that the others make needless, heaviest first, then highest index first.
void drop_needless(const CoverProblem& problem, std::vector<int64_t>* chosen) {
  const auto weight = [&](int64_t s) {
    return problem.weights != nullptr ? problem.weights[s] : 1.0;
  };
  std::vector<int> times(static_cast<size_t>(problem.features));
  const auto each = [&](int64_t s, const auto& body) {
    each_bit(problem.members + s * problem.words, problem.words, body);
  };
  for (int64_t s : *chosen) {
    each(s, [&](int64_t f) { return ++times[static_cast<size_t>(f)], true; });
  }
  std::vector<int64_t> order = *chosen;
  std::sort(order.begin(), order.end(), [&](int64_t s, int64_t t) {
    return weight(s) != weight(t) ? weight(s) > weight(t) : s > t;
  });
  for (int64_t s : order) {
    bool needed = false;
    each(s, [&](int64_t f) { return !(needed = times[static_cast<size_t>(f)] == 1); });
    if (needed) continue;
    each(s, [&](int64_t f) { return --times[static_cast<size_t>(f)], true; });
    chosen->erase(std::find(chosen->begin(), chosen->end(), s));
  }
}

}  // namespace

WeightSteps weight_steps(const CoverProblem& problem) {
  if (problem.weights == nullptr) return {true, 1.0};
  WeightSteps steps;
  double total = 0.0;
  int64_t divisor = 0;
  for (int64_t s = 0; s < problem.sets && steps.whole; ++s) {
    const double weight = problem.weights[s];
    total += weight;
    steps.whole = weight == std::floor(weight) && total < 9e15;
    if (steps.whole) divisor = std::gcd(divisor, static_cast<int64_t>(weight));
  }
  steps.step = steps.whole ? static_cast<double>(std::max<int64_t>(divisor, 1)) : 0.0;
  return steps;
}

void require_weights(Span<const double> weights, int64_t sets) {
  if (weights.size != sets) {
    fail("there are " + to_text(weights.size) + " weights for " + to_text(sets) + " sets");
  }
  for (int64_t s = 0; s < sets; ++s) {
    if (weights[s] >= 0.0 && weights[s] <= 1e15) continue;
    fail("weight " + to_text(s) + " is " + number_text(weights[s]) +
         "; weights must be between 0 and 1e15");
  }
}

CoverResult greedy_cover(const CoverProblem& problem) {
  CoverResult result;
  std::vector<Word> rest = coverable(problem);
  report_uncovered(problem, rest, &result);
  const int64_t words = problem.words;
  // Dual fitting: a feature pays its share of the set that covers it; scaled by H(largest set) no
  // set is overpaid.
  int largest = 0;
  for (int64_t s = 0; s < problem.sets; ++s) {
    largest = std::max(largest, count(problem.members + s * words, words));
  }
  // A set's price only rises as features get covered, so the cheapest is found by looking again at
  // the head of a heap.
  using Offer = std::pair<double, int64_t>;
  std::vector<Offer> offers;
  const auto price = [&](int64_t s) {
    int fresh = 0;
    for (int64_t w = 0; w < words; ++w) {
      fresh += count_bits(problem.members[s * words + w] & rest[static_cast<size_t>(w)]);
    }
    const double weight = problem.weights != nullptr ? problem.weights[s] : 1.0;
    return fresh > 0 ? weight / fresh : kInfinity;
  };
  const auto take = [&](int64_t s) {
    result.sets.push_back(s);
    result.weight += problem.weights != nullptr ? problem.weights[s] : 1.0;
    for (int64_t w = 0; w < words; ++w) {
      rest[static_cast<size_t>(w)] &= ~problem.members[s * words + w];
    }
  };
  // Equal weights and one word a set: the cheapest is the one with most new features.
  while (words == 1 && problem.weights == nullptr && rest[0] != 0) {
    int64_t best = 0;
    int most = 0;
    for (int64_t s = 0; s < problem.sets; ++s) {
      const int fresh = count_bits(problem.members[s] & rest[0]);
      if (fresh > most) {
        most = fresh;
        best = s;
      }
    }
    take(best);
  }
  constexpr int64_t kFew = 64;  // a heap pays later
  while (problem.sets <= kFew && !empty(rest.data(), words)) {
    Offer best{kInfinity, 0};
    for (int64_t s = 0; s < problem.sets; ++s) best = std::min(best, Offer{price(s), s});
    take(best.second);
  }
  if (!empty(rest.data(), words)) {
    for (int64_t s = 0; s < problem.sets; ++s) {
      if (const double now = price(s); now < kInfinity) offers.emplace_back(now, s);
    }
    std::make_heap(offers.begin(), offers.end(), std::greater<>());
  }
  while (!empty(rest.data(), words)) {
    std::pop_heap(offers.begin(), offers.end(), std::greater<>());
    const Offer offer = offers.back();
    offers.pop_back();
    const int64_t s = offer.second;
    if (const double now = price(s); now > offer.first) {
      if (now == kInfinity) continue;
      offers.emplace_back(now, s);
      std::push_heap(offers.begin(), offers.end(), std::greater<>());
      continue;
    }
    take(s);
  }
  double harmonic = 0.0;
  for (int k = 1; k <= largest; ++k) harmonic += 1.0 / k;
  result.bound = harmonic > 0.0 ? result.weight / harmonic * (1.0 - 1e-12) : 0.0;
  result.optimal = result.weight == 0.0 || largest <= 1;
  if (result.optimal) result.bound = result.weight;
  return result;
}

CoverResult minimum_cover(const CoverProblem& problem, const CoverLimits& limits) {
  CoverResult result = greedy_cover(problem);
  drop_needless(problem, &result.sets);
  const auto finish = [&] {
    drop_needless(problem, &result.sets);
    std::sort(result.sets.begin(), result.sets.end());
    result.weight = 0.0;
    for (int64_t s : result.sets) {
      result.weight += problem.weights != nullptr ? problem.weights[s] : 1.0;
    }
  };
  const std::vector<Word> features = coverable(problem);
  FoundCover found;
  if (problem.sets <= 64 && problem.words == 1) {
    found = search_small_cover(problem, features[0], result.sets);
    result.sets = found.sets;
  }
  if (!found.optimal) found = search_cover(problem, limits, features, result.sets);
  result.sets = std::move(found.sets);
  finish();
  result.optimal = found.optimal || found.bound >= result.weight;
  result.bound = result.optimal ? result.weight : found.bound;
  result.nodes = found.nodes;
  return result;
}

ScopeResult scope_cover(const ScopeProblem& problem, bool recheck) {
  ScopeResult result;
  std::vector<char> taken(static_cast<size_t>(problem.snippets));
  const auto take = [&](int64_t i) {
    if (taken[static_cast<size_t>(i)] != 0) return;
    taken[static_cast<size_t>(i)] = 1;
    result.chosen.push_back(i);
  };
  for (int64_t i = 0; i < problem.snippets; ++i) {
    if (problem.intent[i] != 0) {
      take(i);
      result.intent = true;
    }
  }
  const auto phase = [&](const uint8_t* judgements, int64_t features,
                         std::vector<int64_t>* missing) {
    const auto covered = [&](int64_t f) {
      return std::any_of(result.chosen.begin(), result.chosen.end(),
                         [&](int64_t i) { return judgements[i * features + f] != 0; });
    };
    std::vector<int64_t> uncovered;
    for (int64_t f = 0; f < features; ++f) {
      if (!covered(f)) uncovered.push_back(f);
    }
    for (int64_t f : uncovered) {
      if (recheck && covered(f)) continue;
      int64_t first = 0;
      while (first < problem.snippets && judgements[first * features + f] == 0) ++first;
      if (first < problem.snippets) {
        take(first);
      } else {
        missing->push_back(f);
      }
    }
  };
  phase(problem.relations, problem.relation_count, &result.uncovered_relations);
  phase(problem.nodes, problem.node_count, &result.uncovered_nodes);
  return result;
}

}  // namespace pytrace
