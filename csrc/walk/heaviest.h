// The heaviest nodes of a question.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pytrace::walk_detail {

struct Scored {
  int64_t node;
  double score;
};

// Keeps the k heaviest of all that are added; of equal scores the lower node.
class Heaviest {
 public:
  explicit Heaviest(size_t k) : k_(k) {}

  void add(const Scored& each) {
    if (each.score < least_) return;
    list_.push_back(each);
    if (list_.size() < 2 * k_ + 64) return;
    const auto end = list_.begin() + static_cast<std::ptrdiff_t>(k_);
    std::nth_element(list_.begin(), end, list_.end(), heavier);
    least_ = list_[k_].score;
    list_.resize(k_);
  }

  // What is lighter would not be kept.
  double least() const { return least_; }

  std::vector<Scored> sorted() {
    const size_t k = std::min(k_, list_.size());
    std::partial_sort(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(k), list_.end(),
                      heavier);
    return {list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(k)};
  }

 private:
  static bool heavier(const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.node < b.node;
  }

  size_t k_;
  double least_ = 0.0;
  std::vector<Scored> list_;
};

}  // namespace pytrace::walk_detail
