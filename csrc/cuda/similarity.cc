#include <algorithm>

#include "cuda/topk_plan.h"
#include "cuda/topk_scan.h"
#include "cuda/topk_search.h"
#include "cuda/transfers.h"

namespace pytrace::cuda {
namespace {

constexpr int64_t kUnitsOfMultiprocessor = 8;
constexpr int64_t kMostChunk = int64_t{1} << 18;
// Of scores on their way to the host: kernels wait for them, so more would gain nothing.
constexpr int64_t kMostScoreBytes = int64_t{64} << 20;

}  // namespace

void similarity(const SearchInput& input, Metric metric, float* out, bool on_card,
                Context& context) {
  const int64_t queries = input.queries.rows.rows;
  const int64_t items = input.items.rows.rows;
  if (queries == 0 || items == 0) return;
  const auto memory =
      static_cast<int64_t>(std::min(memory_to_use(context), static_cast<size_t>(1) << 60));
  const std::vector<SearchGroup> groups = groups_of(input);
  const ScanShape shape = scan_shape(queries, input.items.rows.cols, input.items.rows.type, 0);
  const int64_t target = int64_t{context.multiprocessors()} * kUnitsOfMultiprocessor;

  // Scores for the host: whole rows of them if a chunk of queries has room, else a tile's.
  const int64_t score_bytes = std::min(memory / 4, kMostScoreBytes);
  const int64_t columns = on_card ? items : std::clamp<int64_t>(score_bytes / 4, 1, items);
  int64_t chunk = std::min(queries, kMostChunk);
  chunk = std::min(chunk, std::max<int64_t>(1, memory / 4 / QueryChunks::row_bytes(input)));
  if (!on_card) chunk = std::clamp<int64_t>(score_bytes / 4 / columns, 1, chunk);

  Workspace workspace;
  const auto word = workspace.take<unsigned long long>(1);
  const auto units = workspace.take<ScanUnit>(target + chunk);
  const auto scores = workspace.take<float>(on_card ? 0 : chunk * columns);
  QueryChunks chunks(input, chunk, metric == Metric::kCosine, workspace);
  const auto taken = static_cast<int64_t>(workspace.bytes());
  ItemTiles tiles(input, static_cast<size_t>(std::max<int64_t>(0, memory - taken)), chunk < queries,
                  columns, workspace);
  context.lay_out(workspace);

  cudaStream_t stream = context.stream();
  Uploader uploader(context);
  Downloader downloader(context);
  Sent sent;
  require(cudaMemsetAsync(word.data(), 0xff, sizeof(unsigned long long), stream), "filling");
  tiles.send_scale(sent, stream);
  for (int64_t query = 0; query < queries; query += chunk) {
    const int64_t count = std::min(chunk, queries - query);
    chunks.prepare(query, count, uploader, context);
    for (int64_t item = 0; item < items; item += tiles.rows()) {
      ScanInput scan;
      scan.items = tiles.tile(item, uploader, context);
      scan.first_index = item;
      scan.queries = chunks.values();
      scan.query_lengths = chunks.lengths();
      scan.first_query = query;
      scan.metric = metric;
      ScanUnits cut = cut_units(clipped(groups, query, query + count, item, item + scan.items.rows),
                                query, count, item, shape, target);
      scan.units = units.data();
      scan.unit_count = static_cast<int64_t>(cut.units.size());
      sent.send(std::move(cut.units), units.data(), stream);
      float* to = on_card ? out + query * items + item : scores.data();
      scan_scores(scan, shape, to, on_card ? items : scan.items.rows, false, word.data(),
                  context.multiprocessors(), stream);
      tiles.read(context);
      if (on_card) continue;
      float* host = out + query * items + item;
      if (scan.items.rows == items) {
        downloader.receive(to, host, static_cast<size_t>(count * items) * sizeof(float));
      } else {
        for (int64_t q = 0; q < count; ++q) {
          downloader.receive(to + q * scan.items.rows, host + q * items,
                             static_cast<size_t>(scan.items.rows) * sizeof(float));
        }
      }
      downloader.finish();
    }
    context.finish();
    sent.clear();
  }
  require_finite(input, word.data(), context);
}

}  // namespace pytrace::cuda
