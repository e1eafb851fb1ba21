#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "align/align_check.h"
#include "cuda/align.h"
#include "cuda/align_kernels.cuh"
#include "cuda/align_parts.h"
#include "cuda/packed.h"
#include "cuda/transfers.h"

namespace pytrace::cuda {
namespace {

// Rows are kept for candidates of more than a warp's symbols; so many warps a multiprocessor hide
// the latency of shuffles and are still at work on one pair each.
constexpr int64_t kLongWarps = 32;

int64_t size_of(Span<const int64_t> offsets, int64_t i) { return offsets[i + 1] - offsets[i]; }

// The references by their candidates' lengths: up to 4 symbols, up to 8, more.
struct Bins {
  static constexpr int kCount = 3;
  std::vector<int64_t> lists[kCount];
  int64_t counts[kCount] = {};
  int64_t most_symbols = 0;
  int64_t most_columns = 0;

  static int bin_of(int64_t symbols) { return symbols <= 4 ? 0 : symbols <= 8 ? 1 : 2; }

  explicit Bins(const AlignBatch& batch) {
    const int64_t candidates = batch.candidates.size();
    for (int64_t c = 0; c < candidates; ++c) {
      const int64_t symbols = size_of(batch.candidates.offsets, c);
      const int64_t references = size_of(batch.groups, c);
      if (references == 0) continue;
      most_symbols = std::max(most_symbols, symbols);
      counts[bin_of(symbols)] += references;
    }
    for (int64_t r = 0; r < batch.references.size(); ++r) {
      most_columns = std::max(most_columns, size_of(batch.references.offsets, r));
    }
    if (*std::max_element(counts, counts + kCount) == batch.references.size()) return;
    for (int64_t c = 0; c < candidates; ++c) {
      std::vector<int64_t>& list = lists[bin_of(size_of(batch.candidates.offsets, c))];
      for (int64_t r = batch.groups[c]; r < batch.groups[c + 1]; ++r) list.push_back(r);
    }
  }
};

template <typename Value, typename Pairs>
class Batch {
 public:
  Batch(Context& context, const AlignBatch& batch, const Bins& bins, int64_t memory,
        const Pairs& pairs)
      : context_(context),
        batch_(batch),
        bins_(bins),
        memory_(memory),
        pairs_(pairs),
        gaps_{static_cast<Value>(batch.scoring.gap), static_cast<Value>(batch.scoring.gap_open)},
        candidates_(batch.candidates.size()),
        references_(batch.references.size()) {}

  void run(const AlignedArrays& out, const std::function<StepArrays(int64_t)>* room) {
    lay_out(room != nullptr, out.on_card);
    send();
    if (batch_.scoring.affine()) {
      align<true>();
    } else {
      align<false>();
    }
    choose(out, room != nullptr);
    if (room == nullptr) return;
    if (batch_.scoring.affine()) {
      trace<true>(out.on_card, *room);
    } else {
      trace<false>(out.on_card, *room);
    }
  }

 private:
  using Row = Cell<Value>;

  int64_t left() const {
    return std::max<int64_t>(0, memory_ - static_cast<int64_t>(workspace_.bytes()));
  }

  void lay_out(bool want_steps, bool on_card) {
    Workspace& workspace = workspace_;
    if (!batch_.candidates_on_card) {
      candidate_values_ = workspace.take<int32_t>(batch_.candidates.values.size);
    }
    if (!batch_.references_on_card) {
      reference_values_ = workspace.take<int32_t>(batch_.references.values.size);
    }
    candidate_offsets_ = packed_.add(batch_.candidates.offsets.data, candidates_ + 1);
    reference_offsets_ = packed_.add(batch_.references.offsets.data, references_ + 1);
    groups_ = packed_.add(batch_.groups.data, candidates_ + 1);
    for (int bin = 0; bin < Bins::kCount; ++bin) {
      const std::vector<int64_t>& list = bins_.lists[bin];
      lists_[bin] = packed_.add(list.data(), static_cast<int64_t>(list.size()));
    }
    packed_.take(workspace);
    const Matrix<const double>& matrix = batch_.scoring.matrix;
    if (matrix.data != nullptr) matrix_ = workspace.take<double>(matrix.rows * matrix.cols);
    scores_ = workspace.take<double>(references_);
    paths_ = workspace.take<unsigned long long>(references_);
    best_ = workspace.take<int64_t>(candidates_);
    best_scores_ = workspace.take<double>(candidates_);
    matches_ = workspace.take<int64_t>(candidates_);
    lengths_ = workspace.take<int64_t>(candidates_);
    if (bins_.most_symbols > kWarp) {
      const int64_t of_warp = 2 * (bins_.most_columns + 1) * static_cast<int64_t>(sizeof(Row));
      const int64_t most = (bins_.counts[2] + kAlignWarps - 1) / kAlignWarps * kAlignWarps;
      const int64_t wanted =
          std::min(std::min(most, kLongWarps * context_.multiprocessors()), left() / of_warp);
      warps_ = std::max<int64_t>(kAlignWarps, wanted / kAlignWarps * kAlignWarps);
      rows_ = workspace.take<Row>(warps_ * 2 * (bins_.most_columns + 1));
    }
    if (want_steps) lay_out_traces(on_card);
    context_.lay_out(workspace);
  }

