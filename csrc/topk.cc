#include "topk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "dispatch.h"
#include "parallel.h"
#include "topk_vector.h"

namespace pytrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Multiply-adds worth handing to another thread: some 50 us of one core, ten times what waking a
// thread costs.
constexpr int64_t kGrain = int64_t{1} << 20;
// An item tile takes a share of the smallest second-level cache in use (256 KiB), a query group
// half of the smallest first-level cache (32 KiB).
constexpr int64_t kTileBytes = 128 << 10;
constexpr int64_t kGroupBytes = 16 << 10;
constexpr int64_t kMaxTileRows = 240;  // a multiple of every register block's items
constexpr int64_t kMaxGroupRows = 32;
// Up to here comparing all pairs of scores, which vectors do without a branch, beats a selection.
constexpr int64_t kSmallItems = 160;
// Queries whose best lists are held at once.
constexpr int64_t kMaxQueriesInFlight = 1024;
constexpr int64_t kMaxListBytes = 64 << 20;

struct NotFinite {
  int64_t query;
  int64_t item;
};

const VectorKernels& kernels() {
#if defined(__x86_64__)
  return *select_isa<const VectorKernels*>(&baseline::kTopKernels, &avx2::kTopKernels,
                                           &avx512::kTopKernels);
#else
  return baseline::kTopKernels;
#endif
}

// A score and an index as one number: the smaller, the better. Scores are finite and never -0.
uint64_t pack(float score, uint32_t index) {
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  const uint32_t falling = (bits & 0x80000000u) != 0 ? bits : ~bits & 0x7fffffffu;
  return (uint64_t{falling} << 32) | index;
}

float unpack_score(uint64_t key) {
  const auto falling = static_cast<uint32_t>(key >> 32);
  const uint32_t bits = (falling & 0x80000000u) != 0 ? falling : ~falling & 0x7fffffffu;
  float score;
  std::memcpy(&score, &bits, sizeof score);
  return score;
}

int64_t item_bytes(ItemType type) {
  return type == ItemType::kFloat32 ? 4 : type == ItemType::kFloat16 ? 2 : 1;
}

// The best scores of one query so far: up to `capacity` keys, of which the best k are among them.
struct BestList {
  uint64_t* keys = nullptr;
  int64_t count = 0;
  float threshold =
      -kInfinity;  // only higher scores can still enter; equal ones come with a higher index

  void prune(int64_t k) {
    if (count <= k) return;
    std::nth_element(keys, keys + (k - 1), keys + count);
    count = k;
    threshold = unpack_score(keys[k - 1]);
  }
};

// Best lists of some queries, in one allocation.
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

  static int64_t capacity(int64_t k, int64_t available) {
    return k >= available ? available : std::min(available, std::max(2 * k, k + 256));
  }

  BestList& operator[](int64_t query) { return lists_[static_cast<size_t>(query)]; }

  // `first` is the index that scores[0] belongs to.
  void offer(const VectorKernels& vector, int64_t query, const float* scores, int64_t count,
             int64_t first) {
    BestList& best = lists_[static_cast<size_t>(query)];
    int64_t at = 0;
    while ((at = vector.find_above(scores, at, count, best.threshold)) < count) {
      const int64_t end = std::min(count, at + 64);
      for (; at < end; ++at) {
        if (!(scores[at] > best.threshold)) continue;
        if (best.count == capacity_) {
          best.prune(k_);
          if (!(scores[at] > best.threshold)) continue;
        }
        best.keys[best.count++] = pack(scores[at], static_cast<uint32_t>(first + at));
      }
    }
  }

 private:
  int64_t k_;
  int64_t capacity_;
  std::unique_ptr<uint64_t[]> keys_;
  std::vector<BestList> lists_;
};

// Which queries see which items.
struct Group {
  int64_t first_query;
  int64_t last_query;
  int64_t first_item;
  int64_t last_item;

  int64_t queries() const { return last_query - first_query; }
  int64_t items() const { return last_item - first_item; }
};

