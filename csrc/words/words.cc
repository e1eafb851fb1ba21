#include "words/words.h"

#include <algorithm>
#include <vector>

#include "common/parallel.h"

namespace pytrace {
namespace {

// How many queries one thread takes at least: less than this many postings take no longer than
// another thread needs to wake up (some 50 us).
int64_t grain_of(const WordQueries& queries) {
  constexpr int64_t kLeastPostings = 32768;
  const int64_t count = queries.offsets.size - 1;
  int64_t total = 0;
  for (int64_t w = 0; w < queries.starts.size; ++w) total += queries.ends[w] - queries.starts[w];
  return std::max<int64_t>(1, count * kLeastPostings / (total + 1));
}

// Fills out, [norms.size], with the scores of one query.
template <typename Count>
void score(const Postings<Count>& postings, Span<const float> norms, const WordQueries& queries,
           int64_t query, float* out) {
  std::fill(out, out + norms.size, 0.0F);
  for (int64_t w = queries.offsets[query]; w < queries.offsets[query + 1]; ++w) {
    const float weight = queries.weights[w];
    const int64_t last = queries.ends[w];
    for (int64_t p = queries.starts[w]; p < last; ++p) {
      const int64_t row = postings.rows[p];
      if (row >= norms.size) continue;
      const auto times = static_cast<float>(postings.counts[p]);
      out[row] += weight * (times / (times + norms[row]));
    }
  }
}

int64_t postings_of(const WordQueries& queries, int64_t query) {
  int64_t count = 0;
  for (int64_t w = queries.offsets[query]; w < queries.offsets[query + 1]; ++w) {
    count += queries.ends[w] - queries.starts[w];
  }
  return count;
}

struct Found {
  float score;
  int64_t row;
};

// Whether `a` comes before `b`; as the order of a heap it puts the last one on top.
bool before(const Found& a, const Found& b) {
  return a.score > b.score || (a.score == b.score && a.row < b.row);
}

// The best rows so far, the last one on top.
class BestHeap {
 public:
  BestHeap(size_t k, const float* scores, const int64_t* rows) : k_(k) {
    heap_.reserve(k + 1);
    for (size_t i = 0; i < k && rows[i] >= 0; ++i) heap_.push_back({scores[i], rows[i]});
    std::make_heap(heap_.begin(), heap_.end(), before);
  }

  // What a row must be above, unless it comes before the last one's row.
  float least() const { return heap_.size() == k_ ? heap_.front().score : 0.0F; }

  void offer(Found found) {
    if (heap_.size() == k_ ? !before(found, heap_.front()) : !(found.score > 0)) return;
    heap_.push_back(found);
    std::push_heap(heap_.begin(), heap_.end(), before);
    if (heap_.size() > k_) {
      std::pop_heap(heap_.begin(), heap_.end(), before);
      heap_.pop_back();
    }
  }

  void write(float* scores, int64_t* rows) {
    std::sort_heap(heap_.begin(), heap_.end(), before);
    for (size_t i = 0; i < heap_.size(); ++i) {
      scores[i] = heap_[i].score;
      rows[i] = heap_[i].row;
    }
  }

 private:
  size_t k_;
  std::vector<Found> heap_;
};

// Finds the best rows of queries in a block, one query at a time.
template <typename Count>
class BlockSearch {
 public:
  BlockSearch(const Postings<Count>& postings, Span<const float> norms, const WordQueries& queries,
              Span<const uint8_t> allowed, int64_t first)
      : postings_(postings),
        norms_(norms),
        queries_(queries),
        allowed_(allowed),
        first_(first),
        scores_(static_cast<size_t>(norms.size)) {}

  void search(int64_t query, BestHeap& best) {
    // Of few postings only the rows are looked at that have one.
    constexpr int64_t kFew = 16;
    if (postings_of(queries_, query) * kFew < norms_.size) {
      search_few(query, best);
    } else {
      search_all(query, best);
    }
  }

 private:
  void search_few(int64_t query, BestHeap& best) {
    if (!clear_) std::fill(scores_.begin(), scores_.end(), 0.0F);
    clear_ = true;
    touched_.clear();
    for (int64_t w = queries_.offsets[query]; w < queries_.offsets[query + 1]; ++w) {
      for (int64_t p = queries_.starts[w]; p < queries_.ends[w]; ++p) {
        const uint16_t row = postings_.rows[p];
        if (row >= norms_.size) continue;
        const auto times = static_cast<float>(postings_.counts[p]);
        // A row that is noted twice has a score of 0 the second time.
        if (scores_[row] == 0) touched_.push_back(row);
        scores_[row] += queries_.weights[w] * (times / (times + norms_[row]));
      }
    }
    for (const uint16_t row : touched_) {
      if (is_allowed(row)) best.offer({scores_[row], first_ + row});
      scores_[row] = 0;
    }
  }

  void search_all(int64_t query, BestHeap& best) {
    score(postings_, norms_, queries_, query, scores_.data());
    clear_ = false;
    float least = best.least();
    constexpr int64_t kStep = 16;
    const int64_t rows = norms_.size;
    for (int64_t start = 0; start < rows; start += kStep) {
      const int64_t stop = std::min(rows, start + kStep);
      bool any = false;
      for (int64_t r = start; r < stop; ++r) any |= scores_[static_cast<size_t>(r)] > least;
      if (!any) continue;
      for (int64_t r = start; r < stop; ++r) {
        const float value = scores_[static_cast<size_t>(r)];
        if (!(value > least) || !is_allowed(r)) continue;
        best.offer({value, first_ + r});
        least = best.least();
      }
    }
  }

