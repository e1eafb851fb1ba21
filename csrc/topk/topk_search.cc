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
constexpr int64_t kMinScannedQueries = 12;
constexpr int64_t kMinByteQueries = 8;
constexpr int64_t kMinScannedItems = 512;
// Up to here the scores of a group of queries stand on the stack.
constexpr int64_t kFewItems = 256;
// So many items of a search are scored plainly, for thresholds that let few of the others through.
constexpr int64_t kFirstItems = 256;
constexpr int64_t kPanelBytes = 256 << 10;
constexpr int64_t kMaxPanelItems = 32;
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
  if (group.items() <= (group.queries() < kMinScannedQueries ? kMaxSelected : kFewItems))
    return run_small(group);
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
  const int64_t tiles = (group.items() + tile_rows_ - 1) / tile_rows_;
  const int64_t tiles_a_chunk = std::max<int64_t>(1, tiles / (int64_t{threads} * 8));
  for (int64_t first = group.first_query; first < group.last_query; first += step) {
    Group part = group;
    part.first_query = first;
    part.last_query = std::min(group.last_query, first + step);
    const std::unique_ptr<QueryBlocks> blocks = blocks_for(part);
    std::vector<std::unique_ptr<BestLists>> by_thread(static_cast<size_t>(threads));
    parallel_for(tiles, tiles_a_chunk, threads, [&](int64_t begin, int64_t end, int thread) {
      auto& lists = by_thread[static_cast<size_t>(thread)];
      if (!lists) lists = std::make_unique<BestLists>(part.queries(), k_, part.items());
      add(part, part.first_item + begin * tile_rows_,
          std::min(part.last_item, part.first_item + end * tile_rows_), *lists, blocks.get());
    });
    merge(part, by_thread, threads);
  }
}

int64_t Search::queries_in_flight(const Group& group) const {
  const int64_t bytes = 8 * std::max<int64_t>(1, BestLists::capacity(k_, group.items()));
  return std::clamp(kMaxListBytes / bytes, int64_t{1}, kMaxQueriesInFlight);
}

