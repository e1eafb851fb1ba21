#include <algorithm>
#include <cstdint>

#include "cuda/device.cuh"
#include "cuda/topk_filter.cuh"
#include "cuda/topk_prepare.cuh"
#include "cuda/topk_product.h"
#include "cuda/topk_refine.cuh"

namespace pytrace::cuda {
namespace {

// What the sort of one query's keys takes of shared memory (32 KiB): small enough for several
// blocks a multiprocessor. k of them are the best so far, the others a list of hits, so that lists
// are at least three times kMostProductK long.
constexpr int64_t kSortedKeys = 4096;
constexpr int64_t kMostGroup = 2048;  // with lists of 4,096 hits at 4 bytes: 32 MB
constexpr int64_t kQueryBytes = int64_t{64} << 20;
constexpr int64_t kMostWave = int64_t{1} << 20;  // of 16 bytes an item: 16 MB
// Written, and read again while they lie in the second-level cache of a large card (40 to 60 MB).
constexpr int64_t kConvertedBytes = int64_t{32} << 20;
// Enough blocks for every multiprocessor to hold as many as it can, several times over.
constexpr int64_t kBlocksOfMultiprocessor = 64;

// Longer rows would let the bounds' rounding grow past 2^-6 of the lengths.
constexpr int64_t kMostDim = int64_t{1} << 16;

int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t value_bytes(Number type) {
  return type == Number::kFloat32 ? 4 : type == Number::kInt8 ? 1 : 2;
}

// Whether rows begin at multiples of 16 bytes.
bool is_aligned(const DeviceRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 &&
         rows.stride * value_bytes(rows.type) % 16 == 0;
}

// Tensor cores can read the rows where they are. Rows whose last 16 bytes are not all theirs cannot
// be: what stands behind them may be anything, or nothing.
bool readable(const DeviceRows& items) {
  const bool half = items.type == Number::kFloat16 || items.type == Number::kBfloat16;
  return half && items.cols % 8 == 0 && is_aligned(items);
}

ProductSizes filled_in(const ProductSizes& sizes, int64_t queries, const DeviceRows& items,
                       int64_t k, int64_t item_stride, int64_t padded) {
  ProductSizes full = sizes;
  if (full.capacity == 0) full.capacity = kSortedKeys - k;
  full.capacity = std::max({full.capacity, k, Visits::kChunk});
  if (full.first == 0) {
    // So many that the first lists are not full of what hardly any query wants, and that some are
    // left where a few are excluded.
    full.first = std::max<int64_t>(512, 4 * k);
  }
  full.first = std::clamp(full.first, int64_t{1}, full.capacity);
  if (full.growth == 0) {
    // A wave hits k * (growth - 1) items a query. A hit costs as much memory traffic as an item's
    // row, a wave some ten microseconds, in which a card's memory moves that of 1,000 queries' 100
    // hits or so.
    full.growth = 1 + std::clamp<int64_t>(160 / k, 2, 15);
  }
  full.growth = std::max<int64_t>(full.growth, 2);
  if (full.wave == 0) {
    full.wave = item_stride == 0 ? kMostWave
                                 : std::clamp<int64_t>(kConvertedBytes / (2 * item_stride),
                                                       kTileItems, kMostWave);
  }
  full.wave =
      std::clamp<int64_t>(full.wave, 1, std::max<int64_t>(1, Visits(items.rows).positions()));
  if (full.group == 0) {
    full.group = std::clamp(kQueryBytes / (6 * padded) / kTileQueries * kTileQueries,
                            int64_t{kTileQueries}, kMostGroup);
  }
  full.group = std::clamp<int64_t>(full.group, 1, std::max<int64_t>(1, queries));
  return full;
}

int64_t room_of(int64_t k, int64_t capacity) {
  int64_t room = 2 * kCompared;
  while (room < k + capacity) room *= 2;
  return room;
}

// One call on items of type T, as `Element` for the tensor cores.
template <typename T, typename Element>
class Search {
 public:
  Search(const ProductInput& input, const ProductWorkspace& workspace, unsigned long long* keys,
         unsigned long long* not_finite, Context& context)
      : input_(input),
        workspace_(workspace),
        sizes_(workspace.sizes),
        keys_(keys),
        not_finite_(not_finite),
        stream_(context.stream()),
        multiprocessors_(context.multiprocessors()),
        visits_(input.items.rows) {}