  // Bytes of a pair's trace in slabs of so many rows.
  static int64_t trace_bytes(int64_t symbols, int64_t columns, int64_t slab) {
    const int64_t slabs = symbols > 0 ? (symbols + slab - 1) / slab : 0;
    const int64_t rows = (symbols > kWarp ? 2 : 0) + (slabs > 1 ? slabs - 1 : 0);
    const int64_t strips = (std::min(symbols, slab) + kWarp - 1) / kWarp;
    const int64_t bytes = rows * (columns + 1) * static_cast<int64_t>(sizeof(Row)) +
                          strips * strip_bytes<kWarp>(columns);
    return (bytes + 255) / 256 * 256;
  }

  // Rows at a time: all if their directions fit, else as many as take the least memory, where the
  // kept rows weigh as much as the directions: symbols / slab * sizeof(Row) == slab.
  static int64_t slab_of(int64_t symbols, int64_t columns, int64_t memory) {
    const int64_t whole = std::max<int64_t>(kWarp, (symbols + kWarp - 1) / kWarp * kWarp);
    if (whole == kWarp || trace_bytes(symbols, columns, whole) <= memory) return whole;
    const double even = std::sqrt(static_cast<double>(symbols) * static_cast<double>(sizeof(Row)));
    return std::min(whole, (static_cast<int64_t>(even) + kWarp - 1) / kWarp * kWarp);
  }

  // The longest reference of each candidate bounds its trace before the best is known.
  void lay_out_traces(bool on_card) {
    offsets_ = workspace_.take<int64_t>(candidates_ + 1);
    traces_ = workspace_.take<Trace>(candidates_);
    std::vector<int64_t> longest(static_cast<size_t>(candidates_), -1);
    int64_t columns = 0;
    for (int64_t c = 0; c < candidates_; ++c) {
      int64_t& own = longest[static_cast<size_t>(c)];
      for (int64_t r = batch_.groups[c]; r < batch_.groups[c + 1]; ++r) {
        own = std::max(own, size_of(batch_.references.offsets, r));
      }
      if (own >= 0) columns += size_of(batch_.candidates.offsets, c) + own;
    }
    steps_ = workspace_.take<int64_t>(on_card ? 0 : 2 * columns);
    const int64_t budget = left();
    int64_t all = 0;
    int64_t largest = 256;
    for (int64_t c = 0; c < candidates_; ++c) {
      const int64_t own = longest[static_cast<size_t>(c)];
      if (own < 0) continue;
      const int64_t symbols = size_of(batch_.candidates.offsets, c);
      const int64_t bytes = trace_bytes(symbols, own, slab_of(symbols, own, budget));
      largest = std::max(largest, bytes);
      all = std::min(budget, all) + bytes;
    }
    trace_memory_bytes_ = std::max(largest, std::min(all, budget));
    trace_memory_ = workspace_.take<char>(trace_memory_bytes_);
  }

  void send() {
    Uploader uploader(context_);
    const auto upload = [&](const void* from, int64_t bytes, void* to) {
      if (bytes > 0) uploader.send(HostRows{from, bytes, bytes, 1}, to);
    };
    const auto& a = batch_.candidates;
    const auto& b = batch_.references;
    if (!batch_.candidates_on_card) {
      upload(a.values.data, a.values.size * 4, candidate_values_.data());
    }
    if (!batch_.references_on_card) {
      upload(b.values.data, b.values.size * 4, reference_values_.data());
    }
    packed_.send(uploader);
    send_matrix(uploader);
    Event sent;
    sent.record(context_.copy_stream());
    sent.hold(context_.stream());
    sequences_ = {batch_.candidates_on_card ? a.values.data : candidate_values_.data(),
                  candidate_offsets_.data(),
                  batch_.references_on_card ? b.values.data : reference_values_.data(),
                  reference_offsets_.data(),
                  groups_.data(),
                  candidates_};
  }

