// Minimum covers beside a search of all choices of sets.
#include "cover/cover.h"

#include <vector>

#include "fuzzing.h"

namespace {

using pytrace::CoverProblem;
using pytrace::CoverResult;

struct Check {
  CoverProblem problem;
  std::vector<uint64_t> wanted;  // what any set has

  bool covers(const std::vector<int64_t>& sets) const {
    for (int64_t w = 0; w < problem.words; ++w) {
      uint64_t seen = 0;
      for (int64_t s : sets) seen |= problem.members[s * problem.words + w];
      if (seen != wanted[static_cast<size_t>(w)]) return false;
    }
    return true;
  }

  double weight(const std::vector<int64_t>& sets) const {
    double total = 0.0;
    for (int64_t s : sets) total += problem.weights == nullptr ? 1.0 : problem.weights[s];
    return total;
  }

  void holds(const CoverResult& result) const {
    for (int64_t s : result.sets) FUZZ_CHECK(0 <= s && s < problem.sets);
    FUZZ_CHECK(covers(result.sets));
    FUZZ_CHECK(result.weight == weight(result.sets));
    FUZZ_CHECK(result.bound <= result.weight + 1e-9);
    int64_t missing = 0;
    for (int64_t f = 0; f < problem.features; ++f) {
      missing += (wanted[static_cast<size_t>(f / 64)] >> (f % 64) & 1) == 0;
    }
    FUZZ_CHECK(static_cast<int64_t>(result.uncovered.size()) == missing);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const int64_t sets = data.ConsumeIntegralInRange<int64_t>(0, 11);
  const int64_t features = data.ConsumeIntegralInRange<int64_t>(0, 140);
  const int64_t words = (features + 63) / 64;
  const int density = data.ConsumeIntegralInRange<int>(1, 255);
  std::vector<uint64_t> members(static_cast<size_t>(sets * words));
  Check check;
  check.wanted.assign(static_cast<size_t>(words), 0);
  for (int64_t s = 0; s < sets; ++s) {
    for (int64_t f = 0; f < features; ++f) {
      if (data.ConsumeIntegral<uint8_t>() >= density) continue;
      members[static_cast<size_t>(s * words + f / 64)] |= uint64_t{1} << (f % 64);
      check.wanted[static_cast<size_t>(f / 64)] |= uint64_t{1} << (f % 64);
    }
  }
  std::vector<double> weights(static_cast<size_t>(sets));
  for (double& weight : weights) weight = data.ConsumeIntegralInRange<int>(0, 6);
  const bool weighted = data.ConsumeBool();
  check.problem = {members.data(), sets, features, words, weighted ? weights.data() : nullptr};

  const CoverResult least = pytrace::minimum_cover(check.problem, pytrace::CoverLimits{});
  check.holds(least);
  FUZZ_CHECK(least.optimal);
  const CoverResult greedy = pytrace::greedy_cover(check.problem);
  check.holds(greedy);
  FUZZ_CHECK(least.weight <= greedy.weight && greedy.bound <= least.weight + 1e-9);
  for (int64_t choice = 0; choice < int64_t{1} << sets; ++choice) {
    std::vector<int64_t> chosen;
    for (int64_t s = 0; s < sets; ++s) {
      if ((choice >> s & 1) != 0) chosen.push_back(s);
    }
    if (check.covers(chosen)) FUZZ_CHECK(check.weight(chosen) >= least.weight);
  }
  return 0;
}
