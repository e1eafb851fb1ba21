#include "topk/topk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/parallel.h"
#include "topk/topk_check.h"
#include "topk/topk_search.h"

namespace pytrace {
namespace {

// Multiply-adds worth handing to another thread: some 50 us of one core, ten times what waking a
// thread costs.
constexpr int64_t kGrain = int64_t{1} << 20;

int64_t work(const Group& group, int64_t dim) {
  // In floating point, because the product of three sizes may not fit.
  const double macs = static_cast<double>(group.queries()) * static_cast<double>(group.items()) *
                      static_cast<double>(std::max<int64_t>(dim, 16));
  return static_cast<int64_t>(std::min(macs, 1e18));
}

void run_one(const Search& search, const Group& group, int64_t dim, int requested) {
  const int threads = resolve_threads(requested, work(group, dim) / kGrain);
  if (threads == 1) return search.run(group);
  if (search.worth_splitting(group, threads)) return search.run_split(group, threads);
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
      if (!finite_at(items, row, col)) fail_not_finite(name, row, col);
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
  fail_overflow(where.query, where.item);
}

}  // namespace

void top_k(const TopKInput& input, int64_t k, Metric metric, int threads, float* scores,
           int64_t* indices) {
  check_search(input, k);
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
  require_same_width(queries.cols, items.cols);
  const ScoreKernels& scorer = score_kernels();
  const SelectKernels& select = select_kernels();
  ScoreJob whole{};
  whole.query_stride = queries.stride;
  whole.item_stride = items.stride;
  whole.item_type = items.type;
  whole.dim = items.cols;
  whole.squared_distance = metric == Metric::kEuclidean;
  whole.streamed = from_memory(items);
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
      scorer.squared_lengths(job, lengths.data());
      for (float& length : lengths) length = std::sqrt(length);
    };
    lengths_of(as_items(queries), query_lengths);
    lengths_of(items, item_lengths);
  }
  const int64_t tile_rows = rows_of_tile(items);
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
                     scorer.score(job, out + query * items.rows + item, items.rows);
                     for (int64_t q = query; q < query + job.query_count; ++q) {
                       float* row = out + q * items.rows + item;
                       const bool cosine = metric == Metric::kCosine;
                       if (!select.finish(row, job.item_count, metric, job.item_scale,
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
  if (rows.cols == 0) return;  // of however many rows
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
