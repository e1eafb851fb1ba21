#include "cuda/topk_search.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/topk_merge.h"
#include "cuda/topk_plan.h"
#include "cuda/topk_product.h"
#include "cuda/topk_scan.h"
#include "cuda/topk_sort.h"
#include "cuda/transfers.h"

namespace pytrace::cuda {
namespace {

using Key = unsigned long long;

// Units a multiprocessor: some four blocks run there at once, and twice as many even out what the
// last ones wait for.
constexpr int64_t kUnitsOfMultiprocessor = 8;
// Beyond, a chunk of queries takes memory and no longer time off a launch.
constexpr int64_t kMostChunk = int64_t{1} << 18;

// Whether the tensor cores take a search that both ways can do: PYTRACE_CUDA_SEARCH says so, or
// what is expected to be faster.
bool takes_product(int64_t queries, const DeviceRows& items, int64_t k) {
  const char* way = std::getenv("PYTRACE_CUDA_SEARCH");
  const std::string wanted = way == nullptr || *way == 0 ? "auto" : way;
  if (wanted == "scan") return false;
  if (wanted == "product") return true;
  if (wanted != "auto") {
    throw std::invalid_argument("PYTRACE_CUDA_SEARCH is '" + wanted +
                                "'; it must be auto, scan or product");
  }
  return product_is_better(queries, items, k);
}

void fill(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (bytes > 0) require(cudaMemsetAsync(data, value, bytes, stream), "filling");
}

// One call: its pieces of the workspace, and the loops over chunks of queries and tiles of items.
class Search {
 public:
  Search(const SearchInput& input, int64_t k, Metric metric, const SearchResults& results,
         Context& context)
      : input_(input),
        k_(k),
        metric_(metric),
        results_(results),
        context_(context),
        groups_(groups_of(input)),
        queries_(input.queries.rows.rows) {
    for (const SearchGroup& group : groups_) {
      most_visible_ = std::max(most_visible_, group.last_item - group.first_item);
      largest_group_ = std::max(largest_group_, group.last_query - group.first_query);
    }
    kept_ = std::min(k_, most_visible_);
    sorts_ = kept_ > kMostScannedK;
    multiplies_ = groups_.size() == 1 && kept_ <= kMostProductK && input.items.rows.cols > 0 &&
                  takes_product(largest_group_, input.items.rows, kept_);
  }

  void run();

 private:
  int64_t chunk_for(size_t memory) const;
  void scan_tile(const DeviceRows& items, int64_t first_item, int64_t first_query, int64_t count);
  void sort_tile(const DeviceRows& items, int64_t first_item, int64_t first_query, int64_t count);
  void multiply_tile(const DeviceRows& items, int64_t first_item, int64_t first_query,
                     int64_t count);
  ScanInput scan_input(const DeviceRows& items, int64_t first_item, int64_t first_query) const;
  void deliver(int64_t first_query, int64_t count);

  const SearchInput& input_;
  const int64_t k_;
  const Metric metric_;
  const SearchResults& results_;
  Context& context_;
  const std::vector<SearchGroup> groups_;
  const int64_t queries_;
  int64_t most_visible_ = 0;
  int64_t largest_group_ = 0;
  int64_t kept_ = 0;  // keys a query is left with
  bool sorts_ = false;
  bool multiplies_ = false;  // by the tensor cores: one group of many queries
  int64_t columns_ = 0;      // of scores that are sorted at once
  int64_t capacity_ = 0;     // keys a query has room for
  int64_t target_ = 1;       // units
  ScanShape shape_;