  void send_matrix(Uploader& uploader) {
    const Matrix<const double>& matrix = batch_.scoring.matrix;
    if (matrix.data == nullptr) return;
    if constexpr (std::is_same_v<Pairs, MatrixPairs>) {
      if (matrix.cols > 0) {
        uploader.send(HostRows{matrix.data, matrix.stride * 8, matrix.cols * 8, matrix.rows},
                      matrix_.data());
      }
      pairs_ = {matrix_.data(), matrix.cols};
    }
  }

  template <bool kAffine>
  void align() {
    align_bin<4, kAffine>(0);
    align_bin<8, kAffine>(1);
    align_bin<kWarp, kAffine>(2);
  }

  template <int W, bool kAffine>
  void align_bin(int bin) {
    const int64_t count = bins_.counts[bin];
    if (count == 0) return;
    const bool rows = W == kWarp && warps_ > 0;
    const unsigned grid = rows ? grid_of(std::min(warps_, count + kAlignWarps - 1), kAlignWarps)
                               : grid_of(count, kAlignThreads / W);
    launch(context_.stream(), dim3(grid), dim3(kAlignThreads), 0,
           align_pairs<W, Value, kAffine, Pairs>, sequences_,
           bins_.lists[bin].empty() ? nullptr : lists_[bin].data(), count, pairs_, gaps_,
           rows ? rows_.data() : nullptr, bins_.most_columns + 1,
           PairResults{scores_.data(), paths_.data()});
  }

  void choose(const AlignedArrays& out, bool want_steps) {
    BestOfCandidates to{best_.data(), best_scores_.data(), matches_.data(), lengths_.data()};
    if (out.on_card) to = {out.best, out.scores, out.matches, out.lengths};
    launch(context_.stream(), dim3(grid_of(candidates_, kAlignWarps)), dim3(kAlignThreads), 0,
           choose_references, sequences_, PairResults{scores_.data(), paths_.data()}, to);
    Downloader downloader(context_);
    const size_t bytes = static_cast<size_t>(candidates_) * 8;
    if (!out.on_card) {
      downloader.receive(to.best, out.best, bytes);
      downloader.receive(to.scores, out.scores, bytes);
      downloader.receive(to.matches, out.matches, bytes);
      downloader.receive(to.lengths, out.lengths, bytes);
    }
    if (want_steps) {
      host_best_.resize(static_cast<size_t>(candidates_));
      host_lengths_.resize(static_cast<size_t>(candidates_));
      downloader.receive(to.best, host_best_.data(), bytes);
      downloader.receive(to.lengths, host_lengths_.data(), bytes);
    }
    downloader.finish();
    context_.finish();
  }

  template <bool kAffine>
  void trace(bool on_card, const std::function<StepArrays(int64_t)>& room) {
    std::vector<int64_t> offsets{0};
    offsets.reserve(static_cast<size_t>(candidates_ + 1));
    for (const int64_t length : host_lengths_) offsets.push_back(offsets.back() + length);
    const int64_t total = offsets.back();
    const StepArrays out = room(total);
    StepArrays to = out;
    if (!on_card) {
      to.candidate_steps = steps_.data();
      to.reference_steps = steps_.data() + total;
    }
    Uploader uploader(context_);
    const auto bytes = static_cast<int64_t>(offsets.size()) * 8;
    uploader.send(HostRows{offsets.data(), bytes, bytes, 1}, offsets_.data());
    if (on_card) {
      uploader.send(HostRows{offsets.data(), bytes, bytes, 1}, out.offsets);
    } else {
      std::copy(offsets.begin(), offsets.end(), out.offsets);
    }
    std::vector<Trace> traces;
    int64_t memory = 0;
    const auto flush = [&] {
      trace_these<kAffine>(uploader, traces, to);
      traces.clear();
      memory = 0;
    };
    for (int64_t c = 0; c < candidates_; ++c) {
      const int64_t reference = host_best_[static_cast<size_t>(c)];
      if (reference < 0 || host_lengths_[static_cast<size_t>(c)] == 0) continue;
      const int64_t symbols = size_of(batch_.candidates.offsets, c);
      const int64_t columns = size_of(batch_.references.offsets, reference);
      const int64_t slab = slab_of(symbols, columns, trace_memory_bytes_);
      const int64_t own = trace_bytes(symbols, columns, slab);
      if (memory + own > trace_memory_bytes_) flush();
      traces.push_back({c, reference, slab, memory});
      memory += own;
    }
    flush();
    if (!on_card) {
      Downloader downloader(context_);
      const size_t column_bytes = static_cast<size_t>(total) * 8;
      downloader.receive(to.candidate_steps, out.candidate_steps, column_bytes);
      downloader.receive(to.reference_steps, out.reference_steps, column_bytes);
      downloader.finish();
    }
    context_.finish();
  }