  ProductCounts run() {
    for (int64_t first = 0; first < input_.queries.rows; first += sizes_.group) {
      first_query_ = first;
      group_ = std::min(sizes_.group, input_.queries.rows - first);
      if (!run_group()) break;
    }
    return counts_;
  }

 private:
  // False if a score is not finite.
  bool run_group() {
    clear(keys_ + first_query_ * input_.k, group_ * input_.k);
    clear(workspace_.counts.data(), group_);
    clear(workspace_.held.data(), group_);
    clear(workspace_.totals.data(), 2);
    prepare();
    active_ = group_;
    unsigned long long totals[2] = {};
    for (pass_ = 0; active_ > 0; ++pass_) {
      clear(workspace_.overflowed.data(), group_);
      clear(workspace_.totals.data(), 1);
      ++counts_.passes;
      run_pass();
      unsigned long long not_finite = 0;
      require(cudaMemcpyAsync(totals, workspace_.totals.data(), sizeof totals,
                              cudaMemcpyDeviceToHost, stream_),
              "copying");
      require(cudaMemcpyAsync(&not_finite, not_finite_, sizeof not_finite, cudaMemcpyDeviceToHost,
                              stream_),
              "copying");
      require(cudaStreamSynchronize(stream_), "running kernels");
      if (not_finite != ~0ull) return false;
      active_ = static_cast<int64_t>(totals[0]);
    }
    counts_.hits += static_cast<int64_t>(totals[1]);
    return true;
  }

  void run_pass() {
    const int64_t positions = visits_.positions();
    int64_t most = sizes_.wave;
    if (pass_ == 2) most = std::min(most, 16 * sizes_.capacity);
    if (pass_ >= 3) most = std::min(most, sizes_.capacity);
    int64_t seen = 0;
    if (pass_ == 0) {
      seen = std::min(sizes_.first, positions);
      keep_hits(seen);
    }
    while (seen < positions) {
      int64_t count = std::min(most, positions - seen);
      if (pass_ == 0) count = std::min(count, seen * (sizes_.growth - 1));
      find_hits(seen, count);
      keep_hits(0);
      seen += count;
      ++counts_.waves;
    }
  }

  void prepare() {
    const DeviceRows& queries = input_.queries;
    switch (queries.type) {
      case Number::kFloat32:
        return prepare_as<float>();
      case Number::kFloat16:
        return prepare_as<Half>();
      default:
        return prepare_as<Bfloat16>();
    }
  }

  template <typename Q>
  void prepare_as() {
    const DeviceRows& queries = input_.queries;
    QueryPreparation<Q> job{};
    job.from = static_cast<const Q*>(queries.data) + first_query_ * queries.stride;
    job.stride = queries.stride;
    job.count = group_;
    job.dim = queries.cols;
    job.padded = workspace_.padded;
    job.loss_weight = kLossWeight<T>;
    job.exact = workspace_.exact_queries.data();
    job.rounded = workspace_.rounded_queries.data();
    job.bounds = workspace_.query_bounds.data();
    job.lengths = workspace_.query_lengths.data();
    launch(stream_, grid((group_ * kWarp + kPrepareThreads - 1) / kPrepareThreads),
           dim3(kPrepareThreads), 0, prepare_queries<Q, Element>, job);
  }

