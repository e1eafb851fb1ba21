// The scan of topk_scan.h over a run of items, by one thread.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "topk/topk_search.h"

namespace pytrace {
namespace {

// Shares of a second-level cache: items in panels, and the scores of them and all queries.
constexpr int64_t kPanelBytes = 256 << 10;
constexpr int64_t kScoreBytes = 256 << 10;
// So many items are scored whole, for thresholds that let few of the others through.
constexpr int64_t kFirstItems = 256;
// In panels they are for longer: an item costs a tenth more than in a scan, and one that passes a
// scan costs as much as some fifty of them.
constexpr int64_t kFirstItemsARank = 512;
constexpr int64_t kMaxPanelItems = 32;

size_t index(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

// Floats whose vectors cross no cache line, not set.
class AlignedFloats {
 public:
  explicit AlignedFloats(int64_t count = 0)
      : room_(new float[index(count + kLine)]),
        first_(room_.get() +
               (kLine - reinterpret_cast<uintptr_t>(room_.get()) / sizeof(float) % kLine) % kLine) {
  }

  float* get() const { return first_; }

 private:
  static constexpr int64_t kLine = kLineBytes / sizeof(float);
  std::unique_ptr<float[]> room_;
  float* first_;
};

class Search::Scan {
 public:
  Scan(const Search& search, const Group& group, BestLists& lists, const QueryBlocks& blocks,
       int64_t items)
      : search_(search),
        group_(group),
        lists_(lists),
        blocks_(blocks),
        bytes_(blocks.bytes()),
        panel_rows_(bytes_ == nullptr ? kernels_.panel_items : bytes_->panel_items),
        dim_(search.input_.items.cols) {
    const int64_t row_bytes =
        bytes_ == nullptr ? dim_ * int64_t{sizeof(float)} : blocks.steps() * 4;
    const int64_t panels = (items + panel_rows_ - 1) / panel_rows_;
    rows_ = panel_rows_ *
            std::min(panels, std::max<int64_t>(1, kPanelBytes / (panel_rows_ * row_bytes)));
    if (bytes_ != nullptr) {
      packed_bytes_.reset(new uint8_t[index(rows_ * row_bytes)]);
    } else {
      packed_ = AlignedFloats(rows_ * dim_);
      if (search.input_.items.type != ItemType::kFloat32)
        widened_.reset(new float[index(panel_rows_ * dim_)]);
    }
    for (std::vector<float>* values : {&lengths_, &weights_, &offsets_, &factors_})
      values->resize(index(rows_));
    floors_.resize(index(group.queries()));
  }

  void run(int64_t first_item, int64_t last_item) {
    if (lists_[0].count == 0) first_item = begin(first_item, last_item);
    if (first_item < last_item) raise_floors();
    for (int64_t tile = first_item; tile < last_item; tile += rows_) {
      const int64_t count = std::min(rows_, last_item - tile);
      if (lay_out(tile, count)) {
        scan_tile(tile, count);
      } else {
        search_.score_all(group_, tile, tile + count, lists_);
        raise_floors();
      }
    }
  }

 private:
  // Scores the first items whole; returns where the others begin.
  int64_t begin(int64_t first_item, int64_t last_item) {
    int64_t first = last_item;
    if (search_.scores_in_panels(group_)) {
      first =
          std::min(last_item, first_item + std::max(kFirstItems, kFirstItemsARank * search_.k_));
      score_panels(first_item, first);
    } else {
      first = std::min(last_item, first_item + std::max(kFirstItems, 2 * search_.k_));
      search_.score_all(group_, first_item, first, lists_);
    }
    for (int64_t q = 0; first < last_item && q < group_.queries(); ++q) lists_[q].prune(search_.k_);
    return first;
  }

  void score_panels(int64_t first_item, int64_t last_item) {
    const int64_t most =
        std::min(kMaxSelected, kScoreBytes / int64_t{sizeof(float)} / group_.queries());
    const int64_t tile_rows = std::min(std::max<int64_t>(1, most / panel_rows_),
                                       (last_item - first_item + panel_rows_ - 1) / panel_rows_) *
                              panel_rows_;
    const int64_t stride = (tile_rows + 31) / 32 * 32;  // as BestLists::offer wants it
    const AlignedFloats scores(group_.queries() * stride);
    float lengths[kMaxSelected];
    std::fill(factors_.begin(), factors_.end(), 1.0f);
    for (int64_t tile = first_item; tile < last_item; tile += tile_rows) {
      const int64_t count = std::min(tile_rows, last_item - tile);
      const ScoreJob job = search_.job_for(tile, count);
      if (search_.metric_ == Metric::kCosine) search_.lengths_of(job, lengths);
      for (int64_t from = 0; from < count; from += rows_) {
        const int64_t packed = std::min(rows_, count - from);
        for (int64_t first = 0; first < packed; first += panel_rows_) {
          const int64_t item = tile + from + first;
          pack(item, std::min(panel_rows_, packed - first), 0);
          for (int64_t row = 0; row < group_.queries(); row += blocks_.block_rows()) {
            const int64_t rows = std::min(blocks_.block_rows(), group_.queries() - row);
            const Ahead ahead =
                ahead_of(item + panel_rows_, panel_rows_, row, row + rows, group_.queries());
            kernels_.score(blocks_.block(row), rows, packed_.get(), dim_, ahead,
                           scores.get() + row * stride + from + first, stride);
          }
        }
      }
      for (int64_t q = 0; q < group_.queries(); ++q) {
        float* row = scores.get() + q * stride;
        search_.finish_row(group_.first_query + q, tile, job, lengths, row);
        lists_.offer(search_.select_, q, row, count, tile - group_.first_item);
      }
    }
  }

  // The lines of `count` items from `item` on, as far as there are such: of `whole` shares those in
  // [begin, end).
  Ahead ahead_of(int64_t item, int64_t count, int64_t begin, int64_t end, int64_t whole) const {
    const Items& items = search_.input_.items;
    const int64_t there = std::min(count, group_.last_item - item);
    if (there <= 0 || items.stride != items.cols) return {nullptr, 0};
    const int64_t row_bytes = items.cols * item_bytes(items.type);
    const int64_t lines = there * row_bytes / kLineBytes;
    const int64_t first = lines * begin / whole;
    return {static_cast<const char*>(items.data) + item * row_bytes + first * kLineBytes,
            lines * end / whole - first};
  }

  void raise_floors() {
    for (int64_t q = 0; q < group_.queries(); ++q)
      floors_[index(q)] = blocks_.floor(q, lists_[q].threshold);
  }

  // Packs a panel of items at `first` among those packed, each times its factor.
  void pack(int64_t item, int64_t rows, int64_t first) {
    const ScoreJob job = search_.job_for(item, rows);
    if (bytes_ != nullptr) {
      return bytes_->pack_panel(static_cast<const int8_t*>(job.items), job.item_stride, rows, dim_,
                                packed_bytes_.get() + first * blocks_.steps() * 4);
    }
    const auto* from = static_cast<const float*>(job.items);
    int64_t stride = job.item_stride;
    if (widened_) {
      search_.scorer_.widen(job, widened_.get());
      from = widened_.get();
      stride = dim_;
    }
    kernels_.pack_panel(from, stride, rows, dim_, factors_.data() + first,
                        packed_.get() + first * dim_);
  }

  // Packs a tile's items; false if one is out of the scan's range.
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
      pack(tile + first, rows, first);
    }
    return fit;
  }