class Search {
 public:
  Search(const TopKInput& input, int64_t k, Metric metric, float* scores, int64_t* indices)
      : input_(input),
        k_(k),
        metric_(metric),
        scores_(scores),
        indices_(indices),
        vector_(kernels()) {
    const int64_t row_bytes = std::max<int64_t>(1, input.items.cols * item_bytes(input.items.type));
    tile_rows_ = std::clamp(kTileBytes / row_bytes / 24 * 24, int64_t{24}, kMaxTileRows);
    group_rows_ =
        std::clamp(kGroupBytes / std::max<int64_t>(4, input.items.cols * 4) / vector_.query_block,
                   int64_t{1}, kMaxGroupRows / vector_.query_block) *
        vector_.query_block;
    if (metric == Metric::kCosine) prepare_query_lengths();
    if (input.excluded.size > 0) prepare_excluded();
  }

  int64_t tile_rows() const { return tile_rows_; }

  // One group on the calling thread.
  void run(const Group& group) const {
    if (group.items() <= kSmallItems) return run_small(group);
    const int64_t step = queries_in_flight(group);
    for (int64_t first = group.first_query; first < group.last_query; first += step) {
      Group part = group;
      part.first_query = first;
      part.last_query = std::min(group.last_query, first + step);
      BestLists lists(part.queries(), k_, part.items());
      scan(part, part.first_item, part.last_item, lists);
      for (int64_t q = 0; q < part.queries(); ++q) write(part, q, lists[q]);
    }
  }

  // One group on many threads, its items dealt out among them.
  void run_split(const Group& group, int threads) const {
    const int64_t step = queries_in_flight(group);
    const int64_t tiles = (group.items() + tile_rows_ - 1) / tile_rows_;
    const int64_t tiles_a_chunk = std::max<int64_t>(1, tiles / (int64_t{threads} * 8));
    for (int64_t first = group.first_query; first < group.last_query; first += step) {
      Group part = group;
      part.first_query = first;
      part.last_query = std::min(group.last_query, first + step);
      std::vector<std::unique_ptr<BestLists>> by_thread(static_cast<size_t>(threads));
      parallel_for(tiles, tiles_a_chunk, threads, [&](int64_t begin, int64_t end, int thread) {
        auto& lists = by_thread[static_cast<size_t>(thread)];
        if (!lists) lists = std::make_unique<BestLists>(part.queries(), k_, part.items());
        scan(part, part.first_item + begin * tile_rows_,
             std::min(part.last_item, part.first_item + end * tile_rows_), *lists);
      });
      merge(part, by_thread, threads);
    }
  }

 private:
  int64_t queries_in_flight(const Group& group) const {
    const int64_t bytes = 8 * std::max<int64_t>(1, BestLists::capacity(k_, group.items()));
    return std::clamp(kMaxListBytes / bytes, int64_t{1}, kMaxQueriesInFlight);
  }

  void prepare_query_lengths() {
    query_lengths_.resize(static_cast<size_t>(input_.queries.rows));
    ScoreJob job{};
    job.items = input_.queries.data;
    job.item_stride = input_.queries.stride;
    job.item_count = input_.queries.rows;
    job.item_type = ItemType::kFloat32;
    job.dim = input_.queries.cols;
    vector_.squared_lengths(job, query_lengths_.data());
    for (float& length : query_lengths_) length = std::sqrt(length);
  }

  void prepare_excluded() {
    excluded_.assign(input_.excluded.begin(), input_.excluded.end());
    for (int64_t q = 0; q < input_.queries.rows; ++q) {
      std::sort(excluded_.begin() + input_.exclude_offsets[q],
                excluded_.begin() + input_.exclude_offsets[q + 1]);
    }
  }

  // Adds the items [first_item, last_item) to the best lists of the group's queries.
  void scan(const Group& group, int64_t first_item, int64_t last_item, BestLists& lists) const {
    const int64_t rows = std::min(tile_rows_, last_item - first_item);
    const int64_t group_rows = std::min(group_rows_, group.queries());
    const std::unique_ptr<float[]> scores(
        new float[static_cast<size_t>(std::max<int64_t>(1, rows * group_rows))]);
    float lengths[kMaxTileRows];
    for (int64_t tile = first_item; tile < last_item; tile += rows) {
      const int64_t count = std::min(rows, last_item - tile);
      score_tile(
          group, tile, count, {scores.get(), rows, lengths}, [&](int64_t query, const float* row) {
            lists.offer(vector_, query - group.first_query, row, count, tile - group.first_item);
          });
    }
  }

