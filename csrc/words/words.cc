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

bool any_word(const WordQueries& queries, int64_t query) {
  for (int64_t w = queries.offsets[query]; w < queries.offsets[query + 1]; ++w) {
    if (queries.ends[w] > queries.starts[w]) return true;
  }
  return false;
}

struct Found {
  float score;
  int64_t row;
};

// Whether `a` comes before `b`; as the order of a heap it puts the last one on top.
bool before(const Found& a, const Found& b) {
  return a.score > b.score || (a.score == b.score && a.row < b.row);
}

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
  const int64_t count = queries.offsets.size - 1, rows = norms.size;
  const auto k = static_cast<size_t>(best.scores.cols);
  if (k == 0) return;
  parallel_for(count, grain_of(queries), threads, [&](int64_t begin, int64_t end, int) {
    std::vector<float> scores(static_cast<size_t>(rows));
    std::vector<Found> heap;
    heap.reserve(k + 1);
    for (int64_t q = begin; q < end; ++q) {
      if (!any_word(queries, q)) continue;
      score(postings, norms, queries, q, scores.data());
      float* const best_scores = best.scores.row(q);
      int64_t* const best_rows = best.rows.row(q);
      heap.clear();
      for (size_t i = 0; i < k && best_rows[i] >= 0; ++i) {
        heap.push_back({best_scores[i], best_rows[i]});
      }
      std::make_heap(heap.begin(), heap.end(), before);
      // Of equal scores the lower row counts, which came before.
      float least = heap.size() == k ? heap.front().score : 0.0F;
      constexpr int64_t kStep = 16;
      for (int64_t start = 0; start < rows; start += kStep) {
        const int64_t stop = std::min(rows, start + kStep);
        bool any = false;
        for (int64_t r = start; r < stop; ++r) any |= scores[static_cast<size_t>(r)] > least;
        if (!any) continue;
        for (int64_t r = start; r < stop; ++r) {
          const float value = scores[static_cast<size_t>(r)];
          if (!(value > least) || (allowed.size > 0 && allowed[r] == 0)) continue;
          heap.push_back({value, first + r});
          std::push_heap(heap.begin(), heap.end(), before);
          if (heap.size() > k) {
            std::pop_heap(heap.begin(), heap.end(), before);
            heap.pop_back();
          }
          if (heap.size() == k) least = heap.front().score;
        }
      }
      std::sort_heap(heap.begin(), heap.end(), before);
      for (size_t i = 0; i < heap.size(); ++i) {
        best_scores[i] = heap[i].score;
        best_rows[i] = heap[i].row;
      }
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
