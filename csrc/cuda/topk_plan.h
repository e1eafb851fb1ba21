// What whole calls of top-k and similarity share: groups cut into units of work, items in tiles,
// queries made ready, and why a score is not finite.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "cuda/topk_merge.h"
#include "cuda/topk_scan.h"
#include "cuda/topk_search.h"
#include "cuda/transfers.h"

namespace pytrace::cuda {

// Which queries see which items.
struct SearchGroup {
  int64_t first_query = 0;
  int64_t last_query = 0;
  int64_t first_item = 0;
  int64_t last_item = 0;
};

int64_t number_bytes(Number type);

// Rows [first, first + count) of what lies on the card.
DeviceRows slice(DeviceRows rows, int64_t first, int64_t count);

// The groups of a call that have both, by rising queries.
std::vector<SearchGroup> groups_of(const SearchInput& input);

// The parts of groups within queries [first_query, last_query) and items [first_item, last_item).
std::vector<SearchGroup> clipped(const std::vector<SearchGroup>& groups, int64_t first_query,
                                 int64_t last_query, int64_t first_item, int64_t last_item);

struct ScanUnits {
  std::vector<ScanUnit> units;
  std::vector<MergeJob> merges;  // one a query of the chunk
};

// Cuts clipped groups into about `target` units of equal work, and at most as many more as there
// are queries: so few that their lists take little memory, so many that all multiprocessors are
// busy to the end. Queries count from first_query, items from first_item. At most target *
// shape.queries + queries lists.
ScanUnits cut_units(const std::vector<SearchGroup>& groups, int64_t first_query, int64_t queries,
                    int64_t first_item, const ScanShape& shape, int64_t target);

// Values of the host that a stream reads later, kept until `clear`.
class Sent {
 public:
  template <typename T>
  void send(std::vector<T> values, T* to, cudaStream_t stream) {
    if (values.empty()) return;
    const size_t bytes = values.size() * sizeof(T);
    kept_.emplace_back(reinterpret_cast<const char*>(values.data()),
                       reinterpret_cast<const char*>(values.data()) + bytes);
    require(cudaMemcpyAsync(to, kept_.back().data(), bytes, cudaMemcpyHostToDevice, stream),
            "copying to the card");
  }
  void clear() { kept_.clear(); }

 private:
  std::list<std::vector<char>> kept_;
};

// The items, tile by tile: where they lie on the card, or uploaded into one of two buffers while
// kernels read the other.
class ItemTiles {
 public:
  // Bytes that a row takes in a buffer.
  static int64_t row_bytes(const SearchInput& input);

  // `often`: tiles are gone through more than once, so that what fits is kept whole. `most_rows`:
  // of a tile, whatever the memory.
  ItemTiles(const SearchInput& input, size_t memory, bool often, int64_t most_rows,
            Workspace& workspace);

  int64_t rows() const { return tile_rows_; }

  // Once, before the first tile.
  void send_scale(Sent& sent, cudaStream_t stream);

  // Rows [first, first + rows()) or up to the end, ready for what is queued on the context's stream
  // from now on.
  DeviceRows tile(int64_t first, Uploader& uploader, Context& context);

  // All that reads the last tile is queued.
  void read(Context& context) { free_[buffer_].record(context.stream()); }

 private:
  const SearchInput& input_;
  int64_t tile_rows_ = 0;
  int buffers_ = 0;
  int buffer_ = 0;
  int64_t there_ = -1;  // the tile that the only buffer holds
  Workspace::Piece<char> memory_[2];
  Workspace::Piece<float> scale_;
  Event free_[2];
  Event sent_[2];
};

// Queries, chunk by chunk, as the scan reads them.
class QueryChunks {
 public:
  // Bytes that a query takes.
  static int64_t row_bytes(const SearchInput& input);

  QueryChunks(const SearchInput& input, int64_t most, bool lengths, Workspace& workspace);

  // Queues that queries [first, first + count) are made ready.
  void prepare(int64_t first, int64_t count, Uploader& uploader, Context& context);

  // As they were given, on the card, after `prepare`.
  const DeviceRows& rows() const { return rows_; }
  const float* values() const { return values_.data(); }
  const float* lengths() const { return wants_lengths_ ? lengths_.data() : nullptr; }

 private:
  const SearchInput& input_;
  bool wants_lengths_;
  DeviceRows rows_;
  Workspace::Piece<char> given_;
  Workspace::Piece<float> values_;
  Workspace::Piece<float> lengths_;
  Event prepared_;
  Event sent_;
};

// Waits, and throws with the cause if `word` on the card says that a score is not finite.
void require_finite(const SearchInput& input, unsigned long long* word, Context& context);

}  // namespace pytrace::cuda
