#include "cuda/topk_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cuda/topk_rows.h"
#include "topk/topk_check.h"

namespace pytrace::cuda {
namespace {

constexpr unsigned long long kNone = ~0ull;

// A tile this large keeps a card's copy engine and kernels busy (some 10 ms at 25 GB/s); more would
// only be memory that the context keeps.
constexpr size_t kMostTileBytes = size_t{256} << 20;

bool finite_at(const void* data, Number type, int64_t at) {
  switch (type) {
    case Number::kFloat32:
      return std::isfinite(static_cast<const float*>(data)[at]);
    case Number::kFloat16:
      return (static_cast<const uint16_t*>(data)[at] & 0x7c00) != 0x7c00;
    case Number::kBfloat16:
      return (static_cast<const uint16_t*>(data)[at] & 0x7f80) != 0x7f80;
    case Number::kInt8:
      break;
  }
  return true;
}

void require_finite_rows(const PlacedRows& placed, const char* name, unsigned long long* word,
                         Context& context) {
  const DeviceRows& rows = placed.rows;
  if (rows.type == Number::kInt8 || rows.cols == 0) return;
  if (!placed.on_card) {
    for (int64_t row = 0; row < rows.rows; ++row) {
      for (int64_t col = 0; col < rows.cols; ++col) {
        if (!finite_at(rows.data, rows.type, row * rows.stride + col))
          fail_not_finite(name, row, col);
      }
    }
    return;
  }
  unsigned long long first = kNone;
  require(cudaMemsetAsync(word, 0xff, sizeof *word, context.stream()), "filling");
  find_not_finite(rows, word, context.stream());
  require(cudaMemcpyAsync(&first, word, sizeof first, cudaMemcpyDeviceToHost, context.stream()),
          "copying from the card");
  context.finish();
  if (first == kNone) return;
  const auto at = static_cast<int64_t>(first);
  fail_not_finite(name, at / rows.cols, at % rows.cols);
}

HostRows host_rows(const DeviceRows& rows, int64_t first, int64_t count) {
  const int64_t bytes = number_bytes(rows.type);
  return {static_cast<const char*>(rows.data) + first * rows.stride * bytes, rows.stride * bytes,
          rows.cols * bytes, count};
}

}  // namespace

int64_t number_bytes(Number type) {
  return type == Number::kFloat32 ? 4 : type == Number::kInt8 ? 1 : 2;
}

DeviceRows slice(DeviceRows rows, int64_t first, int64_t count) {
  rows.data = static_cast<const char*>(rows.data) + first * rows.stride * number_bytes(rows.type);
  rows.rows = count;
  if (rows.scale != nullptr && !rows.one_scale) rows.scale += first;
  return rows;
}

std::vector<SearchGroup> groups_of(const SearchInput& input) {
  std::vector<SearchGroup> groups;
  const auto add = [&](const SearchGroup& group) {
    if (group.first_query < group.last_query && group.first_item < group.last_item)
      groups.push_back(group);
  };
  if (input.item_offsets.size == 0) {
    add({0, input.queries.rows.rows, 0, input.items.rows.rows});
    return groups;
  }
  for (int64_t i = 0; i + 1 < input.item_offsets.size; ++i) {
    const bool own = input.query_offsets.size == 0;
    add({own ? i : input.query_offsets[i], own ? i + 1 : input.query_offsets[i + 1],
         input.item_offsets[i], input.item_offsets[i + 1]});
  }
  return groups;
}

std::vector<SearchGroup> clipped(const std::vector<SearchGroup>& groups, int64_t first_query,
                                 int64_t last_query, int64_t first_item, int64_t last_item) {
  std::vector<SearchGroup> parts;
  auto group = std::partition_point(
      groups.begin(), groups.end(),
      [&](const SearchGroup& candidate) { return candidate.last_query <= first_query; });
  for (; group != groups.end() && group->first_query < last_query; ++group) {
    const SearchGroup part{
        std::max(group->first_query, first_query), std::min(group->last_query, last_query),
        std::max(group->first_item, first_item), std::min(group->last_item, last_item)};
    if (part.first_item < part.last_item) parts.push_back(part);
  }
  return parts;
}

ScanUnits cut_units(const std::vector<SearchGroup>& groups, int64_t first_query, int64_t queries,
                    int64_t first_item, const ScanShape& shape, int64_t target) {
  double total = 0.0;
  for (const SearchGroup& group : groups) {
    const int64_t blocks =
        (group.last_query - group.first_query + shape.queries - 1) / shape.queries;
    total += static_cast<double>(blocks) * static_cast<double>(group.last_item - group.first_item);
  }
  const auto share = static_cast<int64_t>(std::ceil(total / static_cast<double>(target)));
  const int64_t most_rows = std::max(scan_step(shape), share);
  ScanUnits cut;
  cut.merges.resize(static_cast<size_t>(queries));
  int64_t lists = 0;
  for (const SearchGroup& group : groups) {
    const int64_t items = group.last_item - group.first_item;
    const int64_t wanted = (items + most_rows - 1) / most_rows;
    const int64_t rows = (items + wanted - 1) / wanted;
    const int64_t parts = (items + rows - 1) / rows;
    for (int64_t query = group.first_query; query < group.last_query; query += shape.queries) {
      const int64_t count = std::min<int64_t>(shape.queries, group.last_query - query);
      for (int64_t q = 0; q < count; ++q)
        cut.merges[static_cast<size_t>(query - first_query + q)] = {lists + q, parts, count};
      for (int64_t part = 0; part < parts; ++part) {
        ScanUnit unit;
        unit.first_query = query - first_query;
        unit.queries = count;
        unit.first_item = group.first_item + part * rows - first_item;
        unit.last_item =
            std::min(group.first_item + (part + 1) * rows, group.last_item) - first_item;
        unit.first_list = lists;
        unit.first_column = part * rows;
        cut.units.push_back(unit);
        lists += count;
      }
    }
  }
  return cut;
}

int64_t ItemTiles::row_bytes(const SearchInput& input) {
  const DeviceRows& items = input.items.rows;
  return input.items.on_card ? 0 : std::max<int64_t>(1, items.cols * number_bytes(items.type));
}

ItemTiles::ItemTiles(const SearchInput& input, size_t memory, bool often, int64_t most_rows,
                     Workspace& workspace)
    : input_(input) {
  const int64_t rows = std::max<int64_t>(1, input.items.rows.rows);
  tile_rows_ = std::clamp<int64_t>(most_rows, 1, rows);
  scale_ = workspace.take<float>(input.scale.size);
  if (input.items.on_card) return;
  const auto bytes = static_cast<size_t>(row_bytes(input));
  const auto all = static_cast<size_t>(rows);
  if (tile_rows_ == rows && all <= memory / bytes && (often || all <= kMostTileBytes / 4 / bytes)) {
    buffers_ = 1;
  } else {
    buffers_ = 2;
    const size_t fit = std::min(memory / 2, kMostTileBytes) / bytes;
    tile_rows_ = std::min(tile_rows_, static_cast<int64_t>(std::max<size_t>(1, fit)));
  }
  for (int i = 0; i < buffers_; ++i)
    memory_[i] = workspace.take<char>(tile_rows_ * row_bytes(input));
}

void ItemTiles::send_scale(Sent& sent, cudaStream_t stream) {
  sent.send(std::vector<float>(input_.scale.begin(), input_.scale.end()), scale_.data(), stream);
}

DeviceRows ItemTiles::tile(int64_t first, Uploader& uploader, Context& context) {
  DeviceRows items = input_.items.rows;
  const int64_t count = std::min(tile_rows_, items.rows - first);
  items = slice(items, first, count);
  if (input_.scale.size > 0) {
    items.one_scale = input_.scale.size == 1;
    items.scale = scale_.data() + (items.one_scale ? 0 : first);
  }
  if (input_.items.on_card) return items;
  if (buffers_ == 1 && there_ == first) {
    items.data = memory_[0].data();
  } else {
    buffer_ = buffers_ == 1 ? 0 : 1 - buffer_;
    free_[buffer_].hold(context.copy_stream());
    uploader.send(host_rows(input_.items.rows, first, count), memory_[buffer_].data());
    sent_[buffer_].record(context.copy_stream());
    sent_[buffer_].hold(context.stream());
    items.data = memory_[buffer_].data();
    there_ = first;
  }
  items.stride = items.cols;
  return items;
}

int64_t QueryChunks::row_bytes(const SearchInput& input) {
  const DeviceRows& rows = input.queries.rows;
  return scanned_query_values(rows.cols, input.items.rows.type) * 4 + 4 +
         (input.queries.on_card ? 0 : rows.cols * number_bytes(rows.type));
}

QueryChunks::QueryChunks(const SearchInput& input, int64_t most, bool lengths, Workspace& workspace)
    : input_(input), wants_lengths_(lengths) {
  const DeviceRows& rows = input.queries.rows;
  given_ = workspace.take<char>(
      input.queries.on_card ? 0 : most * std::max<int64_t>(1, rows.cols) * number_bytes(rows.type));
  values_ = workspace.take<float>(most * scanned_query_values(rows.cols, input.items.rows.type));
  lengths_ = workspace.take<float>(lengths ? most : 0);
}

void QueryChunks::prepare(int64_t first, int64_t count, Uploader& uploader, Context& context) {
  rows_ = slice(input_.queries.rows, first, count);
  if (!input_.queries.on_card) {
    prepared_.hold(context.copy_stream());
    uploader.send(host_rows(input_.queries.rows, first, count), given_.data());
    sent_.record(context.copy_stream());
    sent_.hold(context.stream());
    rows_.data = given_.data();
    rows_.stride = rows_.cols;
  }
  prepare_queries(rows_, input_.items.rows.type, values_.data(),
                  wants_lengths_ ? lengths_.data() : nullptr, context.stream());
  prepared_.record(context.stream());
}

void require_finite(const SearchInput& input, unsigned long long* word, Context& context) {
  unsigned long long found = kNone;
  require(cudaMemcpyAsync(&found, word, sizeof found, cudaMemcpyDeviceToHost, context.stream()),
          "copying from the card");
  context.finish();
  if (found == kNone) return;
  require_finite_rows(input.queries, "queries", word, context);
  require_finite_rows(input.items, "items", word, context);
  fail_overflow(static_cast<int64_t>(found >> 32), static_cast<int64_t>(found & 0xffffffffu));
}

}  // namespace pytrace::cuda