  // A group whose items are so few that ranking all of them is cheaper than selecting. Nothing is
  // allocated.
  void run_small(const Group& group) const {
    float scores[kMaxGroupRows * kSmallItems];
    float lengths[kMaxTileRows];
    int32_t ranks[kSmallItems];
    const int64_t count = group.items();
    const bool distance = metric_ == Metric::kEuclidean;
    score_tile(group, group.first_item, count, {scores, kSmallItems, lengths},
               [&](int64_t query, float* row) {
                 vector_.rank(row, count, ranks);
                 float* best = scores_ + query * k_;
                 int64_t* indices = indices_ + query * k_;
                 int64_t found = 0;
                 for (int64_t i = 0; i < count; ++i) {
                   if (row[i] == -kInfinity) continue;
                   ++found;
                   if (ranks[i] >= k_) continue;
                   best[ranks[i]] = distance ? 0.0f - row[i] : row[i];
                   indices[ranks[i]] = group.first_item + i;
                 }
                 pad(query, std::min(found, k_));
               });
    if (count == 0) {
      for (int64_t query = group.first_query; query < group.last_query; ++query) pad(query, 0);
    }
  }

  struct Scratch {
    float* scores;
    int64_t stride;
    float* lengths;
  };

  // Calls use(query, scores) with the final scores of items [tile, tile + count) for each of the
  // group's queries; what is excluded has -inf.
  template <typename Use>
  void score_tile(const Group& group, int64_t tile, int64_t count, const Scratch& scratch,
                  const Use& use) const {
    const Items& items = input_.items;
    ScoreJob job{};
    job.query_stride = input_.queries.stride;
    job.items = static_cast<const char*>(items.data) + tile * items.stride * item_bytes(items.type);
    job.item_stride = items.stride;
    job.item_count = count;
    job.item_type = items.type;
    job.dim = items.cols;
    job.item_scale = items.scale == nullptr ? nullptr : items.scale + tile;
    job.squared_distance = metric_ == Metric::kEuclidean;
    if (count == 0) return;
    if (metric_ == Metric::kCosine) {
      vector_.squared_lengths(job, scratch.lengths);
      for (int64_t i = 0; i < count; ++i) scratch.lengths[i] = std::sqrt(scratch.lengths[i]);
    }
    for (int64_t query = group.first_query; query < group.last_query; query += group_rows_) {
      job.queries = input_.queries.row(query);
      job.query_count = std::min(group_rows_, group.last_query - query);
      vector_.score(job, scratch.scores, scratch.stride);
      for (int64_t q = 0; q < job.query_count; ++q) {
        float* row = scratch.scores + q * scratch.stride;
        const float query_length =
            metric_ == Metric::kCosine ? query_lengths_[static_cast<size_t>(query + q)] : 1.0f;
        if (!vector_.finish(row, count, metric_, job.item_scale, scratch.lengths, query_length)) {
          throw NotFinite{query + q, tile};
        }
        if (!excluded_.empty()) hide_excluded(query + q, tile, count, row);
        use(query + q, row);
      }
    }
  }

  void hide_excluded(int64_t query, int64_t tile, int64_t count, float* scores) const {
    const auto end = excluded_.begin() + input_.exclude_offsets[query + 1];
    auto at = std::lower_bound(excluded_.begin() + input_.exclude_offsets[query], end, tile);
    for (; at != end && *at < tile + count; ++at) scores[*at - tile] = -kInfinity;
  }

  void merge(const Group& group, const std::vector<std::unique_ptr<BestLists>>& by_thread,
             int threads) const {
    parallel_for(group.queries(), 64, threads, [&](int64_t begin, int64_t end, int) {
      std::vector<uint64_t> keys;
      for (int64_t q = begin; q < end; ++q) {
        keys.clear();
        for (const auto& lists : by_thread) {
          if (lists)
            keys.insert(keys.end(), (*lists)[q].keys, (*lists)[q].keys + (*lists)[q].count);
        }
        BestList all;
        all.keys = keys.data();
        all.count = static_cast<int64_t>(keys.size());
        write(group, q, all);
      }
    });
  }