  void scan_tile(int64_t tile, int64_t count) {
    uint32_t hits[kMaxPanelItems];
    const int64_t tile_panels = (count + panel_rows_ - 1) / panel_rows_;
    for (int64_t row = 0; row < group_.queries(); row += blocks_.block_rows()) {
      const int64_t rows = std::min(blocks_.block_rows(), group_.queries() - row);
      for (int64_t first = 0; first < count; first += panel_rows_) {
        const int64_t part = row * tile_panels + first / panel_rows_ * rows;
        const Ahead ahead =
            ahead_of(tile + rows_, rows_, part, part + rows, group_.queries() * tile_panels);
        if (!scan_panel(row, rows, first, ahead, hits)) continue;
        const int64_t items = std::min(panel_rows_, count - first);
        const uint32_t there = items == 32 ? ~uint32_t{0} : (uint32_t{1} << items) - 1;
        for (int64_t q = 0; q < rows; ++q) {
          if ((hits[q] & there) != 0) score_hits(row + q, tile + first, first, hits[q] & there);
        }
      }
    }
  }

  bool scan_panel(int64_t row, int64_t rows, int64_t first, const Ahead& ahead,
                  uint32_t* hits) const {
    const ScanTest test{floors_.data() + row, blocks_.slacks() + row, weights_.data() + first,
                        offsets_.data() + first};
    if (bytes_ == nullptr) {
      return kernels_.scan(blocks_.block(row), rows, packed_.get() + first * dim_, dim_, test,
                           ahead, hits);
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
  int64_t rows_;  // packed at once
  AlignedFloats packed_;
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
  Scan(*this, group, lists, blocks, last_item - first_item).run(first_item, last_item);
}

}  // namespace pytrace
