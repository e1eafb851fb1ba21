#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "beam/beam_check.h"
#include "cuda/beam.h"
#include "cuda/beam_kernels.cuh"
#include "cuda/runs.cuh"
#include "cuda/transfers.h"

namespace pytrace::cuda {
namespace {

// Logits that are on their way while others are worked on: 1 ms at 64 GB/s, far longer than a
// launch takes.
constexpr int64_t kTileBytes = int64_t{64} << 20;

template <typename T>
class Step {
 public:
  Step(Context& context, const BeamStep<T>& step)
      : context_(context),
        input_(step.input),
        options_(step.options),
        how_(step.how),
        step_(step),
        chains_(step.input.scores.size),
        questions_(step.input.question_offsets.size - 1) {}

  void run(const std::function<ExtensionArrays(int64_t)>& room) {
    plan();
    lay_out();
    Uploader uploader(context_);
    send_input(uploader);
    for (const auto& tile : tiles_) work_on(uploader, tile.first, tile.second);
    const Runs best = best_of_questions();
    launch(context_.stream(), dim3(1), dim3(kSelectThreads), sums_bytes(), add_up_lengths, best,
           Faults{faults_.data()}, offsets_.data());
    std::vector<int64_t> offsets(static_cast<size_t>(questions_ + 2));
    Downloader downloader(context_);
    downloader.receive(offsets_.data(), offsets.data(), offsets.size() * sizeof(int64_t));
    downloader.finish();
    const auto fault = static_cast<unsigned long long>(offsets.back());
    if (fault != kNoFault) explain(static_cast<int64_t>(fault / 2), fault % 2 != 0);
    offsets.pop_back();
    give(best, offsets, room, downloader);
    context_.finish();
  }

 private:
  static constexpr int64_t kExtensionBytes = 4 * 8 + 2;
  static constexpr unsigned long long kNoFault = std::numeric_limits<unsigned long long>::max();

  bool ragged() const { return options_.offsets.size > 0; }
  int64_t width(int64_t chain) const { return options_.of(chain).size; }
  static size_t sums_bytes() { return SharedBytes().take<int64_t>(kSelectWarps).total(); }
  static size_t sort_bytes() {
    return SharedBytes().take<Entry>(kSegment).template take<int>(1).total();
  }

  // What is needed, and which chains are worked on at once.
  void plan() {
    const bool alike = !ragged() && chains_ > 0;
    int64_t most = 1;
    for (int64_t chain = 0; chain < (alike ? 1 : chains_); ++chain) {
      most = std::max(most, width(chain));
    }
    // Of a chain no more than `chains` can be kept in the end.
    tried_ = std::min(std::min(how_.beams, how_.chains), most);
    places_ = HostParts::of(chains_, alike, [&](int64_t chain) {
      return std::max<int64_t>(1, std::min(tried_, width(chain)));
    });
    segments_ =
        HostParts::of(chains_, alike, [&](int64_t chain) { return segments_of(width(chain)); });
    option_runs_.capacity = std::min<int64_t>(tried_, kSegment);
    option_runs_.merged = tried_ > kWarp;

    const auto places_of = [&](int64_t question) {
      return places_.start(input_.question_offsets[question + 1]) -
             places_.start(input_.question_offsets[question]);
    };
    int64_t most_places = 1;
    room_ = 0;
    for (int64_t question = 0; question < questions_; ++question) {
      most_places = std::max(most_places, places_of(question));
      room_ += std::min(how_.chains, places_of(question));
    }
    kept_ = std::min(how_.chains, most_places);
    question_segments_ =
        HostParts::of(questions_, segments_of(most_places) == 1, [&](int64_t question) {
          return segments_of(most_places) == 1 ? 1 : segments_of(places_of(question));
        });
    candidate_runs_.capacity = std::min<int64_t>(kept_, kSegment);
    candidate_runs_.merged = kept_ > kWarp;
  }