std::unique_ptr<QueryBlocks> Search::blocks_for(const Group& group) const {
  const bool narrow =
      input_.items.type == ItemType::kInt8 && input_.items.cols <= kMostByteDimensions;
  const ByteKernels* bytes = narrow ? byte_kernels() : nullptr;
  if (group.queries() < (bytes == nullptr ? kMinScannedQueries : kMinByteQueries) ||
      group.items() < kMinScannedItems || group.items() / 8 < k_ || input_.items.cols == 0) {
    return nullptr;
  }
  std::vector<float> squared(static_cast<size_t>(group.queries()));
  ScoreJob job{};
  job.items = input_.queries.row(group.first_query);
  job.item_stride = input_.queries.stride;
  job.item_count = group.queries();
  job.item_type = ItemType::kFloat32;
  job.dim = input_.queries.cols;
  scorer_.squared_lengths(job, squared.data());
  auto blocks = std::make_unique<QueryBlocks>(input_.queries, group.first_query, group.queries(),
                                              metric_, squared.data(), bytes);
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
  if (lists[0].count == 0) {
    const int64_t first = std::min(last_item, first_item + std::max(kFirstItems, 2 * k_));
    score_all(group, first_item, first, lists);
    for (int64_t q = 0; q < group.queries(); ++q) lists[q].prune(k_);
    first_item = first;
  }
  if (first_item < last_item) scan(group, first_item, last_item, lists, *blocks);
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

// The scan of one thread over one run of items.
class Search::Scan {
 public:
  Scan(const Search& search, const Group& group, BestLists& lists, const QueryBlocks& blocks)
      : search_(search),
        group_(group),
        lists_(lists),
        blocks_(blocks),
        bytes_(blocks.bytes()),
        panel_rows_(bytes_ == nullptr ? kernels_.panel_items : bytes_->panel_items),
        dim_(search.input_.items.cols) {
    const int64_t row_bytes =
        bytes_ == nullptr ? dim_ * int64_t{sizeof(float)} : blocks.steps() * 4;
    panels_ = std::max<int64_t>(1, kPanelBytes / (panel_rows_ * row_bytes));
    if (bytes_ != nullptr) {
      packed_bytes_.reset(new uint8_t[index(panels_ * panel_rows_ * row_bytes)]);
    } else {
      packed_.reset(new float[index(panels_ * panel_rows_ * dim_)]);
      if (search.input_.items.type != ItemType::kFloat32)
        widened_.reset(new float[index(panel_rows_ * dim_)]);
    }
    for (std::vector<float>* values : {&lengths_, &weights_, &offsets_, &factors_})
      values->resize(index(panels_ * panel_rows_));
    floors_.resize(index(group.queries()));
    for (int64_t q = 0; q < group.queries(); ++q)
      floors_[index(q)] = blocks.floor(q, lists[q].threshold);
  }

  void run(int64_t first_item, int64_t last_item) {
    const int64_t rows = panels_ * panel_rows_;
    for (int64_t tile = first_item; tile < last_item; tile += rows) {
      const int64_t count = std::min(rows, last_item - tile);
      if (lay_out(tile, count)) {
        scan_tile(tile, count);
      } else {
        search_.score_all(group_, tile, tile + count, lists_);
        for (int64_t q = 0; q < group_.queries(); ++q)
          floors_[index(q)] = blocks_.floor(q, lists_[q].threshold);
      }
    }
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  // False if some item is out of the scan's range.
  bool lay_out(int64_t tile, int64_t count) {
    bool fit = true;
    const bool cosine = search_.metric_ == Metric::kCosine;
    for (int64_t first = 0; first < count; first += panel_rows_) {
      const int64_t rows = std::min(panel_rows_, count - first);
      const ScoreJob job = search_.job_for(tile + first, rows);
      float* lengths = lengths_.data() + first;
      search_.scorer_.squared_lengths(job, lengths);
      float* factors = factors_.data() + first;
      for (int64_t i = 0; i < rows; ++i) {
        const float scale = job.item_scale == nullptr || cosine ? 1.0f : job.item_scale[i];
        const float squared = lengths[i] * scale * scale;
        fit = fit && scannable(squared) && scannable(lengths[i]);
        weights_[index(first + i)] = blocks_.item_weight(squared);
        offsets_[index(first + i)] = blocks_.item_offset(squared);
        lengths[i] = std::sqrt(lengths[i]);
        factors[i] = !cosine ? scale : lengths[i] > 0.0f ? 1.0f / lengths[i] : 0.0f;
      }
      if (bytes_ != nullptr) {
        bytes_->pack_panel(static_cast<const int8_t*>(job.items), job.item_stride, rows, dim_,
                           packed_bytes_.get() + first * blocks_.steps() * 4);
        continue;
      }
      const auto* from = static_cast<const float*>(job.items);
      int64_t stride = job.item_stride;
      if (widened_) {
        search_.scorer_.widen(job, widened_.get());
        from = widened_.get();
        stride = dim_;
      }
      kernels_.pack_panel(from, stride, rows, dim_, factors, packed_.get() + first * dim_);
    }
    return fit;
  }

  void scan_tile(int64_t tile, int64_t count) {
    uint32_t hits[kMaxPanelItems];
    for (int64_t row = 0; row < group_.queries(); row += blocks_.block_rows()) {
      const int64_t rows = std::min(blocks_.block_rows(), group_.queries() - row);
      for (int64_t first = 0; first < count; first += panel_rows_) {
        if (!scan_panel(row, rows, first, hits)) continue;
        const int64_t items = std::min(panel_rows_, count - first);
        const uint32_t there = items == 32 ? ~uint32_t{0} : (uint32_t{1} << items) - 1;
        for (int64_t q = 0; q < rows; ++q) {
          if ((hits[q] & there) != 0) score_hits(row + q, tile + first, first, hits[q] & there);
        }
      }
    }
  }

  bool scan_panel(int64_t row, int64_t rows, int64_t first, uint32_t* hits) const {
    const ScanTest test{floors_.data() + row, blocks_.slacks() + row, weights_.data() + first,
                        offsets_.data() + first};
    if (bytes_ == nullptr) {
      return kernels_.scan(blocks_.block(row), rows, packed_.get() + first * dim_, dim_, test,
                           hits);
    }
    const ByteTest byte_test{test, blocks_.byte_scales() + row, blocks_.byte_sums() + row,
                             factors_.data() + first};
    return bytes_->scan(blocks_.byte_block(row), rows,
                        packed_bytes_.get() + first * blocks_.steps() * 4, blocks_.steps(),
                        byte_test, hits);
  }

  // Scores the items that passed as the plain kernel does, and offers them.
  void score_hits(int64_t row, int64_t first_item, int64_t first, uint32_t hits) {
    const int64_t query = group_.first_query + row;
    int32_t which[kMaxPanelItems];
    float scores[kMaxPanelItems];
    float lengths[kMaxPanelItems];
    float scale[kMaxPanelItems];
    int64_t count = 0;
    ScoreJob job = search_.job_for(first_item, panel_rows_);
    for (; hits != 0; hits &= hits - 1) {
      const int32_t item = __builtin_ctz(hits);
      if (search_.excluded(query, first_item + item)) continue;
      which[count] = item;
      lengths[count] = lengths_[index(first + item)];
      scale[count] = job.item_scale == nullptr ? 1.0f : job.item_scale[item];
      ++count;
    }
    if (count == 0) return;
    job.queries = search_.input_.queries.row(query);
    job.query_count = 1;
    search_.scorer_.score_listed(job, which, count, scores);
    const float query_length =
        search_.metric_ == Metric::kCosine ? search_.query_lengths_[index(query)] : 1.0f;
    if (!search_.select_.finish(scores, count, search_.metric_,
                                job.item_scale == nullptr ? nullptr : scale, lengths,
                                query_length)) {
      throw NotFinite{query, first_item};
    }
    BestList& best = lists_[row];
    const float before = best.threshold;
    for (int64_t i = 0; i < count; ++i)
      lists_.offer_one(best, scores[i], first_item + which[i] - group_.first_item);
    if (best.threshold != before) floors_[index(row)] = blocks_.floor(row, best.threshold);
  }

  const Search& search_;
  const Group& group_;
  BestLists& lists_;
  const QueryBlocks& blocks_;
  const ScanKernels& kernels_ = scan_kernels();
  const ByteKernels* bytes_;
  int64_t panel_rows_;
  int64_t dim_;
  int64_t panels_;
  std::unique_ptr<float[]> packed_;
  std::unique_ptr<uint8_t[]> packed_bytes_;
  std::unique_ptr<float[]> widened_;
  std::vector<float> lengths_;
  std::vector<float> weights_;
  std::vector<float> offsets_;
  std::vector<float> factors_;
  std::vector<float> floors_;
};

void Search::scan(const Group& group, int64_t first_item, int64_t last_item, BestLists& lists,
                  const QueryBlocks& blocks) const {
  Scan(*this, group, lists, blocks).run(first_item, last_item);
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
  if (metric_ == Metric::kCosine) {
    scorer_.squared_lengths(job, scratch.lengths);
    for (int64_t i = 0; i < count; ++i) scratch.lengths[i] = std::sqrt(scratch.lengths[i]);
  }
  for (int64_t query = group.first_query; query < group.last_query; query += group_rows_) {
    job.queries = input_.queries.row(query);
    job.query_count = std::min(group_rows_, group.last_query - query);
    scorer_.score(job, scratch.scores, scratch.stride);
    for (int64_t q = 0; q < job.query_count; ++q) {
      float* row = scratch.scores + q * scratch.stride;
      const float query_length =
          metric_ == Metric::kCosine ? query_lengths_[static_cast<size_t>(query + q)] : 1.0f;
      if (!select_.finish(row, count, metric_, job.item_scale, scratch.lengths, query_length)) {
        throw NotFinite{query + q, tile};
      }
      if (!excluded_.empty()) hide_excluded(query + q, tile, count, row);
      use(query + q, row);
    }
  }
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