  void write(const Group& group, int64_t query, BestList& best) const {
    best.prune(k_);
    std::sort(best.keys, best.keys + best.count);
    const bool distance = metric_ == Metric::kEuclidean;
    float* scores = scores_ + (group.first_query + query) * k_;
    int64_t* indices = indices_ + (group.first_query + query) * k_;
    for (int64_t i = 0; i < best.count; ++i) {
      const float score = unpack_score(best.keys[i]);
      scores[i] = distance ? 0.0f - score : score;
      indices[i] = group.first_item + static_cast<int64_t>(best.keys[i] & 0xffffffffu);
    }
    pad(group.first_query + query, best.count);
  }

  // Fills what is left of a query's row after `found` results.
  void pad(int64_t query, int64_t found) const {
    std::fill(scores_ + query * k_ + found, scores_ + (query + 1) * k_,
              metric_ == Metric::kEuclidean ? kInfinity : -kInfinity);
    std::fill(indices_ + query * k_ + found, indices_ + (query + 1) * k_, int64_t{-1});
  }

  const TopKInput& input_;
  int64_t k_;
  Metric metric_;
  float* scores_;
  int64_t* indices_;
  const VectorKernels& vector_;
  int64_t tile_rows_;
  int64_t group_rows_;
  std::vector<float> query_lengths_;
  std::vector<int64_t> excluded_;
};

int64_t work(const Group& group, int64_t dim) {
  // In floating point, because the product of three sizes may not fit.
  const double macs = static_cast<double>(group.queries()) * static_cast<double>(group.items()) *
                      static_cast<double>(std::max<int64_t>(dim, 16));
  return static_cast<int64_t>(std::min(macs, 1e18));
}

void run_one(const Search& search, const Group& group, int64_t dim, int requested) {
  const int threads = resolve_threads(requested, work(group, dim) / kGrain);
  if (threads == 1) return search.run(group);
  if (group.items() >= search.tile_rows() * threads * 2) return search.run_split(group, threads);
  // Too few items to deal out: deal the queries, in pieces large enough to reuse each tile.
  const int64_t chunk = std::max<int64_t>(32, group.queries() / (int64_t{threads} * 4));
  parallel_for(group.queries(), chunk, threads, [&](int64_t begin, int64_t end, int) {
    search.run(
        {group.first_query + begin, group.first_query + end, group.first_item, group.last_item});
  });
}

void run_ragged(const Search& search, const TopKInput& input, int requested) {
  const int64_t dim = input.items.cols;
  const int64_t questions = input.item_offsets.size - 1;
  const auto group_of = [&](int64_t question) {
    const bool own = input.query_offsets.size == 0;
    return Group{own ? question : input.query_offsets[question],
                 own ? question + 1 : input.query_offsets[question + 1],
                 input.item_offsets[question], input.item_offsets[question + 1]};
  };
  int64_t total = 0;
  for (int64_t question = 0; question < questions; ++question) {
    total = std::min<int64_t>(total + work(group_of(question), dim), int64_t{1} << 60);
  }
  const int threads = resolve_threads(requested, total / kGrain);
  // A question so large that the others could not keep the remaining threads busy meanwhile is
  // split by itself.
  const int64_t large = threads == 1 ? std::numeric_limits<int64_t>::max()
                                     : std::max(4 * kGrain, total / (4 * threads));
  const int64_t chunk = std::max<int64_t>(1, questions / (int64_t{threads} * 8));
  parallel_for(questions, chunk, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t question = begin; question < end; ++question) {
      const Group group = group_of(question);
      if (work(group, dim) < large) search.run(group);
    }
  });
  if (threads == 1) return;
  for (int64_t question = 0; question < questions; ++question) {
    const Group group = group_of(question);
    if (work(group, dim) >= large) run_one(search, group, dim, requested);
  }
}