  // Takes the workspace: first what lasts, then tiles of chains from what is left of it.
  void lay_out() {
    Workspace& workspace = workspace_;
    faults_ = packed_.add(&kNoFault, 1);
    if (!step_.scores_on_card) scores_ = packed_.add(input_.scores.data, chains_);
    if (!step_.finished_on_card) finished_ = packed_.add(input_.finished.data, chains_);
    lengths_ = packed_.add(input_.lengths.data, input_.lengths.size);
    questions_on_card_ = packed_.add(input_.question_offsets.data, questions_ + 1);
    rows_ = packed_.add(options_.offsets.data, options_.offsets.size);
    for (HostParts* parts : {&places_, &segments_, &question_segments_}) parts->add_to(packed_);
    packed_.take(workspace);
    const int64_t places = places_.start(chains_);
    ranks_ = workspace.take<double>(places);
    steps_ = workspace.take<double>(places);
    taken_ = workspace.take<int64_t>(places);
    parents_ = workspace.take<int64_t>(places);
    candidate_runs_.take(workspace, question_segments_.start(questions_));
    offsets_ = workspace.take<int64_t>(questions_ + 2);
    const bool stays = step_.logits_on_card || step_.scores_on_card || step_.finished_on_card;
    results_ = workspace.take<char>(stays ? 0 : room_ * kExtensionBytes);

    const auto memory = static_cast<int64_t>(memory_to_use(context_));
    const int64_t left = std::max<int64_t>(0, memory - static_cast<int64_t>(workspace.bytes()));
    int64_t most_logits = 0;
    int64_t most_segments = 0;
    cut_tiles(left, &most_logits, &most_segments);
    sums_ = workspace.take<SegmentSum>(most_segments);
    option_runs_.take(workspace, most_segments);
    if (!step_.logits_on_card) {
      const int slots = tiles_.size() > 1 ? 2 : 1;
      for (int slot = 0; slot < slots; ++slot) logits_[slot] = workspace.take<T>(most_logits);
    }
    context_.lay_out(workspace);
  }

  void cut_tiles(int64_t bytes, int64_t* most_logits, int64_t* most_segments) {
    const bool on_card = step_.logits_on_card;
    const int64_t run_bytes = static_cast<int64_t>(sizeof(SegmentSum)) +
                              RunMemory::bytes_of_run(option_runs_.capacity, option_runs_.merged);
    const int64_t size = sizeof(T);
    int64_t first = 0;
    int64_t logits = 0;
    int64_t segments = 0;
    const auto close = [&](int64_t end) {
      if (end > first) tiles_.emplace_back(first, end - first);
      *most_logits = std::max(*most_logits, logits);
      *most_segments = std::max(*most_segments, segments);
      first = end;
      logits = segments = 0;
    };
    for (int64_t chain = 0; chain < chains_; ++chain) {
      const int64_t more_logits = on_card ? 0 : width(chain);
      const int64_t more_segments = segments_.start(chain + 1) - segments_.start(chain);
      const int64_t held = logits + more_logits;
      if (chain > first && (held * size > kTileBytes ||
                            held * size * 2 + (segments + more_segments) * run_bytes > bytes)) {
        close(chain);
      }
      logits += more_logits;
      segments += more_segments;
    }
    close(chains_);
  }

  void send_input(Uploader& uploader) {
    packed_.send(uploader);
    chain_input_ = {step_.scores_on_card ? input_.scores.data : scores_.data(),
                    step_.finished_on_card ? input_.finished.data : finished_.data(),
                    input_.lengths.size > 0 ? lengths_.data() : nullptr};
    candidates_ = {places_.on_card(), ranks_.data(), steps_.data(), taken_.data(), parents_.data()};
  }