  void find_hits(int64_t first, int64_t count) {
    const DeviceRows& items = input_.items;
    const bool in_place = workspace_.item_stride == 0;
    ItemPreparation<T> prepared{};
    prepared.from = static_cast<const T*>(items.data);
    prepared.stride = items.stride;
    prepared.aligned = is_aligned(items);
    prepared.dim = items.cols;
    prepared.scale = items.scale;
    prepared.one_scale = items.one_scale;
    prepared.metric = input_.metric;
    prepared.visits = visits_;
    prepared.first = first;
    prepared.count = count;
    prepared.padded = rounded_up(count, kTileItems);
    prepared.bounds = workspace_.item_bounds.data();
    prepared.rounded = workspace_.rounded_items.data();
    prepared.rounded_stride = workspace_.item_stride;
    // Only halves can be read in place.
    auto prepare = prepare_items<T, Element, true>;
    if constexpr (sizeof(T) == sizeof(Element)) {
      if (in_place) prepare = prepare_items<T, Element, false>;
    }
    launch(stream_, grid(prepared.padded * kLanesOfPair / kPrepareThreads), dim3(kPrepareThreads),
           0, prepare, prepared);

    FilterJob<Element> job{};
    job.queries = reinterpret_cast<const Element*>(workspace_.rounded_queries.data());
    job.query_bounds = workspace_.query_bounds.data();
    job.order = order();
    job.query_count = active_;
    job.items = static_cast<const Element*>(
        in_place ? items.data : static_cast<const void*>(workspace_.rounded_items.data()));
    job.item_stride = in_place ? items.stride : workspace_.item_stride;
    job.item_columns = in_place ? items.cols : workspace_.item_stride;
    job.in_place = in_place;
    job.count = count;
    job.item_bounds = workspace_.item_bounds.data();
    job.slices = workspace_.padded / filter::kColumns;
    job.first_index = static_cast<uint32_t>(input_.first_index);
    job.counts = workspace_.counts.data();
    job.hits = workspace_.hits.data();
    job.capacity = sizes_.capacity;
    job.not_finite = not_finite_;
    const int64_t tiles =
        prepared.padded / kTileItems * (rounded_up(active_, kTileQueries) / kTileQueries);
    const auto kernel = input_.metric == Metric::kInnerProduct
                            ? filter::append_passing<Metric::kInnerProduct, Element>
                        : input_.metric == Metric::kCosine
                            ? filter::append_passing<Metric::kCosine, Element>
                            : filter::append_passing<Metric::kEuclidean, Element>;
    // A block a multiprocessor, for as long as there are tiles.
    launch(stream_, dim3(static_cast<unsigned>(std::min<int64_t>(tiles, multiprocessors_))),
           dim3(kFilterThreads), filter_shared_bytes(), kernel, job);
  }

  // `first_hits` above 0: so many positions are hits, whatever the lists hold.
  void keep_hits(int64_t first_hits) {
    const DeviceRows& items = input_.items;
    RefineJob<T> job{};
    job.queries = workspace_.exact_queries.data();
    job.padded = workspace_.padded;
    job.dim = items.cols;
    job.bounds = workspace_.query_bounds.data();
    job.lengths = workspace_.query_lengths.data();
    job.order = order();
    job.query_count = active_;
    job.items = static_cast<const T*>(items.data);
    job.item_stride = items.stride;
    job.aligned = is_aligned(items);
    job.scale = items.scale;
    job.one_scale = items.one_scale;
    job.visits = visits_;
    job.first_hits = first_hits;
    job.counts = workspace_.counts.data();
    job.hits = workspace_.hits.data();
    job.capacity = sizes_.capacity;
    job.repeated = pass_ > 0;
    job.excluded = input_.excluded;
    job.first_query = input_.first_query + first_query_;
    job.first_index = static_cast<uint32_t>(input_.first_index);
    job.k = input_.k;
    job.room = room_of(input_.k, sizes_.capacity);
    job.keys = keys_ + first_query_ * input_.k;
    job.held = workspace_.held.data();
    job.overflowed = workspace_.overflowed.data();
    job.next = workspace_.orders.data() + pass_ % 2 * sizes_.group;
    job.totals = workspace_.totals.data();
    job.not_finite = not_finite_;
    const auto kernel =
        input_.metric == Metric::kInnerProduct ? refine::keep_best<Metric::kInnerProduct, T>
        : input_.metric == Metric::kCosine     ? refine::keep_best<Metric::kCosine, T>
                                               : refine::keep_best<Metric::kEuclidean, T>;
    launch(stream_, grid(active_), dim3(kRefineThreads), refine_shared_bytes(job.room), kernel,
           job);
  }

  // The queries of this pass: those whose lists were too short in the one before.
  const uint32_t* order() const {
    return pass_ == 0 ? nullptr : workspace_.orders.data() + (pass_ - 1) % 2 * sizes_.group;
  }

  dim3 grid(int64_t blocks) const {
    return dim3(static_cast<unsigned>(
        std::min(blocks, int64_t{multiprocessors_} * kBlocksOfMultiprocessor)));
  }

