#include <algorithm>

#include "cuda/topk_plan.h"
#include "cuda/topk_scan.h"
#include "cuda/topk_search.h"
#include "cuda/transfers.h"

namespace pytrace::cuda {
namespace {

constexpr int64_t kUnitsOfMultiprocessor = 8;
constexpr int64_t kMostChunk = int64_t{1} << 18;
// Queries of a tile for the host at least, where rows of scores are long: items are read again for
// those of the next tile.
constexpr int64_t kQueriesOfTile = 64;

// One of two places for a tile of the matrix: one is on its way while the other is computed.
struct Tile {
  Workspace::Piece<float> scores;
  Sent sent;
  Event left;
};

}  // namespace

void similarity(const SearchInput& input, Metric metric, float* out, bool on_card,
                Context& context) {
  const int64_t queries = input.queries.rows.rows;
  const int64_t items = input.items.rows.rows;
  if (queries == 0 || items == 0) return;
  const auto memory = static_cast<int64_t>(memory_to_use(context));
  const std::vector<SearchGroup> groups = groups_of(input);
  const int64_t width = input.items.rows.cols;
  const ScanShape shape = scan_shape(queries, width, input.items.rows.type, 0);
  const int64_t target = int64_t{context.multiprocessors()} * kUnitsOfMultiprocessor;

  const int64_t chunk = std::clamp<int64_t>(memory / 4 / QueryChunks::row_bytes(input), 1,
                                            std::min(queries, kMostChunk));
  int64_t tile_queries = chunk;
  int64_t columns = items;
  if (!on_card) {
    const int64_t scores = std::max<int64_t>(1, std::min(memory / 8, Downloader::kHeldBytes) / 4);
    tile_queries = std::min({chunk, scores, std::max(kQueriesOfTile, scores / items)});
    columns = std::clamp<int64_t>(scores / tile_queries, 1, items);
  }

  Workspace workspace;
  const auto word = workspace.take<unsigned long long>(1);
  const auto units = workspace.take<ScanUnit>(target + chunk);
  Tile places[2];
  for (Tile& place : places) {
    place.scores = workspace.take<float>(on_card ? 0 : tile_queries * columns);
  }
  QueryChunks chunks(input, chunk, metric == Metric::kCosine, workspace);
  const auto taken = static_cast<int64_t>(workspace.bytes());
  ItemTiles tiles(input, static_cast<size_t>(std::max<int64_t>(0, memory - taken)), chunk < queries,
                  items, workspace);
  context.lay_out(workspace);

  cudaStream_t stream = context.stream();
  Uploader uploader(context);
  Downloader downloader(context);
  int next = 0;
  Sent sent;
  require(cudaMemsetAsync(word.data(), 0xff, sizeof(unsigned long long), stream), "filling");
  tiles.send_scale(sent, stream);

  // Of the queries and items that are ready: `part` counts from the chunk's first query.
  const auto score_tile = [&](ScanInput scan, int64_t first_query, int64_t part, int64_t count) {
    Tile& place = places[next];
    next = 1 - next;
    place.left.wait();
    place.sent.clear();
    scan.queries = chunks.values() + part * scanned_query_values(width, input.items.rows.type);
    scan.query_lengths = chunks.lengths() == nullptr ? nullptr : chunks.lengths() + part;
    scan.first_query = first_query + part;
    scan.metric = metric;
    const int64_t rows = scan.items.rows;
    ScanUnits cut = cut_units(clipped(groups, scan.first_query, scan.first_query + count,
                                      scan.first_index, scan.first_index + rows),
                              scan.first_query, count, scan.first_index, shape, target);
    scan.units = units.data();
    scan.unit_count = static_cast<int64_t>(cut.units.size());
    place.sent.send(std::move(cut.units), units.data(), stream);
    float* to = out + scan.first_query * items + scan.first_index;
    scan_scores(scan, shape, on_card ? to : place.scores.data(), on_card ? items : rows, false,
                word.data(), context.multiprocessors(), stream);
    if (on_card) {
      place.left.record(stream);
      return;
    }
    constexpr int64_t kSize = sizeof(float);
    downloader.receive(place.scores.data(), {to, items * kSize, rows * kSize, count});
    place.left.record(context.return_stream());
  };

  for (int64_t query = 0; query < queries; query += chunk) {
    const int64_t count = std::min(chunk, queries - query);
    chunks.prepare(query, count, uploader, context);
    for (int64_t item = 0; item < items; item += tiles.rows()) {
      const DeviceRows tile = tiles.tile(item, uploader, context);
      for (int64_t part = 0; part < count; part += tile_queries) {
        for (int64_t column = 0; column < tile.rows; column += columns) {
          ScanInput scan;
          scan.items = slice(tile, column, std::min(columns, tile.rows - column));
          scan.first_index = item + column;
          score_tile(scan, query, part, std::min(tile_queries, count - part));
        }
      }
      tiles.read(context);
    }
  }
  downloader.finish();
  require_finite(input, word.data(), context);
}

}  // namespace pytrace::cuda
