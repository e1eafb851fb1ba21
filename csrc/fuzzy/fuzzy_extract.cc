// One text against many, of which only the best are wanted.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "common/parallel.h"
#include "fuzzy/fuzzy.h"
#include "fuzzy/fuzzy_partial.h"
#include "fuzzy/fuzzy_words.h"

namespace pytrace {
namespace {

using Found = FuzzySearch::Found;

// Fewer choices a thread than this are done before a second thread has begun.
constexpr int64_t kFewChoices = 4096;

// partial_ratio's choices between two looks at the cutoff: enough to fill registers.
constexpr int64_t kChoicesAtOnce = 64;

bool before(const Found& a, const Found& b) {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

// The best choices so far: a heap with the worst of them on top once it is full.
class Best {
 public:
  // `floor`: a score that as many choices as are wanted are known to have, in this list or another.
  Best(double cutoff, int64_t limit, std::atomic<double>* floor)
      : cutoff_(std::max(cutoff, 0.0)), own_(cutoff_), limit_(limit), floor_(floor) {}

  // The least score with which a choice behind all of these comes in: a tie with the last is not
  // enough.
  double cutoff() const { return std::max(own_, floor_->load(std::memory_order_relaxed)); }

  bool full() const { return limit_ >= 0 && static_cast<int64_t>(heap_.size()) >= limit_; }
  bool settled() const { return full() && (limit_ == 0 || heap_.front().score >= 100.0); }

  void put(const Found& found) {
    if (!(found.score >= cutoff_) || limit_ == 0) return;
    if (full()) {
      if (!before(found, heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), before);
      heap_.back() = found;
    } else {
      heap_.push_back(found);
      if (limit_ < 0) return;
    }
    std::push_heap(heap_.begin(), heap_.end(), before);
    if (!full()) return;
    own_ = std::nextafter(heap_.front().score, HUGE_VAL);
    double known = floor_->load(std::memory_order_relaxed);
    while (known < heap_.front().score &&
           !floor_->compare_exchange_weak(known, heap_.front().score, std::memory_order_relaxed)) {
    }
  }

  const std::vector<Found>& found() const { return heap_; }

 private:
  double cutoff_;
  double own_;  // cutoff() as far as this list tells
  int64_t limit_;
  std::atomic<double>* floor_;
  std::vector<Found> heap_;
};

class Scan {
 public:
  virtual ~Scan() = default;
  // Puts the choices into `best`; their indices begin at `first`.
  virtual void run(Span<const Text> choices, int64_t first, Best* best) = 0;
};

class RatioScan : public Scan {
 public:
  // `of_empty`: the score of two empty texts.
  RatioScan(const Text& query, double of_empty) : query_(query), of_empty_(of_empty) {}

  void run(Span<const Text> choices, int64_t first, Best* best) override {
    double cutoff = best->cutoff();
    for (int64_t k = 0; k < choices.size; ++k) {
      const Text& choice = choices[k];
      if (choice.missing) continue;
      const int64_t total = query_.size() + choice.size;
      if (fuzzy_ratio_of(std::min(query_.size(), choice.size), total) < cutoff) continue;
      const double score = total == 0 ? of_empty_ : fuzzy_ratio_of(query_.lcs(choice), total);
      if (score < cutoff) continue;
      best->put({score, first + k});
      if (best->settled()) return;
      cutoff = best->cutoff();
    }
  }

 private:
  LcsQuery query_;
  double of_empty_;
};

class PartialScan : public Scan {
 public:
  explicit PartialScan(const Text& query)
      : query_(query), sink_{nullptr}, longer_(sink_, 0.0), shorter_(sink_, 0.0) {
    longer_.set_needle(query_);
  }

  void run(Span<const Text> choices, int64_t first, Best* best) override {
    sink_.best = best;
    double cutoff = -1.0;
    for (int64_t k = 0; k < choices.size; ++k) {
      const Text& choice = choices[k];
      if (k % kChoicesAtOnce == 0) finish();
      if (choice.missing) continue;
      if (best->cutoff() != cutoff) {
        if (best->settled()) break;
        cutoff = best->cutoff();
        longer_.set_cutoff(cutoff);
        shorter_.set_cutoff(cutoff);
      }
      const bool is_needle = choice.size <= query_.size;
      const Text& needle = is_needle ? choice : query_;
      const FuzzyBag* bags = nullptr;
      if (shorter_.prunes() && needle.size > 0 && needle.size <= 64) {
        bags = is_needle ? bags_of_query(needle.size) : bags_of(choice);
      }
      if (is_needle) {
        shorter_.set_needle(choice);
        shorter_.add(query_, bags, first + k);
      } else {
        longer_.add(choice, bags, first + k);
      }
    }
    finish();
  }

 private:
  void finish() {
    shorter_.finish();
    longer_.finish();
  }

  struct Sink {
    Best* best;
    void operator()(int64_t index, double score) const { best->put({score, index}); }
  };

  const FuzzyBag* bags_of_query(int64_t size) {
    const int64_t width = fuzzy_width(size);
    std::vector<FuzzyBag>& bags = query_bags_[width / 16 > 2 ? 3 : width / 16];
    if (bags.empty()) {
      bags.resize(static_cast<size_t>(fuzzy_block_count(query_.size, width)));
      fuzzy_fill_blocks(query_, width, bags.data());
    }
    return bags.data();
  }

  const FuzzyBag* bags_of(const Text& choice) {
    const int64_t width = fuzzy_width(query_.size);
    const auto count = static_cast<size_t>(fuzzy_block_count(choice.size, width));
    if (choice_bags_.size() < count) choice_bags_.resize(count);
    fuzzy_fill_blocks(choice, width, choice_bags_.data());
    return choice_bags_.data();
  }

  Text query_;
  Sink sink_;
  PartialBatch<Sink> longer_;   // choices longer than the query
  PartialBatch<Sink> shorter_;  // the others
  std::vector<FuzzyBag> query_bags_[4];
  std::vector<FuzzyBag> choice_bags_;
};

class TokenSetScan : public Scan {
 public:
  explicit TokenSetScan(const Text& query) : query_(words_of(query, &joined_)), all_(text()) {}

  void run(Span<const Text> choices, int64_t first, Best* best) override {
    double cutoff = best->cutoff();
    for (int64_t k = 0; k < choices.size; ++k) {
      if (choices[k].missing) continue;
      choice_.assign(choices[k]);
      const double score = scorer_.of(query_, choice_, cutoff, &all_);
      if (score < cutoff) continue;
      best->put({score, first + k});
      if (best->settled()) return;
      cutoff = best->cutoff();
    }
  }

 private:
  static WordSet words_of(const Text& query, std::vector<uint32_t>* joined) {
    WordSet words;
    words.assign(query);
    words.join(nullptr, joined);
    return words;
  }
  Text text() const { return {joined_.data(), static_cast<int64_t>(joined_.size()), 4, false}; }

  std::vector<uint32_t> joined_;
  WordSet query_;
  LcsQuery all_;
  WordSet choice_;
  TokenSetRatio scorer_;
};

class TokenSortScan : public Scan {
 public:
  explicit TokenSortScan(const Text& query) : query_(sorted(query, &joined_)) {}

  void run(Span<const Text> choices, int64_t first, Best* best) override {
    double cutoff = best->cutoff();
    for (int64_t k = 0; k < choices.size; ++k) {
      if (choices[k].missing) continue;
      const Text choice = sorted(choices[k], &other_);
      const int64_t total = query_.size() + choice.size;
      if (fuzzy_ratio_of(std::min(query_.size(), choice.size), total) < cutoff) continue;
      const double score = fuzzy_ratio_of(query_.lcs(choice), total);
      if (score < cutoff) continue;
      best->put({score, first + k});
      if (best->settled()) return;
      cutoff = best->cutoff();
    }
  }

 private:
  Text sorted(const Text& text, std::vector<uint32_t>* joined) {
    words_.assign(text);
    words_.join_sorted(joined);
    return {joined->data(), static_cast<int64_t>(joined->size()), 4, false};
  }

  WordSet words_;
  std::vector<uint32_t> joined_;
  std::vector<uint32_t> other_;
  LcsQuery query_;
};

// A block of choices at a time as a matrix of one row: with the cutoff that the blocks before have
// left.
class MatrixScan : public Scan {
 public:
  MatrixScan(FuzzyScorer scorer, const Text& query) : scorer_(scorer), query_(query) {}

  void run(Span<const Text> choices, int64_t first, Best* best) override {
    if (choices.size <= kFewPairs) return run_pairs(choices, first, best);
    double scores[kBlock];
    // Small at first: a perfect answer, or a high cutoff, may come early.
    for (int64_t begin = 0, some = kFirstBlock; begin < choices.size && !best->settled();) {
      const int64_t count = std::min(some, choices.size - begin);
      const double cutoff = best->cutoff();
      fuzzy_cdist({&query_, 1}, {choices.data + begin, count}, {scorer_, cutoff, 1.0, -1.0, 1},
                  FuzzyType::kFloat64, scores);
      for (int64_t k = 0; k < count; ++k) {
        if (scores[k] >= cutoff) best->put({scores[k], first + begin + k});
      }
      begin += count;
      some = std::min(2 * some, kBlock);
    }
  }

 private:
  // What a matrix sets up takes longer than so few pairs.
  static constexpr int64_t kFewPairs = 2;

  void run_pairs(Span<const Text> choices, int64_t first, Best* best) {
    for (int64_t k = 0; k < choices.size && !best->settled(); ++k) {
      const double cutoff = best->cutoff();
      const double score = pair_.of(scorer_, query_, choices[k], cutoff);
      if (!choices[k].missing && score >= cutoff) best->put({score, first + k});
    }
  }

  static constexpr int64_t kFirstBlock = 32;
  static constexpr int64_t kBlock = 256;

  FuzzyScorer scorer_;
  Text query_;
  FuzzyPair pair_;
};

std::unique_ptr<Scan> scan_of(FuzzyScorer scorer, const Text& query) {
  switch (scorer) {
    case FuzzyScorer::kRatio:
      return std::make_unique<RatioScan>(query, 100.0);
    case FuzzyScorer::kQuickRatio:
      return std::make_unique<RatioScan>(query, 0.0);
    case FuzzyScorer::kPartialRatio:
      return std::make_unique<PartialScan>(query);
    case FuzzyScorer::kTokenSetRatio:
      return std::make_unique<TokenSetScan>(query);
    case FuzzyScorer::kTokenSortRatio:
      return std::make_unique<TokenSortScan>(query);
    default:
      return std::make_unique<MatrixScan>(scorer, query);
  }
}

}  // namespace

struct FuzzySearch::State {
  State(FuzzyScorer which, const Text& text, double least, int64_t most)
      : scorer(which),
        query(text),
        cutoff(least),
        limit(most),
        best(least, most, &floor),
        scan(text.missing ? nullptr : scan_of(which, text)) {}