bool finite_at(const Items& items, int64_t row, int64_t col) {
  const int64_t at = row * items.stride + col;
  switch (items.type) {
    case ItemType::kFloat32:
      return std::isfinite(static_cast<const float*>(items.data)[at]);
    case ItemType::kFloat16:
      return (static_cast<const uint16_t*>(items.data)[at] & 0x7c00) != 0x7c00;
    case ItemType::kInt8:
      break;
  }
  return true;
}

void require_finite(const Items& items, const char* name) {
  for (int64_t row = 0; row < items.rows; ++row) {
    for (int64_t col = 0; col < items.cols; ++col) {
      if (!finite_at(items, row, col)) {
        fail(std::string(name) + "[" + to_text(row) + ", " + to_text(col) +
             "] is NaN or infinite; scores cannot be ordered");
      }
    }
  }
}

Items as_items(const Matrix<const float>& rows) {
  return {rows.data, rows.rows, rows.cols, rows.stride, ItemType::kFloat32, nullptr};
}

// Finds out what made a score not finite, and says so.
[[noreturn]] void explain(const Matrix<const float>& queries, const Items& items,
                          const NotFinite& where) {
  require_finite(as_items(queries), "queries");
  require_finite(items, "items");
  fail("a score of queries[" + to_text(where.query) + "] against items[" + to_text(where.item) +
       "] or one soon after overflows float32; make the vectors shorter");
}

void require_same_width(const Matrix<const float>& queries, const Items& items) {
  if (queries.cols != items.cols) {
    fail("queries have " + to_text(queries.cols) + " dimensions, but items have " +
         to_text(items.cols));
  }
}

void check(const TopKInput& input, int64_t k) {
  const int64_t queries = input.queries.rows;
  require_same_width(input.queries, input.items);
  if (k < 0) fail("k is " + to_text(k) + "; it must be at least 0");
  if (input.items.rows > int64_t{std::numeric_limits<uint32_t>::max()}) {
    fail("items has " + to_text(input.items.rows) + " rows; one call searches at most 4294967295");
  }
  if (input.item_offsets.size > 0) {
    require_offsets(input.item_offsets, input.items.rows, "offsets");
    const int64_t questions = input.item_offsets.size - 1;
    if (input.query_offsets.size > 0) {
      require_offsets(input.query_offsets, queries, "query_offsets");
      if (input.query_offsets.size != input.item_offsets.size) {
        fail("query_offsets has " + to_text(input.query_offsets.size) +
             " values, but offsets has " + to_text(input.item_offsets.size));
      }
    } else if (questions != queries) {
      fail("offsets has " + to_text(input.item_offsets.size) + " values, but " + to_text(queries) +
           " queries need " + to_text(queries + 1));
    }
  }
  if (input.exclude_offsets.size > 0) {
    if (input.exclude_offsets.size != queries + 1) {
      fail("exclude's offsets have " + to_text(input.exclude_offsets.size) + " values, but " +
           to_text(queries) + " queries need " + to_text(queries + 1));
    }
    require_offsets(input.exclude_offsets, input.excluded.size, "exclude's offsets");
  }
  for (int64_t i = 0; i < input.excluded.size; ++i) {
    if (input.excluded[i] < -1 || input.excluded[i] >= input.items.rows) {
      fail("exclude holds " + to_text(input.excluded[i]) + ", but items has " +
           to_text(input.items.rows) + " rows; only -1 stands for none");
    }
  }
}

}  // namespace

void top_k(const TopKInput& input, int64_t k, Metric metric, int threads, float* scores,
           int64_t* indices) {
  check(input, k);
  if (k == 0 || input.queries.rows == 0) return;
  try {
    const Search search(input, k, metric, scores, indices);
    if (input.item_offsets.size > 0) {
      run_ragged(search, input, threads);
    } else {
      run_one(search, {0, input.queries.rows, 0, input.items.rows}, input.items.cols, threads);
    }
  } catch (const NotFinite& where) {
    explain(input.queries, input.items, where);
  }
}