  Workspace workspace_;
  ProductWorkspace product_;
  Workspace::Piece<Key> word_;
  Workspace::Piece<Key> best_;
  Workspace::Piece<Key> thresholds_;
  Workspace::Piece<Key> lists_;
  Workspace::Piece<float> sorted_scores_;
  Workspace::Piece<ScanUnit> units_;
  Workspace::Piece<MergeJob> merges_;
  Workspace::Piece<SortJob> sorts_of_;
  Workspace::Piece<int64_t> excluded_;
  Workspace::Piece<int64_t> exclude_offsets_;
  Workspace::Piece<float> scores_;
  Workspace::Piece<int64_t> indices_;
  Sent sent_;
  QueryChunks* chunks_ = nullptr;
};

// Queries at a time, so that they take half of the memory at most. Also settles how much of the
// items' scores is sorted at once.
int64_t Search::chunk_for(size_t memory) const {
  int64_t bytes = QueryChunks::row_bytes(input_) + 2 * static_cast<int64_t>(sizeof(ScanUnit));
  bytes += sorts_ ? capacity_ * 8 + columns_ * 4 : kept_ * 16 + 8;
  if (!results_.on_card) bytes += k_ * 12;
  const auto fit = static_cast<int64_t>(memory / 2 / static_cast<size_t>(bytes));
  return std::clamp<int64_t>(fit, 1, std::min(queries_, kMostChunk));
}

void Search::run() {
  const size_t memory = memory_to_use(context_);
  const auto multiprocessors = int64_t{context_.multiprocessors()};
  const int64_t items = input_.items.rows.rows;
  shape_ = scan_shape(largest_group_, input_.items.rows.cols, input_.items.rows.type,
                      sorts_ ? 0 : std::max<int64_t>(1, kept_));
  target_ = multiprocessors * kUnitsOfMultiprocessor;
  if (multiplies_) {
    Workspace trial;
    product_workspace(trial, std::min(queries_, kMostChunk), input_.items.rows, kept_);
    multiplies_ = trial.bytes() <= memory / 2;
  }
  capacity_ = kept_;
  if (sorts_) {
    // All at once if a quarter of the memory holds it, else what does, and is worth sorting.
    columns_ = most_visible_;
    const auto fits = [&](int64_t capacity) {
      return static_cast<size_t>(capacity) <= memory / 4 / 12;
    };
    while (columns_ > 1 && columns_ > kept_ / 8 && !fits(sorted_capacity(kept_, columns_)))
      columns_ = (columns_ + 1) / 2;
    capacity_ = sorted_capacity(kept_, columns_);
  } else if (multiplies_) {
    target_ = 0;  // a query has one list
  } else {
    const int64_t list_bytes = std::max<int64_t>(1, shape_.queries * kept_ * 8);
    target_ = std::clamp<int64_t>(static_cast<int64_t>(memory / 8) / list_bytes, 1, target_);
  }
  const int64_t chunk = chunk_for(memory);

  word_ = workspace_.take<Key>(1);
  best_ = workspace_.take<Key>(chunk * capacity_);
  thresholds_ = workspace_.take<Key>(chunk);
  units_ = workspace_.take<ScanUnit>(target_ + chunk);
  if (sorts_) {
    sorted_scores_ = workspace_.take<float>(chunk * columns_);
    sorts_of_ = workspace_.take<SortJob>(chunk);
  } else {
    lists_ = workspace_.take<Key>((target_ * shape_.queries + chunk) * kept_);
    merges_ = workspace_.take<MergeJob>(chunk);
  }
  excluded_ = workspace_.take<int64_t>(input_.excluded.size);
  exclude_offsets_ = workspace_.take<int64_t>(input_.exclude_offsets.size);
  scores_ = workspace_.take<float>(results_.on_card ? 0 : chunk * k_);
  indices_ = workspace_.take<int64_t>(results_.on_card ? 0 : chunk * k_);
  QueryChunks chunks(input_, chunk, metric_ == Metric::kCosine, workspace_);
  chunks_ = &chunks;
  if (multiplies_) {
    product_ = product_workspace(workspace_, chunk, input_.items.rows, kept_);
  }
  const size_t left = memory - std::min(memory, workspace_.bytes());
  ItemTiles tiles(input_, left, chunk < queries_,
                  sorts_ && columns_ < most_visible_ ? columns_ : items, workspace_);
  context_.lay_out(workspace_);

  cudaStream_t stream = context_.stream();
  Uploader uploader(context_);
  fill(word_.data(), 0xff, sizeof(Key), stream);
  tiles.send_scale(sent_, stream);
  sent_.send(std::vector<int64_t>(input_.excluded.begin(), input_.excluded.end()), excluded_.data(),
             stream);
  sent_.send(std::vector<int64_t>(input_.exclude_offsets.begin(), input_.exclude_offsets.end()),
             exclude_offsets_.data(), stream);
  for (int64_t query = 0; query < queries_; query += chunk) {
    const int64_t count = std::min(chunk, queries_ - query);
    fill(best_.data(), 0, static_cast<size_t>(count * capacity_) * sizeof(Key), stream);
    fill(thresholds_.data(), 0, static_cast<size_t>(count) * sizeof(Key), stream);
    chunks.prepare(query, count, uploader, context_);
    for (int64_t item = 0; item < items && kept_ > 0; item += tiles.rows()) {
      const DeviceRows tile = tiles.tile(item, uploader, context_);
      if (sorts_) {
        sort_tile(tile, item, query, count);
      } else if (multiplies_) {
        multiply_tile(tile, item, query, count);
      } else {
        scan_tile(tile, item, query, count);
      }
      tiles.read(context_);
    }
    deliver(query, count);
    sent_.clear();
  }
  require_finite(input_, word_.data(), context_);
}

ScanInput Search::scan_input(const DeviceRows& items, int64_t first_item,
                             int64_t first_query) const {
  ScanInput scan;
  scan.items = items;
  scan.first_index = first_item;
  scan.queries = chunks_->values();
  scan.query_lengths = chunks_->lengths();
  scan.first_query = first_query;
  if (input_.excluded.size > 0) {
    scan.excluded.rows = excluded_.data();
    scan.excluded.offsets = exclude_offsets_.data() + first_query;
  }
  scan.metric = metric_;
  scan.k = sorts_ ? 0 : kept_;
  scan.units = units_.data();
  return scan;
}

void Search::scan_tile(const DeviceRows& items, int64_t first_item, int64_t first_query,
                       int64_t count) {
  const auto groups =
      clipped(groups_, first_query, first_query + count, first_item, first_item + items.rows);
  if (groups.empty()) return;
  cudaStream_t stream = context_.stream();
  ScanUnits cut = cut_units(groups, first_query, count, first_item, shape_, target_);
  ScanInput scan = scan_input(items, first_item, first_query);
  scan.unit_count = static_cast<int64_t>(cut.units.size());
  sent_.send(std::move(cut.units), units_.data(), stream);
  sent_.send(std::move(cut.merges), merges_.data(), stream);
  scan_top_k(scan, shape_, lists_.data(), thresholds_.data(), word_.data(),
             context_.multiprocessors(), stream);
  merge_lists(lists_.data(), merges_.data(), count, kept_, best_.data(), stream);
}

void Search::sort_tile(const DeviceRows& items, int64_t first_item, int64_t first_query,
                       int64_t count) {
  const auto groups =
      clipped(groups_, first_query, first_query + count, first_item, first_item + items.rows);
  if (groups.empty()) return;
  cudaStream_t stream = context_.stream();
  std::vector<SortJob> jobs(static_cast<size_t>(count));
  for (const SearchGroup& group : groups) {
    for (int64_t query = group.first_query; query < group.last_query; ++query) {
      jobs[static_cast<size_t>(query - first_query)] = {group.first_item - first_item,
                                                        group.last_item - first_item};
    }
  }
  ScanUnits cut = cut_units(groups, first_query, count, first_item, shape_, target_);
  ScanInput scan = scan_input(items, first_item, first_query);
  scan.unit_count = static_cast<int64_t>(cut.units.size());
  sent_.send(std::move(cut.units), units_.data(), stream);
  sent_.send(std::move(jobs), sorts_of_.data(), stream);
  scan_scores(scan, shape_, sorted_scores_.data(), columns_, true, word_.data(),
              context_.multiprocessors(), stream);
  fill_keys(sorted_scores_.data(), columns_, sorts_of_.data(), count, first_item, scan.excluded,
            kept_, capacity_, best_.data(), stream);
  sort_buffers(best_.data(), count, capacity_, stream);
}

void Search::multiply_tile(const DeviceRows& items, int64_t first_item, int64_t first_query,
                           int64_t count) {
  const auto groups =
      clipped(groups_, first_query, first_query + count, first_item, first_item + items.rows);
  if (groups.empty()) return;
  const SearchGroup& group = groups.front();
  const int64_t queries = group.last_query - group.first_query;
  ProductInput product;
  product.queries = slice(chunks_->rows(), group.first_query - first_query, queries);
  product.items = slice(items, group.first_item - first_item, group.last_item - group.first_item);
  product.first_index = group.first_item;
  product.first_query = group.first_query;
  if (input_.excluded.size > 0) {
    product.excluded.rows = excluded_.data();
    product.excluded.offsets = exclude_offsets_.data();
  }
  product.k = kept_;
  product.metric = metric_;
  std::vector<MergeJob> merges(static_cast<size_t>(count));
  for (int64_t query = 0; query < queries; ++query)
    merges[static_cast<size_t>(group.first_query - first_query + query)] = {query, 1, 1};
  sent_.send(std::move(merges), merges_.data(), context_.stream());
  product_top_k(product, product_, lists_.data(), word_.data(), context_);
  merge_lists(lists_.data(), merges_.data(), count, kept_, best_.data(), context_.stream());
}

void Search::deliver(int64_t first_query, int64_t count) {
  float* scores = results_.on_card ? results_.scores + first_query * k_ : scores_.data();
  int64_t* indices = results_.on_card ? results_.indices + first_query * k_ : indices_.data();
  write_results(best_.data(), count, kept_, capacity_, k_, metric_ == Metric::kEuclidean, scores,
                indices, context_.stream());
  if (results_.on_card) {
    context_.finish();
    return;
  }
  Downloader downloader(context_);
  const auto values = static_cast<size_t>(count * k_);
  downloader.receive(scores, results_.scores + first_query * k_, values * sizeof(float));
  downloader.receive(indices, results_.indices + first_query * k_, values * sizeof(int64_t));
  downloader.finish();
}

}  // namespace

void top_k(const SearchInput& input, int64_t k, Metric metric, const SearchResults& results,
           Context& context) {
  if (k == 0 || input.queries.rows.rows == 0) return;
  Search(input, k, metric, results, context).run();
}

}  // namespace pytrace::cuda