  FuzzyScorer scorer;
  Text query;
  double cutoff;
  int64_t limit;
  int64_t seen = 0;
  std::atomic<double> floor{0.0};
  Best best;
  std::unique_ptr<Scan> scan;
};

FuzzySearch::FuzzySearch(FuzzyScorer scorer, const Text& query, double cutoff, int64_t limit)
    : state_(std::make_unique<State>(scorer, query, cutoff, limit)) {}

FuzzySearch::~FuzzySearch() = default;

bool FuzzySearch::settled() const { return state_->scan == nullptr || state_->best.settled(); }

void FuzzySearch::add(Span<const Text> choices, int threads) {
  const int64_t first = state_->seen;
  state_->seen += choices.size;
  if (settled()) return;
  const int64_t parts = std::max<int64_t>(resolve_threads(threads, choices.size / kFewChoices), 1);
  const int64_t size = (choices.size + parts - 1) / parts;
  if (parts == 1) return state_->scan->run(choices, first, &state_->best);
  std::vector<Best> lists;
  for (int64_t part = 0; part < parts; ++part) {
    lists.emplace_back(state_->cutoff, state_->limit, &state_->floor);
  }
  parallel_for(parts, 1, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t from = std::min(part * size, choices.size);
      const int64_t to = std::min(from + size, choices.size);
      scan_of(state_->scorer, state_->query)
          ->run({choices.data + from, to - from}, first + from, &lists[static_cast<size_t>(part)]);
    }
  });
  for (const Best& list : lists) {
    for (const Found& found : list.found()) state_->best.put(found);
  }
}

std::vector<FuzzySearch::Found> FuzzySearch::found() const {
  std::vector<Found> found = state_->best.found();
  std::sort(found.begin(), found.end(), before);
  return found;
}

}  // namespace pytrace