  // The logits of a tile: where they lie, or sent to one of the slots.
  TileLogits<T> logits_of(Uploader& uploader, int64_t first, int64_t count) {
    TileLogits<T> logits;
    logits.first = first;
    logits.finished = chain_input_.finished;
    const Matrix<const T>& matrix = options_.matrix;
    if (ragged()) {
      logits.rows = {rows_.data(), 0};
      logits.data = options_.flat.data + options_.offsets[first];
    } else {
      logits.rows = {nullptr, matrix.stride};
      logits.width = matrix.cols;
      logits.data = matrix.row(first);
    }
    if (step_.logits_on_card) return logits;
    const int slot = next_;
    next_ = 1 - next_;
    read_[slot].hold(context_.copy_stream());
    const int64_t size = sizeof(T);
    T* to = logits_[slot].data();
    if (ragged()) {
      const int64_t bytes = (options_.offsets[first + count] - options_.offsets[first]) * size;
      if (bytes > 0) uploader.send(HostRows{logits.data, bytes, bytes, 1}, to);
    } else if (matrix.cols > 0) {
      uploader.send(HostRows{logits.data, matrix.stride * size, matrix.cols * size, count}, to);
      logits.rows.each = matrix.cols;
    }
    logits.data = to;
    return logits;
  }

  void work_on(Uploader& uploader, int64_t first, int64_t count) {
    const int slot = next_;
    const TileLogits<T> logits = logits_of(uploader, first, count);
    sent_[slot].record(context_.copy_stream());
    sent_[slot].hold(context_.stream());
    const Faults faults{faults_.data()};
    const bool merged = option_runs_.merged;
    Runs runs = option_runs_.runs(0, segments_.on_card(), first, count);
    const int64_t segments = segments_.start(first + count) - segments_.start(first);
    launch(context_.stream(), dim3(grid_of(segments, kSelectWarps)), dim3(kSelectThreads), 0,
           score_segments<T>, logits, runs, merged ? 0 : static_cast<int>(tried_), sums_.data(),
           faults);
    if (merged) {
      launch(context_.stream(), dim3(grid_of(segments, 1)), dim3(kSelectThreads), sort_bytes(),
             sort_segments<TileLogits<T>>, logits, runs);
      runs = merge_all(context_.stream(), option_runs_, runs, segments_.most, segments, tried_);
    }
    launch(context_.stream(), dim3(grid_of(count, kSelectWarps)), dim3(kSelectThreads), 0,
           place_candidates, runs, merged, sums_.data(), chain_input_, how_.min_prob,
           how_.length_penalty, candidates_, faults);
    read_[slot].record(context_.stream());
  }

  Runs best_of_questions() {
    if (tiles_.empty()) {  // no chains: the input has still to arrive
      sent_[0].record(context_.copy_stream());
      sent_[0].hold(context_.stream());
    }
    const CandidateSource source{candidates_, {questions_on_card_.data(), 0}};
    Runs runs = candidate_runs_.runs(0, question_segments_.on_card(), 0, questions_);
    const int64_t segments = question_segments_.start(questions_);
    if (candidate_runs_.merged) {
      launch(context_.stream(), dim3(grid_of(segments, 1)), dim3(kSelectThreads), sort_bytes(),
             sort_segments<CandidateSource>, source, runs);
      return merge_all(context_.stream(), candidate_runs_, runs, question_segments_.most, segments,
                       kept_);
    }
    launch(context_.stream(), dim3(grid_of(segments, kSelectWarps)), dim3(kSelectThreads), 0,
           select_candidates, source, runs, static_cast<int>(kept_));
    if (question_segments_.most > 1) {
      launch(context_.stream(), dim3(grid_of(questions_, kSelectWarps)), dim3(kSelectThreads), 0,
             join_candidates, runs, static_cast<int>(kept_));
    }
    return runs;
  }

