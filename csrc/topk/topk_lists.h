// The best scores of some queries so far, as keys that order by score and then by index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "topk/topk_select.h"

namespace pytrace {

// A score and an index as one number: the smaller, the better. Scores are finite and never -0.
inline uint64_t pack_key(float score, uint32_t index) {
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  const uint32_t falling = (bits & 0x80000000u) != 0 ? bits : ~bits & 0x7fffffffu;
  return (uint64_t{falling} << 32) | index;
}

inline float score_of_key(uint64_t key) {
  const auto falling = static_cast<uint32_t>(key >> 32);
  const uint32_t bits = (falling & 0x80000000u) != 0 ? falling : ~falling & 0x7fffffffu;
  float score;
  std::memcpy(&score, &bits, sizeof score);
  return score;
}

// The best of one query: the best k are among its keys.
struct BestList {
  uint64_t* keys = nullptr;
  int64_t count = 0;
  // Only higher scores can still enter; equal ones come with a higher index.
  float threshold = -std::numeric_limits<float>::infinity();

  void prune(int64_t k) {
    if (count < k) return;
    std::nth_element(keys, keys + (k - 1), keys + count);
    count = k;
    threshold = score_of_key(keys[k - 1]);
  }
};

// The lists of some queries, in one allocation.
class BestLists {
 public:
  BestLists(int64_t queries, int64_t k, int64_t available)
      : k_(k),
        capacity_(capacity(k, available)),
        keys_(new uint64_t[static_cast<size_t>(queries * capacity_)]) {
    lists_.resize(static_cast<size_t>(queries));
    for (int64_t q = 0; q < queries; ++q)
      lists_[static_cast<size_t>(q)].keys = keys_.get() + q * capacity_;
  }

  // Room for k and as many newcomers, so that a selection costs each of them little.
  static int64_t capacity(int64_t k, int64_t available) {
    return k >= available ? available : std::min(available, std::max(2 * k, k + 32));
  }

  BestList& operator[](int64_t query) { return lists_[static_cast<size_t>(query)]; }

  void offer_one(BestList& best, float score, int64_t index) const {
    if (!(score > best.threshold)) return;
    if (best.count == capacity_) {
      best.prune(k_);
      if (!(score > best.threshold)) return;
    }
    best.keys[best.count++] = pack_key(score, static_cast<uint32_t>(index));
  }

  // `first` is the index that scores[0] belongs to; -inf stands for an item that is not there.
  // There are at most kMaxSelected, in an array with room for them rounded up to 32 that may be
  // written to.
  void offer(const SelectKernels& kernels, int64_t query, float* scores, int64_t count,
             int64_t first) {
    BestList& best = lists_[static_cast<size_t>(query)];
    if (best.count == 0 && k_ < count) return begin(kernels, best, scores, count, first);
    int32_t positions[kMaxSelected + 16];
    const int64_t above = kernels.find_above(scores, count, best.threshold, positions);
    for (int64_t i = 0; i < above; ++i) offer_one(best, scores[positions[i]], first + positions[i]);
  }

 private:
  // The first scores of a list would nearly all enter: chosen at once, they cost a tenth.
  void begin(const SelectKernels& kernels, BestList& best, float* scores, int64_t count,
             int64_t first) const {
    float chosen[kMaxSelected];
    int32_t positions[kMaxSelected];
    best.count = kernels.select(scores, count, k_, chosen, positions);
    for (int64_t i = 0; i < best.count; ++i)
      best.keys[i] = pack_key(chosen[i], static_cast<uint32_t>(first + positions[i]));
    if (best.count == k_) best.threshold = chosen[k_ - 1];
  }

  int64_t k_;
  int64_t capacity_;
  std::unique_ptr<uint64_t[]> keys_;
  std::vector<BestList> lists_;
};

}  // namespace pytrace
