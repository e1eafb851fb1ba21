#include "spans/spans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/parallel.h"
#include "common/views.h"

namespace pytrace {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
// Multiply-adds of one chunk of windows, some 50 us.
constexpr double kLeastWork = 1 << 18;
// What an exponential costs, in multiply-adds.
constexpr double kExpWork = 32;

struct FoundSpan {
  double score;
  int32_t first;
  int32_t last;
};

bool better_span(const FoundSpan& a, const FoundSpan& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.first != b.first ? a.first < b.first : a.last < b.last;
}

struct TokenLogit {
  double logit;
  int32_t token;
};

bool better_token(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Keeps the `count` best, in order.
void keep_best(std::vector<TokenLogit>* tokens, int64_t count) {
  const auto size = static_cast<int64_t>(tokens->size());
  const auto middle = tokens->begin() + std::min(count, size);
  std::partial_sort(tokens->begin(), middle, tokens->end(), better_token);
  tokens->erase(middle, tokens->end());
}

// In a fixed number of lanes, so that every processor adds up in the same order.
float product(const float* a, const float* b, int64_t size) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  int64_t d = 0;
  for (; d + kLanes <= size; d += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[d + lane] * b[d + lane];
  }
  for (int64_t lane = 0; d + lane < size; ++lane) sums[lane] += a[d + lane] * b[d + lane];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// Finds the spans of one window after another. Logits and owners are copied before they are
// compared: another thread may write to the arrays, and a sort must not see that.
class SpanSearch {
 public:
  SpanSearch(const SpanWindows& input, const SpanLimits& limits)
      : input_(input), limits_(limits), root_(std::sqrt(static_cast<double>(input.width))) {}

  // The best spans of a window, in order.
  const std::vector<FoundSpan>& find(int64_t window) {
    found_.clear();
    if (input_.tokens == 0 || limits_.top == 0) return found_;
    starts_ = input_.starts + window * input_.tokens;
    ends_ = input_.ends + window * input_.tokens;
    pairs_ = input_.pairs + window * input_.tokens * 2 * input_.width;
    offsets_ = input_.offsets + window * input_.tokens * 2;
    const double none = starts_[0];
    if (!std::isfinite(none)) return found_;
    group_by_passage(input_.owners + window * input_.tokens);
    for (const TokenLogit& start : best_starts()) {
      if (full() && start.logit - none < worst_) break;
      add_spans(start, none);
    }
    std::sort(found_.begin(), found_.end(), better_span);
    return found_;
  }

 private:
  // Lists the tokens of passages, passage by passage, each in ascending order.
  void group_by_passage(const int32_t* owners) {
    members_.clear();
    for (int64_t token = 0; token < input_.tokens; ++token) {
      const int32_t owner = owners[token];
      if (owner >= 0) members_.push_back({owner, static_cast<int32_t>(token)});
    }
    const auto earlier = [](const Member& a, const Member& b) {
      return a.owner != b.owner ? a.owner < b.owner : a.token < b.token;
    };
    if (!std::is_sorted(members_.begin(), members_.end(), earlier))
      std::sort(members_.begin(), members_.end(), earlier);
    places_.resize(static_cast<size_t>(input_.tokens));
    for (size_t i = 0; i < members_.size(); ++i)
      places_[static_cast<size_t>(members_[i].token)] = i;
  }

  const std::vector<TokenLogit>& best_starts() {
    chosen_.clear();
    for (const Member& member : members_) {
      const double logit = starts_[member.token];
      if (std::isfinite(logit)) chosen_.push_back({logit, member.token});
    }
    const int64_t top = limits_.top;
    keep_best(&chosen_, top > input_.tokens / 4 ? input_.tokens : 4 * top);
    return chosen_;
  }

  // Adds the best spans that begin with a token, and keeps the best of all.
  void add_spans(const TokenLogit& start, double none) {
    const int64_t first = start.token;
    const float* const vector = pairs_ + first * 2 * input_.width;
    double largest = kNothing;
    logits_.clear();
    const size_t place = places_[static_cast<size_t>(first)];
    for (size_t i = place; i < members_.size() && members_[i].owner == members_[place].owner; ++i) {
      const int64_t token = members_[i].token;
      const float* const other = pairs_ + (2 * token + 1) * input_.width;
      double logit = ends_[token];
      if (input_.width > 0) logit += product(vector, other, input_.width) / root_;
      if (!std::isfinite(logit)) logit = kNothing;
      logits_.push_back({logit, members_[i].token});
      largest = std::max(largest, logit);
    }
    if (largest == kNothing) return;
    double sum = 0;
    for (const TokenLogit& end : logits_) sum += std::exp(end.logit - largest);
    const double log_sum = std::log(sum);
    const auto score = [&](const TokenLogit& end) {
      return start.logit + (end.logit - largest - log_sum) - none;
    };
    allowed_.clear();
    for (const TokenLogit& end : logits_) {
      if (end.token - first >= limits_.max_tokens) break;
      const int64_t characters = int64_t{offsets_[2 * end.token + 1]} - offsets_[2 * first];
      if (characters > limits_.max_characters || end.logit == kNothing) continue;
      if (!full() || score(end) >= worst_) allowed_.push_back(end);
    }
    keep_best(&allowed_, limits_.top);
    for (const TokenLogit& end : allowed_) found_.push_back({score(end), start.token, end.token});
    if (full()) {
      const auto last = found_.begin() + limits_.top - 1;
      std::nth_element(found_.begin(), last, found_.end(), better_span);
      worst_ = last->score;
      found_.erase(last + 1, found_.end());
    }
  }

  bool full() const { return static_cast<int64_t>(found_.size()) >= limits_.top; }

  struct Member {
    int32_t owner;
    int32_t token;
  };

  const SpanWindows& input_;
  const SpanLimits& limits_;
  const double root_;
  const float* starts_ = nullptr;
  const float* ends_ = nullptr;
  const float* pairs_ = nullptr;
  const int32_t* offsets_ = nullptr;
  std::vector<Member> members_;  // tokens of passages
  std::vector<size_t> places_;   // of each such token among the members
  std::vector<TokenLogit> chosen_, logits_, allowed_;
  std::vector<FoundSpan> found_;
  double worst_ = kNothing;  // of the spans found, once there are `top`
};

}  // namespace

void top_spans(const SpanWindows& input, const SpanLimits& limits, int threads, float* scores,
               int32_t* first, int32_t* last) {
  if (input.tokens > std::numeric_limits<int32_t>::max()) {
    fail("starts has " + to_text(input.tokens) +
         " tokens per window; int32 counts up to 2147483647");
  }
  const auto tokens = static_cast<double>(input.tokens);
  const double starts = std::min(4 * static_cast<double>(limits.top), tokens);
  const double work = 1 + starts * tokens / 2 * (static_cast<double>(input.width) + kExpWork);
  const int64_t chunk = 1 + static_cast<int64_t>(kLeastWork / work);
  parallel_for(input.windows, chunk, threads, [&](int64_t begin, int64_t end, int) {
    SpanSearch search(input, limits);
    for (int64_t window = begin; window < end; ++window) {
      const std::vector<FoundSpan>& found = search.find(window);
      int64_t at = window * limits.top;
      std::fill_n(scores + at, limits.top, -std::numeric_limits<float>::infinity());
      std::fill_n(first + at, limits.top, -1);
      std::fill_n(last + at, limits.top, -1);
      for (const FoundSpan& span : found) {
        constexpr double kLargest = std::numeric_limits<float>::max();
        scores[at] = static_cast<float>(std::clamp(span.score, -kLargest, kLargest));
        first[at] = span.first;
        last[at] = span.last;
        ++at;
      }
    }
  });
}

}  // namespace pytrace