  void give(const Runs& best, const std::vector<int64_t>& offsets,
            const std::function<ExtensionArrays(int64_t)>& room, Downloader& downloader) {
    const int64_t total = offsets.back();
    const ExtensionArrays out = room(total);
    ExtensionArrays to = out;
    if (!out.on_card) {
      to = arrays_at(results_.data(), total);
    }
    launch(context_.stream(), dim3(grid_of(questions_, kSelectWarps)), dim3(kSelectThreads), 0,
           gather_extensions, best, candidates_, chain_input_, how_.terminate, offsets_.data(),
           to.parents, to.options, to.scores, to.steps, to.finished, to.stuck);
    if (out.on_card) {
      require(cudaMemcpyAsync(out.offsets, offsets_.data(), offsets.size() * sizeof(int64_t),
                              cudaMemcpyDeviceToDevice, context_.stream()),
              "copying on the card");
      return;
    }
    std::copy(offsets.begin(), offsets.end(), out.offsets);
    const auto bytes = static_cast<size_t>(total * kExtensionBytes);
    const std::unique_ptr<char[]> memory(new char[bytes]);
    downloader.receive(results_.data(), memory.get(), bytes);
    downloader.finish();
    const ExtensionArrays from = arrays_at(memory.get(), total);
    const auto count = static_cast<size_t>(total);
    if (count == 0) return;
    std::memcpy(out.parents, from.parents, count * sizeof(int64_t));
    std::memcpy(out.options, from.options, count * sizeof(int64_t));
    std::memcpy(out.scores, from.scores, count * sizeof(double));
    std::memcpy(out.steps, from.steps, count * sizeof(double));
    std::memcpy(out.finished, from.finished, count);
    std::memcpy(out.stuck, from.stuck, count);
  }

  // The arrays of so many extensions side by side, so that they leave the card in one copy.
  static ExtensionArrays arrays_at(char* memory, int64_t count) {
    auto* whole = reinterpret_cast<int64_t*>(memory);
    auto* real = reinterpret_cast<double*>(memory + 16 * count);
    auto* flags = reinterpret_cast<bool*>(memory + 32 * count);
    return {whole, whole + count, real, real + count, flags, flags + count, nullptr, true};
  }

  template <typename Value>
  void bring(const Value* from, int64_t count, bool on_card, Value* to) {
    if (!on_card) {
      std::copy(from, from + count, to);
      return;
    }
    require(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(Value),
                            cudaMemcpyDeviceToHost, context_.stream()),
            "copying from the card");
    context_.finish();
  }

  [[noreturn]] void explain(int64_t chain, bool logit) {
    if (!logit) {
      double score = 0.0;
      bring(input_.scores.data + chain, 1, step_.scores_on_card, &score);
      fail_for_score(chain, score);
    }
    const Span<const T> logits = options_.of(chain);
    std::vector<T> values(static_cast<size_t>(logits.size));
    bring(logits.data, logits.size, step_.logits_on_card, values.data());
    fail_for_logits(chain, Span<const T>{values.data(), logits.size});
  }

  Context& context_;
  const BeamInput& input_;
  const Options<T>& options_;
  const BeamOptions& how_;
  const BeamStep<T>& step_;
  const int64_t chains_;
  const int64_t questions_;
  int64_t tried_ = 1;  // options a chain at most
  int64_t kept_ = 1;   // results a question at most
  int64_t room_ = 0;   // results at most
  HostParts places_;
  HostParts segments_;
  HostParts question_segments_;
  RunMemory option_runs_;
  RunMemory candidate_runs_;
  std::vector<std::pair<int64_t, int64_t>> tiles_;  // the first chain, how many

  Workspace workspace_;  // its pieces point at it
  PackedInput packed_;
  PackedInput::Part<unsigned long long> faults_;
  PackedInput::Part<double> scores_;
  PackedInput::Part<uint8_t> finished_;
  PackedInput::Part<int64_t> lengths_, questions_on_card_, rows_;
  Workspace::Piece<double> ranks_, steps_;
  Workspace::Piece<int64_t> taken_, parents_, offsets_;
  Workspace::Piece<char> results_;
  Workspace::Piece<SegmentSum> sums_;
  Workspace::Piece<T> logits_[2];
  ChainInput chain_input_;
  Candidates candidates_;
  Event sent_[2];
  Event read_[2];
  int next_ = 0;
};

}  // namespace

template <typename T>
void expand(Context& context, const BeamStep<T>& step,
            const std::function<ExtensionArrays(int64_t)>& room) {
  require_step(step.input, step.options, step.how);
  Step<T>(context, step).run(room);
}

template void expand(Context&, const BeamStep<float>&,
                     const std::function<ExtensionArrays(int64_t)>&);
template void expand(Context&, const BeamStep<double>&,
                     const std::function<ExtensionArrays(int64_t)>&);

}  // namespace pytrace::cuda
