#include "topk/topk_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/dispatch.h"
#include "common/parallel.h"

namespace pytrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An item tile takes a share of the smallest second-level cache in use (256 KiB), a query group
// half of the smallest first-level cache (32 KiB).
constexpr int64_t kTileBytes = 128 << 10;
constexpr int64_t kGroupBytes = 16 << 10;
constexpr int64_t kMaxTileRows = 240;  // a multiple of nearly every register block's items
constexpr int64_t kMaxGroupRows = 32;
// Queries whose best lists are held at once.
constexpr int64_t kMaxQueriesInFlight = 1024;
constexpr int64_t kMaxListBytes = 64 << 20;

// Below these, laying queries and items out for a scan costs more than the scan saves.
constexpr int64_t kMinPanelQueries = 32;
constexpr int64_t kMinScannedQueries = 12;
constexpr int64_t kMinByteQueries = 8;
constexpr int64_t kMinScannedItems = 512;
// Items that are dealt out to threads in multiples of this: whole panels of every instruction set.
constexpr int64_t kScannedRows = 32;
// Up to here the scores of a group of queries stand on the stack.
constexpr int64_t kFewItems = 256;
// More than most second-level caches hold.
constexpr int64_t kStreamedBytes = 2 << 20;

int64_t row_bytes(const Items& items) {
  return std::max<int64_t>(1, items.cols * item_bytes(items.type));
}

}  // namespace

const ScoreKernels& score_kernels() { return *PYTRACE_SELECT_ISA(kScoreKernels); }

const SelectKernels& select_kernels() { return *PYTRACE_SELECT_ISA(kSelectKernels); }

int64_t item_bytes(ItemType type) {
  return type == ItemType::kFloat32 ? 4 : type == ItemType::kFloat16 ? 2 : 1;
}

bool from_memory(const Items& items) { return items.rows > kStreamedBytes / row_bytes(items); }

int64_t rows_of_tile(const Items& items) {
  return std::clamp(kTileBytes / row_bytes(items) / 24 * 24, int64_t{24}, kMaxTileRows);
}

Search::Search(const TopKInput& input, int64_t k, Metric metric, float* scores, int64_t* indices)
    : input_(input),
      k_(k),
      metric_(metric),
      scores_(scores),
      indices_(indices),
      scorer_(score_kernels()),
      select_(select_kernels()),
      tile_rows_(rows_of_tile(input.items)),
      streamed_(from_memory(input.items)) {
  group_rows_ =
      std::clamp(kGroupBytes / std::max<int64_t>(4, input.items.cols * 4) / scorer_.query_block,
                 int64_t{1}, kMaxGroupRows / scorer_.query_block) *
      scorer_.query_block;
  if (metric == Metric::kCosine) {
    query_lengths_.resize(static_cast<size_t>(input.queries.rows));
    ScoreJob job{};
    job.items = input.queries.data;
    job.item_stride = input.queries.stride;
    job.item_count = input.queries.rows;
    job.item_type = ItemType::kFloat32;
    job.dim = input.queries.cols;
    scorer_.squared_lengths(job, query_lengths_.data());
    for (float& length : query_lengths_) length = std::sqrt(length);
  }
  if (input.excluded.size > 0) {
    excluded_.assign(input.excluded.begin(), input.excluded.end());
    for (int64_t q = 0; q < input.queries.rows; ++q) {
      std::sort(excluded_.begin() + input.exclude_offsets[q],
                excluded_.begin() + input.exclude_offsets[q + 1]);
    }
  }
}

void Search::run(const Group& group) const {
  if (!worth_scanning(group) &&
      group.items() <= (group.queries() < kMinScannedQueries ? kMaxSelected : kFewItems)) {
    return run_small(group);
  }
  const int64_t step = queries_in_flight(group);
  for (int64_t first = group.first_query; first < group.last_query; first += step) {
    Group part = group;
    part.first_query = first;
    part.last_query = std::min(group.last_query, first + step);
    BestLists lists(part.queries(), k_, part.items());
    const std::unique_ptr<QueryBlocks> blocks = blocks_for(part);
    add(part, part.first_item, part.last_item, lists, blocks.get());
    for (int64_t q = 0; q < part.queries(); ++q) write(part, q, lists[q]);
  }
}

