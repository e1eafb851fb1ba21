// One search: groups of queries and the items that they see, scored and cut down to the best.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "topk/topk.h"
#include "topk/topk_blocks.h"
#include "topk/topk_lists.h"
#include "topk/topk_select.h"
#include "topk/topk_vector.h"

namespace pytrace {

// Some score of this query against an item at or soon after this one is NaN or infinite.
struct NotFinite {
  int64_t query;
  int64_t item;
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

// The kernels for the active instruction set.
const ScoreKernels& score_kernels();
const SelectKernels& select_kernels();

int64_t item_bytes(ItemType type);

// Whether the items are too many to stay in a core's caches between two calls.
bool from_memory(const Items& items);

// Rows of an item tile, which takes a share of the second-level cache.
int64_t rows_of_tile(const Items& items);

class Search {
 public:
  Search(const TopKInput& input, int64_t k, Metric metric, float* scores, int64_t* indices);

  // One group on the calling thread.
  void run(const Group& group) const;

  // One group on many threads, its items dealt out among them.
  void run_split(const Group& group, int threads) const;

  // Whether a group has items enough to be dealt out among so many threads.
  bool worth_splitting(const Group& group, int threads) const {
    return group.items() >= tile_rows_ * threads * 2;
  }

 private:
  struct Scratch {
    float* scores;
    int64_t stride;
    float* lengths;
  };

  int64_t queries_in_flight(const Group& group) const;
  // The kernels that scan the items in bytes, nullptr where floats are scanned.
  const ByteKernels* bytes() const;
  // Whether a group's first items are best scored in panels, which give products of floats to the
  // last bit.
  bool scores_in_panels(const Group& group) const;
  // Whether laying queries and items out for a scan costs less than the scan saves.
  bool worth_scanning(const Group& group) const;
  std::unique_ptr<QueryBlocks> blocks_for(const Group& group) const;
  ScoreJob job_for(int64_t first_item, int64_t count) const;
  void lengths_of(const ScoreJob& job, float* lengths) const;
  // Makes a query's raw scores final ones; what is excluded gets -inf.
  void finish_row(int64_t query, int64_t tile, const ScoreJob& job, const float* lengths,
                  float* scores) const;
  bool excluded(int64_t query, int64_t item) const;
  void hide_excluded(int64_t query, int64_t tile, int64_t count, float* scores) const;

  // Adds the items [first_item, last_item) to the best lists of the group's queries: all of them
  // scored, or with blocks only those that a scan lets through.
  void add(const Group& group, int64_t first_item, int64_t last_item, BestLists& lists,
           const QueryBlocks* blocks) const;
  void score_all(const Group& group, int64_t first_item, int64_t last_item, BestLists& lists) const;
  void scan(const Group& group, int64_t first_item, int64_t last_item, BestLists& lists,
            const QueryBlocks& blocks) const;
  class Scan;

  // A group whose items are so few that its scores are all kept until the best are chosen; up to
  // 256 of them nothing is allocated.
  void run_small(const Group& group) const;

  // Calls use(query, scores) with the final scores of items [tile, tile + count) for each of the
  // group's queries; what is excluded has -inf.
  template <typename Use>
  void score_tile(const Group& group, int64_t tile, int64_t count, const Scratch& scratch,
                  const Use& use) const;

  void merge(const Group& group, const std::vector<std::unique_ptr<BestLists>>& by_thread,
             int threads) const;
  void write(const Group& group, int64_t query, BestList& best) const;
  void pad(int64_t query, int64_t found) const;

  const TopKInput& input_;
  int64_t k_;
  Metric metric_;
  float* scores_;
  int64_t* indices_;
  const ScoreKernels& scorer_;
  const SelectKernels& select_;
  int64_t tile_rows_;
  int64_t group_rows_;
  bool streamed_;
  std::vector<float> query_lengths_;
  std::vector<int64_t> excluded_;
};

}  // namespace pytrace