  template <bool kAffine>
  void trace_these(Uploader& uploader, const std::vector<Trace>& traces, const StepArrays& to) {
    if (traces.empty()) return;
    traced_.hold(context_.copy_stream());
    const auto bytes = static_cast<int64_t>(traces.size() * sizeof(Trace));
    uploader.send(HostRows{traces.data(), bytes, bytes, 1}, traces_.data());
    Event sent;
    sent.record(context_.copy_stream());
    sent.hold(context_.stream());
    const auto count = static_cast<int64_t>(traces.size());
    launch(context_.stream(), dim3(grid_of(count, kAlignWarps)), dim3(kAlignThreads), 0,
           trace_pairs<Value, kAffine, Pairs>, sequences_, traces_.data(), count, pairs_, gaps_,
           trace_memory_.data(), offsets_.data(), to.candidate_steps, to.reference_steps);
    traced_.record(context_.stream());
  }

  Context& context_;
  const AlignBatch& batch_;
  const Bins& bins_;
  const int64_t memory_;  // to take at most, where there is a choice
  Pairs pairs_;
  const Gaps<Value> gaps_;
  const int64_t candidates_;
  const int64_t references_;
  int64_t warps_ = 0;  // that have rows of their own
  int64_t trace_memory_bytes_ = 0;
  std::vector<int64_t> host_best_;
  std::vector<int64_t> host_lengths_;
  Sequences sequences_{};
  Event traced_;

  Workspace workspace_;  // its pieces point at it
  Workspace::Piece<int32_t> candidate_values_, reference_values_;
  PackedInput packed_;
  PackedInput::Part<int64_t> candidate_offsets_, reference_offsets_, groups_, lists_[Bins::kCount];
  Workspace::Piece<int64_t> steps_;
  Workspace::Piece<int64_t> best_, matches_, lengths_, offsets_;
  Workspace::Piece<double> matrix_, scores_, best_scores_;
  Workspace::Piece<unsigned long long> paths_;
  Workspace::Piece<Row> rows_;
  Workspace::Piece<Trace> traces_;
  Workspace::Piece<char> trace_memory_;
};

void align_at_once(Context& context, const AlignBatch& batch, int64_t memory,
                   const AlignedArrays& out, const std::function<StepArrays(int64_t)>* room) {
  const Scoring& scoring = batch.scoring;
  const Bins bins(batch);
  // Matches and columns share 64 bits.
  if (bins.most_symbols + bins.most_columns > std::numeric_limits<int32_t>::max()) {
    fail("two sequences have " + to_text(bins.most_symbols) + " and " + to_text(bins.most_columns) +
         " symbols; a card aligns up to 2147483647 together");
  }
  if (scoring.matrix.data != nullptr) {
    return Batch<double, MatrixPairs>(context, batch, bins, memory, {}).run(out, room);
  }
  // Half of what int32 holds leaves room for kLowestOf and one more step below it.
  const int64_t largest = largest_whole(scoring);
  const int64_t steps = bins.most_symbols + bins.most_columns + 2;
  if (largest >= 0 && (largest == 0 || steps <= (int64_t{1} << 29) / largest)) {
    const EqualPairs<int32_t> pairs{static_cast<int32_t>(scoring.match),
                                    static_cast<int32_t>(scoring.mismatch)};
    return Batch<int32_t, EqualPairs<int32_t>>(context, batch, bins, memory, pairs).run(out, room);
  }
  Batch<double, EqualPairs<double>>(context, batch, bins, memory, {scoring.match, scoring.mismatch})
      .run(out, room);
}

}  // namespace

void align_batch(Context& context, const AlignBatch& batch, const AlignedArrays& out,
                 const std::function<StepArrays(int64_t)>* room) {
  const auto memory = static_cast<int64_t>(memory_to_use(context));
  const bool on_host = !batch.candidates_on_card && !batch.references_on_card && !out.on_card;
  // The other half is for rows between strips, and for traces.
  if (on_host && cut_pairs(batch, room != nullptr, memory / 2).size() > 1) {
    context.release();  // for the contexts of the parts
    const auto parts = cut_pairs(batch, room != nullptr, memory / 4);
    return align_parts(batch, parts, context.device(), memory, align_at_once, out, room);
  }
  align_at_once(context, batch, memory, out, room);
}

}  // namespace pytrace::cuda