  template <typename Value>
  void clear(Value* values, int64_t count) {
    require(cudaMemsetAsync(values, 0, static_cast<size_t>(count) * sizeof(Value), stream_),
            "clearing memory");
  }

  const ProductInput& input_;
  const ProductWorkspace& workspace_;
  const ProductSizes& sizes_;
  unsigned long long* keys_;
  unsigned long long* not_finite_;
  cudaStream_t stream_;
  int multiprocessors_;
  Visits visits_;
  int64_t first_query_ = 0;
  int64_t group_ = 0;
  int64_t active_ = 0;
  int64_t pass_ = 0;
  ProductCounts counts_;
};

}  // namespace

bool product_is_better(int64_t queries, const DeviceRows& items, int64_t k) {
  // A scan multiplies and adds at 1/16 of what tensor cores reach (8.0: 64 and 1,024 a cycle and
  // multiprocessor) and stops being memory-bound at about ten queries (9.0: 16.7 TFLOP/s of
  // multiply-adds that come with loads, for 3.35 TB/s of two bytes each); a tile of 128 queries
  // costs tensor cores as long as memory needs for its items. From 16 queries on, the product wins
  // where there is enough of it to hide its preparation and some ten launches (0.1 ms, in which a
  // scan does a few times 10^8 multiply-adds).
  constexpr int64_t kLeastQueries = 16;
  constexpr int64_t kLeastItems = 8192;
  constexpr double kLeastWork = 0x1p28;
  const double work = static_cast<double>(queries) * static_cast<double>(items.rows) *
                      static_cast<double>(items.cols);
  return queries >= kLeastQueries && items.rows >= std::max(kLeastItems, 16 * k) && k >= 1 &&
         k <= kMostProductK && items.cols <= kMostDim && work >= kLeastWork;
}

ProductWorkspace product_workspace(Workspace& workspace, int64_t queries, const DeviceRows& items,
                                   int64_t k, const ProductSizes& sizes) {
  ProductWorkspace taken;
  taken.padded = std::max<int64_t>(filter::kColumns, rounded_up(items.cols, filter::kColumns));
  if (!readable(items)) {
    const int64_t step = items.type == Number::kInt8 ? kPrepared<int8_t> : kPrepared<Half>;
    taken.item_stride = std::max(step, rounded_up(items.cols, step));
  }
  taken.sizes = filled_in(sizes, queries, items, k, taken.item_stride, taken.padded);
  const int64_t group = taken.sizes.group;
  taken.exact_queries = workspace.take<float>(group * taken.padded);
  taken.rounded_queries = workspace.take<uint16_t>(group * taken.padded);
  taken.query_bounds = workspace.take<QueryBound>(group);
  taken.query_lengths = workspace.take<QueryLength>(group);
  taken.rounded_items =
      workspace.take<uint16_t>(rounded_up(taken.sizes.wave, kTileItems) * taken.item_stride);
  taken.item_bounds = workspace.take<ItemBound>(rounded_up(taken.sizes.wave, kTileItems));
  taken.hits = workspace.take<uint32_t>(group * taken.sizes.capacity);
  taken.counts = workspace.take<unsigned>(group);
  taken.held = workspace.take<unsigned>(group);
  taken.overflowed = workspace.take<unsigned>(group);
  taken.orders = workspace.take<uint32_t>(2 * group);
  taken.totals = workspace.take<unsigned long long>(2);
  return taken;
}

ProductCounts product_top_k(const ProductInput& input, const ProductWorkspace& workspace,
                            unsigned long long* keys, unsigned long long* not_finite,
                            Context& context) {
  switch (input.items.type) {
    case Number::kFloat32:
      return Search<float, Bfloat16>(input, workspace, keys, not_finite, context).run();
    case Number::kFloat16:
      return Search<Half, Half>(input, workspace, keys, not_finite, context).run();
    case Number::kBfloat16:
      return Search<Bfloat16, Bfloat16>(input, workspace, keys, not_finite, context).run();
    case Number::kInt8:
      break;
  }
  return Search<int8_t, Half>(input, workspace, keys, not_finite, context).run();
}

}  // namespace pytrace::cuda