void Search::run_split(const Group& group, int threads) const {
  const int64_t step = queries_in_flight(group);
  // What is scanned begins with thresholds of its own on each thread: the more items, the better.
  const bool scanned = worth_scanning(group);
  const int64_t rows = scanned ? kScannedRows : tile_rows_;
  const int64_t tiles = (group.items() + rows - 1) / rows;
  const int64_t tiles_a_chunk =
      std::max(scanned ? std::min(kMaxSelected / rows, (tiles + threads - 1) / threads) : 1,
               tiles / (int64_t{threads} * 8));
  for (int64_t first = group.first_query; first < group.last_query; first += step) {
    Group part = group;
    part.first_query = first;
    part.last_query = std::min(group.last_query, first + step);
    const std::unique_ptr<QueryBlocks> blocks = blocks_for(part);
    std::vector<std::unique_ptr<BestLists>> by_thread(static_cast<size_t>(threads));
    parallel_for(tiles, tiles_a_chunk, threads, [&](int64_t begin, int64_t end, int thread) {
      auto& lists = by_thread[static_cast<size_t>(thread)];
      if (!lists) lists = std::make_unique<BestLists>(part.queries(), k_, part.items());
      add(part, part.first_item + begin * rows,
          std::min(part.last_item, part.first_item + end * rows), *lists, blocks.get());
    });
    merge(part, by_thread, threads);
  }
}

int64_t Search::queries_in_flight(const Group& group) const {
  const int64_t bytes = 8 * std::max<int64_t>(1, BestLists::capacity(k_, group.items()));
  return std::clamp(kMaxListBytes / bytes, int64_t{1}, kMaxQueriesInFlight);
}

const ByteKernels* Search::bytes() const {
  return input_.items.type == ItemType::kInt8 && input_.items.cols <= kMostByteDimensions
             ? byte_kernels()
             : nullptr;
}

bool Search::scores_in_panels(const Group& group) const {
  return metric_ != Metric::kEuclidean && bytes() == nullptr && input_.items.cols > 0 &&
         group.queries() >= kMinPanelQueries && group.items() > kFewItems;
}

bool Search::worth_scanning(const Group& group) const {
  return scores_in_panels(group) ||
         (group.queries() >= (bytes() != nullptr ? kMinByteQueries : kMinScannedQueries) &&
          group.items() >= kMinScannedItems && group.items() / 8 >= k_ && input_.items.cols > 0);
}

std::unique_ptr<QueryBlocks> Search::blocks_for(const Group& group) const {
  if (!worth_scanning(group)) return nullptr;
  std::vector<float> squared(static_cast<size_t>(group.queries()));
  ScoreJob job{};
  job.items = input_.queries.row(group.first_query);
  job.item_stride = input_.queries.stride;
  job.item_count = group.queries();
  job.item_type = ItemType::kFloat32;
  job.dim = input_.queries.cols;
  scorer_.squared_lengths(job, squared.data());
  auto blocks = std::make_unique<QueryBlocks>(input_.queries, group.first_query, group.queries(),
                                              metric_, squared.data(), bytes());
  return blocks->scannable() ? std::move(blocks) : nullptr;
}

ScoreJob Search::job_for(int64_t first_item, int64_t count) const {
  const Items& items = input_.items;
  ScoreJob job{};
  job.query_stride = input_.queries.stride;
  job.items =
      static_cast<const char*>(items.data) + first_item * items.stride * item_bytes(items.type);
  job.item_stride = items.stride;
  job.item_count = count;
  job.item_type = items.type;
  job.dim = items.cols;
  job.item_scale = items.scale == nullptr ? nullptr : items.scale + first_item;
  job.streamed = streamed_;
  job.squared_distance = metric_ == Metric::kEuclidean;
  return job;
}

void Search::add(const Group& group, int64_t first_item, int64_t last_item, BestLists& lists,
                 const QueryBlocks* blocks) const {
  if (blocks == nullptr) return score_all(group, first_item, last_item, lists);
  scan(group, first_item, last_item, lists, *blocks);
}

void Search::score_all(const Group& group, int64_t first_item, int64_t last_item,
                       BestLists& lists) const {
  const int64_t rows = std::min(tile_rows_, last_item - first_item);
  const int64_t group_rows = std::min(group_rows_, group.queries());
  const int64_t stride = (rows + 31) / 32 * 32;  // as BestLists::offer wants it
  const std::unique_ptr<float[]> scores(
      new float[static_cast<size_t>(std::max<int64_t>(1, stride * group_rows))]);
  float lengths[kMaxTileRows];
  for (int64_t tile = first_item; tile < last_item; tile += rows) {
    const int64_t count = std::min(rows, last_item - tile);
    score_tile(group, tile, count, {scores.get(), stride, lengths}, [&](int64_t query, float* row) {
      lists.offer(select_, query - group.first_query, row, count, tile - group.first_item);
    });
  }
}