  bool is_allowed(int64_t row) const { return allowed_.size == 0 || allowed_[row] != 0; }

  const Postings<Count>& postings_;
  Span<const float> norms_;
  const WordQueries& queries_;
  Span<const uint8_t> allowed_;
  int64_t first_;
  std::vector<float> scores_;
  bool clear_ = true;  // whether all scores are 0
  std::vector<uint16_t> touched_;
};

}  // namespace

void require_ranges(Span<const int64_t> starts, Span<const int64_t> ends, int64_t postings) {
  if (starts.size != ends.size) {
    fail("there are " + to_text(starts.size) + " starts, but " + to_text(ends.size) + " ends");
  }
  for (int64_t w = 0; w < starts.size; ++w) {
    if (starts[w] < 0 || starts[w] > ends[w] || ends[w] > postings) {
      fail("word " + to_text(w) + " has postings " + to_text(starts[w]) + " to " +
           to_text(ends[w]) + " of " + to_text(postings));
    }
  }
}

template <typename Count>
void word_scores(const Postings<Count>& postings, Span<const float> norms,
                 const WordQueries& queries, int threads, float* scores) {
  const int64_t count = queries.offsets.size - 1;
  parallel_for(count, grain_of(queries), threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t q = begin; q < end; ++q) {
      score(postings, norms, queries, q, scores + q * norms.size);
    }
  });
}

template void word_scores(const Postings<uint8_t>&, Span<const float>, const WordQueries&, int,
                          float*);
template void word_scores(const Postings<uint16_t>&, Span<const float>, const WordQueries&, int,
                          float*);
template void word_scores(const Postings<uint32_t>&, Span<const float>, const WordQueries&, int,
                          float*);

template <typename Count>
void word_top(const Postings<Count>& postings, Span<const float> norms, const WordQueries& queries,
              Span<const uint8_t> allowed, int64_t first, const BestRows& best, int threads) {
  const int64_t count = queries.offsets.size - 1;
  const auto k = static_cast<size_t>(best.scores.cols);
  if (k == 0) return;
  parallel_for(count, grain_of(queries), threads, [&](int64_t begin, int64_t end, int) {
    BlockSearch<Count> block(postings, norms, queries, allowed, first);
    for (int64_t q = begin; q < end; ++q) {
      if (postings_of(queries, q) == 0) continue;
      BestHeap heap(k, best.scores.row(q), best.rows.row(q));
      block.search(q, heap);
      heap.write(best.scores.row(q), best.rows.row(q));
    }
  });
}

template void word_top(const Postings<uint8_t>&, Span<const float>, const WordQueries&,
                       Span<const uint8_t>, int64_t, const BestRows&, int);
template void word_top(const Postings<uint16_t>&, Span<const float>, const WordQueries&,
                       Span<const uint8_t>, int64_t, const BestRows&, int);
template void word_top(const Postings<uint32_t>&, Span<const float>, const WordQueries&,
                       Span<const uint8_t>, int64_t, const BestRows&, int);

template <typename Count>
void word_scores_of(const Postings<Count>& postings, const WordQueries& queries,
                    Span<const int64_t> row_offsets, Span<const uint16_t> rows,
                    Span<const float> norms, int threads, float* scores) {
  const int64_t count = queries.offsets.size - 1;
  // So many searches take some 50 us.
  constexpr int64_t kLeastSearches = 1024;
  const int64_t searches = rows.size * (queries.starts.size / std::max<int64_t>(1, count) + 1);
  const int64_t grain = std::max<int64_t>(1, count * kLeastSearches / (searches + 1));
  parallel_for(count, grain, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t q = begin; q < end; ++q) {
      std::fill(scores + row_offsets[q], scores + row_offsets[q + 1], 0.0F);
      for (int64_t w = queries.offsets[q]; w < queries.offsets[q + 1]; ++w) {
        const uint16_t* const first = postings.rows.data + queries.starts[w];
        const uint16_t* const last = postings.rows.data + queries.ends[w];
        for (int64_t r = row_offsets[q]; r < row_offsets[q + 1]; ++r) {
          const uint16_t* const at = std::lower_bound(first, last, rows[r]);
          if (at == last || *at != rows[r]) continue;
          const auto times = static_cast<float>(postings.counts[at - postings.rows.data]);
          scores[r] += queries.weights[w] * (times / (times + norms[r]));
        }
      }
    }
  });
}

template void word_scores_of(const Postings<uint8_t>&, const WordQueries&, Span<const int64_t>,
                             Span<const uint16_t>, Span<const float>, int, float*);
template void word_scores_of(const Postings<uint16_t>&, const WordQueries&, Span<const int64_t>,
                             Span<const uint16_t>, Span<const float>, int, float*);
template void word_scores_of(const Postings<uint32_t>&, const WordQueries&, Span<const int64_t>,
                             Span<const uint16_t>, Span<const float>, int, float*);

void live_postings(Span<const uint16_t> rows, Span<const uint8_t> live, Span<const int64_t> starts,
                   Span<const int64_t> ends, int64_t* counts) {
  for (int64_t w = 0; w < starts.size; ++w) {
    int64_t count = 0;
    for (int64_t p = starts[w]; p < ends[w]; ++p) {
      const int64_t row = rows[p];
      count += static_cast<int64_t>(row < live.size && live[row] != 0);
    }
    counts[w] = count;
  }
}

}  // namespace pytrace
