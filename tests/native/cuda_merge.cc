// Compares the merge of lists that every top-k on a card ends in with a sort on the host, on the
// emulated card. Blocks look at 256 keys at a time and stop where falling lists cannot pass any
// more, so the best keys stand in the first list, a middle one, the last, or nowhere in particular.
// Exits with 1 and a sentence where something differs. PYTRACE_EMULATION_SEED decides the keys too.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/runtime.h"
#include "cuda/topk_merge.h"
#include "cuda_on_card.h"

namespace {

using pytrace::cuda::Context;
using pytrace::cuda::MergeJob;
using Keys = std::vector<unsigned long long>;

std::mt19937_64& dice() {
  static const char* const seed = std::getenv("PYTRACE_EMULATION_SEED");
  static std::mt19937_64 engine(seed == nullptr ? 0u : static_cast<unsigned>(std::atoi(seed)));
  return engine;
}

// k falling keys, zeros behind them. Those that are `good` are as many as can be, and better than
// any other.
Keys falling(int64_t k, bool good) {
  const uint64_t filled =
      good ? static_cast<uint64_t>(k) : dice()() % (static_cast<uint64_t>(k) + 1);
  Keys keys(static_cast<size_t>(k));
  for (uint64_t i = 0; i < filled; ++i) keys[i] = dice()() >> 1 | uint64_t{good} << 63;
  std::sort(keys.begin(), keys.end(), std::greater<>());
  return keys;
}

void append(Keys& to, const Keys& keys) { to.insert(to.end(), keys.begin(), keys.end()); }

// Whether it gives the k best of what a query had and of its lists. Queries' lists lie between each
// other's, as tiles leave them; the second query has none. `best_at`: the list that has the best.
bool merges(int64_t lists, int64_t k, int64_t best_at, Context& context) {
  constexpr size_t kQueries = 3;
  Keys all;
  Keys best;
  std::vector<MergeJob> jobs;
  std::vector<Keys> of_query(kQueries);
  for (size_t query = 0; query < kQueries; ++query) {
    of_query[query] = falling(k, false);
    append(best, of_query[query]);
    jobs.push_back({static_cast<int64_t>(query), query == 1 ? 0 : lists, kQueries});
  }
  for (int64_t list = 0; list < lists; ++list) {
    for (size_t query = 0; query < kQueries; ++query) {
      const Keys keys = falling(k, list == best_at);
      append(all, keys);
      if (query != 1) append(of_query[query], keys);
    }
  }
  Keys wanted;
  for (Keys& keys : of_query) {
    std::sort(keys.begin(), keys.end(), std::greater<>());
    keys.resize(static_cast<size_t>(k));
    append(wanted, keys);
  }
  const OnCard lists_there = on_card(all);
  const OnCard jobs_there = on_card(jobs);
  const OnCard best_there = on_card(best);
  pytrace::cuda::merge_lists(lists_there.at<unsigned long long>(), jobs_there.at<MergeJob>(),
                             kQueries, k, best_there.at<unsigned long long>(), context.stream());
  context.finish();
  pytrace::cuda::require(cudaMemcpyAsync(best.data(), best_there.at<void>(), best.size() * 8,
                                         cudaMemcpyDeviceToHost, nullptr),
                         "the test's copy");
  return best == wanted;
}

}  // namespace

int main() {
  Context context(0);
  int checked = 0;
  int faults = 0;
  constexpr std::pair<int64_t, int64_t> kShapes[] = {
      {1, 1}, {1, 30}, {3, 5}, {255, 2}, {257, 4}, {900, 7}, {1500, 1}, {5, 300}, {2, 1000}};
  for (const auto& [lists, k] : kShapes) {
    for (const int64_t best_at : {int64_t{-1}, int64_t{0}, lists / 2, lists - 1}) {
      ++checked;
      std::string wrong;
      try {
        if (!merges(lists, k, best_at, context)) wrong = "the keys are not the best";
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      if (wrong.empty()) continue;
      std::printf("%d lists of %d keys, the best in list %d: %s\n", static_cast<int>(lists),
                  static_cast<int>(k), static_cast<int>(best_at), wrong.c_str());
      ++faults;
    }
  }
  std::printf("%d cases, %d faults\n", checked, faults);
  return faults == 0 ? 0 : 1;
}