void similarity(const Matrix<const float>& queries, const Items& items, Metric metric, int threads,
                float* out) {
  require_same_width(queries, items);
  const VectorKernels& vector = kernels();
  ScoreJob whole{};
  whole.query_stride = queries.stride;
  whole.item_stride = items.stride;
  whole.item_type = items.type;
  whole.dim = items.cols;
  whole.squared_distance = metric == Metric::kEuclidean;
  std::vector<float> query_lengths;
  std::vector<float> item_lengths;
  if (metric == Metric::kCosine) {
    const auto lengths_of = [&](const Items& rows, std::vector<float>& lengths) {
      lengths.resize(static_cast<size_t>(rows.rows));
      ScoreJob job = whole;
      job.items = rows.data;
      job.item_stride = rows.stride;
      job.item_count = rows.rows;
      job.item_type = rows.type;
      vector.squared_lengths(job, lengths.data());
      for (float& length : lengths) length = std::sqrt(length);
    };
    lengths_of(as_items(queries), query_lengths);
    lengths_of(items, item_lengths);
  }
  const int64_t row_bytes = std::max<int64_t>(1, items.cols * item_bytes(items.type));
  const int64_t tile_rows = std::clamp(kTileBytes / row_bytes / 24 * 24, int64_t{24}, kMaxTileRows);
  const int64_t group_rows = 8;
  const int64_t tiles = (items.rows + tile_rows - 1) / tile_rows;
  const int64_t groups = (queries.rows + group_rows - 1) / group_rows;
  const int64_t macs = work({0, queries.rows, 0, items.rows}, items.cols);
  const int used = resolve_threads(threads, macs / kGrain);
  const int64_t cells = tiles * groups;
  try {
    parallel_for(cells, std::max<int64_t>(1, cells / (int64_t{used} * 8)), used,
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t cell = begin; cell < end; ++cell) {
                     const int64_t item = cell / groups * tile_rows;
                     const int64_t query = cell % groups * group_rows;
                     ScoreJob job = whole;
                     job.queries = queries.row(query);
                     job.query_count = std::min(group_rows, queries.rows - query);
                     job.items = static_cast<const char*>(items.data) +
                                 item * items.stride * item_bytes(items.type);
                     job.item_count = std::min(tile_rows, items.rows - item);
                     job.item_scale = items.scale == nullptr ? nullptr : items.scale + item;
                     vector.score(job, out + query * items.rows + item, items.rows);
                     for (int64_t q = query; q < query + job.query_count; ++q) {
                       float* row = out + q * items.rows + item;
                       const bool cosine = metric == Metric::kCosine;
                       if (!vector.finish(row, job.item_count, metric, job.item_scale,
                                          cosine ? item_lengths.data() + item : nullptr,
                                          cosine ? query_lengths[static_cast<size_t>(q)] : 1.0f)) {
                         throw NotFinite{q, item};
                       }
                       if (metric == Metric::kEuclidean) {
                         for (int64_t i = 0; i < job.item_count; ++i) row[i] = 0.0f - row[i];
                       }
                     }
                   }
                 });
  } catch (const NotFinite& where) {
    explain(queries, items, where);
  }
}

void normalize(const Matrix<const float>& rows, int threads, float* out) {
  const int64_t chunk = std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(1, rows.cols));
  parallel_for(rows.rows, chunk, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = rows.row(row);
      // Eight running sums, so that the additions do not wait for each other.
      double sums[8] = {};
      int64_t col = 0;
      for (; col + 8 <= rows.cols; col += 8) {
        for (int lane = 0; lane < 8; ++lane)
          sums[lane] += double{from[col + lane]} * double{from[col + lane]};
      }
      for (; col < rows.cols; ++col) sums[0] += double{from[col]} * double{from[col]};
      const double total =
          ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
      if (!std::isfinite(total)) {
        const auto bad =
            std::find_if(from, from + rows.cols, [](float value) { return !std::isfinite(value); });
        fail("vectors[" + to_text(row) + ", " + to_text(bad - from) +
             "] is NaN or infinite; it has no direction");
      }
      const double length = std::sqrt(total);
      float* to = out + row * rows.cols;
      for (int64_t i = 0; i < rows.cols; ++i) {
        to[i] = length > 0.0 ? static_cast<float>(double{from[i]} / length) : 0.0f;
      }
    }
  });
}

}  // namespace pytrace