void Search::run_small(const Group& group) const {
  if (group.items() == 0) {
    for (int64_t query = group.first_query; query < group.last_query; ++query) pad(query, 0);
    return;
  }
  float few_scores[kMaxGroupRows * kFewItems];
  std::unique_ptr<float[]> many_scores;
  float* scores = few_scores;
  int64_t stride = kFewItems;
  if (group.items() > kFewItems) {
    stride = kMaxSelected;
    many_scores.reset(
        new float[static_cast<size_t>(std::min(group_rows_, group.queries()) * stride)]);
    scores = many_scores.get();
  }
  float lengths[kMaxSelected];
  float best[kMaxSelected];
  int32_t positions[kMaxSelected];
  const bool distance = metric_ == Metric::kEuclidean;
  score_tile(group, group.first_item, group.items(), {scores, stride, lengths},
             [&](int64_t query, float* row) {
               const int64_t found = select_.select(row, group.items(), k_, best, positions);
               float* to = scores_ + query * k_;
               int64_t* indices = indices_ + query * k_;
               for (int64_t i = 0; i < found; ++i) {
                 to[i] = distance ? 0.0f - best[i] : best[i];
                 indices[i] = group.first_item + positions[i];
               }
               pad(query, found);
             });
}

template <typename Use>
void Search::score_tile(const Group& group, int64_t tile, int64_t count, const Scratch& scratch,
                        const Use& use) const {
  ScoreJob job = job_for(tile, count);
  if (metric_ == Metric::kCosine) lengths_of(job, scratch.lengths);
  for (int64_t query = group.first_query; query < group.last_query; query += group_rows_) {
    job.queries = input_.queries.row(query);
    job.query_count = std::min(group_rows_, group.last_query - query);
    scorer_.score(job, scratch.scores, scratch.stride);
    for (int64_t q = 0; q < job.query_count; ++q) {
      float* row = scratch.scores + q * scratch.stride;
      finish_row(query + q, tile, job, scratch.lengths, row);
      use(query + q, row);
    }
  }
}

void Search::lengths_of(const ScoreJob& job, float* lengths) const {
  scorer_.squared_lengths(job, lengths);
  for (int64_t i = 0; i < job.item_count; ++i) lengths[i] = std::sqrt(lengths[i]);
}

void Search::finish_row(int64_t query, int64_t tile, const ScoreJob& job, const float* lengths,
                        float* scores) const {
  const float query_length =
      metric_ == Metric::kCosine ? query_lengths_[static_cast<size_t>(query)] : 1.0f;
  if (!select_.finish(scores, job.item_count, metric_, job.item_scale, lengths, query_length)) {
    throw NotFinite{query, tile};
  }
  if (!excluded_.empty()) hide_excluded(query, tile, job.item_count, scores);
}

bool Search::excluded(int64_t query, int64_t item) const {
  if (excluded_.empty()) return false;
  return std::binary_search(excluded_.begin() + input_.exclude_offsets[query],
                            excluded_.begin() + input_.exclude_offsets[query + 1], item);
}

void Search::hide_excluded(int64_t query, int64_t tile, int64_t count, float* scores) const {
  const auto end = excluded_.begin() + input_.exclude_offsets[query + 1];
  auto at = std::lower_bound(excluded_.begin() + input_.exclude_offsets[query], end, tile);
  for (; at != end && *at < tile + count; ++at) scores[*at - tile] = -kInfinity;
}

void Search::merge(const Group& group, const std::vector<std::unique_ptr<BestLists>>& by_thread,
                   int threads) const {
  parallel_for(group.queries(), 64, threads, [&](int64_t begin, int64_t end, int) {
    std::vector<uint64_t> keys;
    for (int64_t q = begin; q < end; ++q) {
      keys.clear();
      for (const auto& lists : by_thread) {
        if (lists) keys.insert(keys.end(), (*lists)[q].keys, (*lists)[q].keys + (*lists)[q].count);
      }
      BestList all;
      all.keys = keys.data();
      all.count = static_cast<int64_t>(keys.size());
      write(group, q, all);
    }
  });
}

void Search::write(const Group& group, int64_t query, BestList& best) const {
  best.prune(k_);
  std::sort(best.keys, best.keys + best.count);
  const bool distance = metric_ == Metric::kEuclidean;
  float* scores = scores_ + (group.first_query + query) * k_;
  int64_t* indices = indices_ + (group.first_query + query) * k_;
  for (int64_t i = 0; i < best.count; ++i) {
    const float score = score_of_key(best.keys[i]);
    scores[i] = distance ? 0.0f - score : score;
    indices[i] = group.first_item + static_cast<int64_t>(best.keys[i] & 0xffffffffu);
  }
  pad(group.first_query + query, best.count);
}

// Fills what is left of a query's row after `found` results.
void Search::pad(int64_t query, int64_t found) const {
  std::fill(scores_ + query * k_ + found, scores_ + (query + 1) * k_,
            metric_ == Metric::kEuclidean ? kInfinity : -kInfinity);
  std::fill(indices_ + query * k_ + found, indices_ + (query + 1) * k_, int64_t{-1});
}

}  // namespace pytrace
