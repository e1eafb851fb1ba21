// Scores of pairs: one text beside one other.
#include <optional>

#include "fuzzy/fuzzy_matrix.h"
#include "fuzzy/fuzzy_partial.h"
#include "fuzzy/fuzzy_text.h"
#include "fuzzy/fuzzy_words.h"

namespace pytrace {
namespace {

// Threads are handed this many pairs or cells (products of two sizes) at once, whichever is reached
// first: about 50 us of work, where what a part sets up costs about 1 us.
constexpr int64_t kPartPairs = 256;
constexpr int64_t kPartCells = int64_t{1} << 19;

// A longer text is not made ready for a run: its masks take a row for each distinct character, up
// to 128 KiB here, which the second-level cache still holds.
constexpr int64_t kSharedSize = 1024;

// A text's bags cost as much as scoring a pair or two, and a needle's bag is made for each pair:
// for fewer pairs than this they cost more than they save.
constexpr int64_t kBagRun = 4;

// The same characters in the same place, which is how a repeated text is known at no cost.
bool same_place(const Text& a, const Text& b) {
  return a.data == b.data && a.size == b.size && a.kind == b.kind;
}

// Neighbouring pairs that have one text in common, on either side: all scores are the same both
// ways round.
struct Run {
  const Text& shared;
  Span<const Text> others;
  Span<const int64_t> places;  // which of the others, and of the output

  int64_t size() const { return places.size; }
  const Text& other(int64_t k) const { return others[places[k]]; }
};

// The pairs of which no text is missing, and where each part of them ends.
class Pairs {
 public:
  Pairs(Span<const Text> queries, Span<const Text> choices) : queries_(queries), choices_(choices) {
    places_.reserve(static_cast<size_t>(queries.size));
    int64_t begin = 0;
    int64_t cells = 0;
    for (int64_t i = 0; i < queries.size; ++i) {
      if (queries[i].missing || choices[i].missing) continue;
      places_.push_back(i);
      cells += queries[i].size * choices[i].size;
      const auto end = static_cast<int64_t>(places_.size());
      if (end - begin < kPartPairs && cells < kPartCells) continue;
      ends_.push_back(end);
      begin = end;
      cells = 0;
    }
    const auto end = static_cast<int64_t>(places_.size());
    if (end > begin) ends_.push_back(end);
  }

  int64_t parts() const { return static_cast<int64_t>(ends_.size()); }

  // Calls body(run) for the runs of the parts [first, last).
  template <typename Body>
  void for_runs(int64_t first, int64_t last, const Body& body) const {
    const int64_t stop = ends_[static_cast<size_t>(last - 1)];
    int64_t begin = first == 0 ? 0 : ends_[static_cast<size_t>(first - 1)];
    while (begin < stop) {
      int64_t end = run_end(queries_, begin, stop);
      const bool by_query = end > begin + 1;
      if (!by_query) end = run_end(choices_, begin, stop);
      const Span<const Text> shared = by_query ? queries_ : choices_;
      const Span<const int64_t> places{places_.data() + begin, end - begin};
      body(Run{shared[places[0]], by_query ? choices_ : queries_, places});
      begin = end;
    }
  }

 private:
  // Where the run that begins at a pair stops to have the same text on this side.
  int64_t run_end(Span<const Text> side, int64_t begin, int64_t stop) const {
    const auto text = [&](int64_t k) -> const Text& {
      return side[places_[static_cast<size_t>(k)]];
    };
    int64_t end = begin + 1;
    while (end < stop && same_place(text(begin), text(end))) ++end;
    return end;
  }

  Span<const Text> queries_;
  Span<const Text> choices_;
  std::vector<int64_t> places_;
  std::vector<int64_t> ends_;
};

class RatioRuns {
 public:
  explicit RatioRuns(const FuzzyOutput& output) : output_(output) {}

  void add(const Run& run) {
    // Apart, since the room for a text's masks slows a single pair by half.
    if (run.size() == 1) {
      if (!hopeless(run.shared, run.other(0))) {
        output_.put(fuzzy_score(FuzzyScorer::kRatio, run.shared, run.other(0), output_.cutoff()),
                    run.places[0]);
      }
      return;
    }
    add_many(run);
  }

  void finish() {}

 private:
  void add_many(const Run& run) {
    const Text& shared = run.shared;
    std::optional<LcsQuery> ready;
    for (int64_t k = 0; k < run.size(); ++k) {
      const Text& other = run.other(k);
      if (hopeless(shared, other)) continue;
      if (!ready && shared.size <= kSharedSize) ready.emplace(shared);
      const int64_t lcs = ready ? ready->lcs(other) : fuzzy_lcs(shared, other);
      output_.put(fuzzy_ratio_of(lcs, shared.size + other.size), run.places[k]);
    }
  }

  // Whether the lengths alone keep a pair below the cutoff.
  bool hopeless(const Text& a, const Text& b) const {
    return output_.prunes() &&
           fuzzy_ratio_of(std::min(a.size, b.size), a.size + b.size) < output_.cutoff();
  }

  const FuzzyOutput& output_;
};

class PartialRuns {
 public:
  explicit PartialRuns(const FuzzyOutput& output)
      : sink_{output},
        pruned_(sink_, output.prunes() ? output.cutoff() : 0.0),
        whole_(sink_, 0.0) {}

  void add(const Run& run) {
    const bool bags = pruned_.prunes() && run.size() >= kBagRun && run.shared.size <= kSharedSize;
    for (std::vector<FuzzyBag>& blocks : blocks_) blocks.clear();
    for (int64_t k = 0; k < run.size(); ++k) {
      const Text& other = run.other(k);
      const bool shared_is_needle = run.shared.size < other.size;
      const Text& needle = shared_is_needle ? run.shared : other;
      const Text& text = shared_is_needle ? other : run.shared;
      const bool needs_bags = needle.size > 0 && needle.size <= 64;
      if (needs_bags && (shared_is_needle || !bags)) {
        add_to(whole_, needle, text, nullptr, run.places[k]);
      } else {
        add_to(pruned_, needle, text, needs_bags ? bags_of(text, needle.size) : nullptr,
               run.places[k]);
      }
    }
  }

  void finish() {
    pruned_.finish();
    whole_.finish();
  }

 private:
  struct Sink {
    const FuzzyOutput& output;
    void operator()(int64_t place, double score) const { output.put(score, place); }
  };

  struct Batch {
    Batch(const Sink& sink, double cutoff) : pairs(sink, cutoff) {}
    bool prunes() const { return pairs.prunes(); }
    void finish() { pairs.finish(); }
    PartialBatch<Sink> pairs;
    Text needle;
  };

  static void add_to(Batch& batch, const Text& needle, const Text& text, const FuzzyBag* blocks,
                     int64_t place) {
    if (!same_place(batch.needle, needle)) batch.pairs.set_needle(needle);
    batch.needle = needle;
    batch.pairs.add(text, blocks, place);
  }

  const FuzzyBag* bags_of(const Text& text, int64_t needle_size) {
    const int64_t width = fuzzy_width(needle_size);
    std::vector<FuzzyBag>& blocks = blocks_[width == 8 ? 0 : width == 16 ? 1 : width == 32 ? 2 : 3];
    if (blocks.empty()) {
      blocks.resize(static_cast<size_t>(fuzzy_block_count(text.size, width)));
      fuzzy_fill_blocks(text, width, blocks.data());
    }
    return blocks.data();
  }

  const Sink sink_;
  Batch pruned_;
  Batch whole_;
  std::vector<FuzzyBag> blocks_[4];  // of the run's text, by the needle's width
};

class TokenSetRuns {
 public:
  explicit TokenSetRuns(const FuzzyOutput& output) : output_(output) {}

  void add(const Run& run) {
    shared_.assign(run.shared);
    std::optional<LcsQuery> ready;
    if (run.size() > 1 && shared_.joined_size() <= kSharedSize) {
      shared_.join(nullptr, &joined_);
      ready.emplace(Text{joined_.data(), shared_.joined_size(), 4, false});
    }
    for (int64_t k = 0; k < run.size(); ++k) {
      other_.assign(run.other(k));
      output_.put(scorer_.of(shared_, other_, output_.cutoff(), ready ? &*ready : nullptr),
                  run.places[k]);
    }
  }

  void finish() {}

 private:
  const FuzzyOutput& output_;
  TokenSetRatio scorer_;
  WordSet shared_;
  WordSet other_;
  std::vector<uint32_t> joined_;
};

// The scorers that make nothing ready for a run.
class PairRuns {
 public:
  PairRuns(const FuzzyOutput& output, FuzzyScorer scorer) : output_(output), scorer_(scorer) {}

  void add(const Run& run) {
    for (int64_t k = 0; k < run.size(); ++k) {
      output_.put(pair_.of(scorer_, run.shared, run.other(k), output_.cutoff()), run.places[k]);
    }
  }

  void finish() {}

 private:
  const FuzzyOutput& output_;
  FuzzyScorer scorer_;
  FuzzyPair pair_;
};

template <typename Runs, typename... Options>
void score_pairs(const Pairs& pairs, const FuzzyOutput& output, int threads,
                 const Options&... options) {
  parallel_for(pairs.parts(), 1, threads, [&](int64_t first, int64_t last, int) {
    Runs runs(output, options...);
    pairs.for_runs(first, last, [&](const Run& run) { runs.add(run); });
    runs.finish();
  });
}

}  // namespace

void fuzzy_cpdist(Span<const Text> queries, Span<const Text> choices, const FuzzyCdist& options,
                  FuzzyType type, void* out) {
  const FuzzyOutput output(options, type, out);
  if (output.prunes()) output.clear(queries.size);
  const FuzzyOutput as_given({FuzzyScorer::kRatio, -INFINITY, 1.0, 0.0, 1}, type, out);
  for (int64_t i = 0; i < queries.size; ++i) {
    if (queries[i].missing || choices[i].missing) as_given.put(options.missing, i);
  }
  const Pairs pairs(queries, choices);
  switch (options.scorer) {
    case FuzzyScorer::kRatio:
      return score_pairs<RatioRuns>(pairs, output, options.threads);
    case FuzzyScorer::kPartialRatio:
      return score_pairs<PartialRuns>(pairs, output, options.threads);
    case FuzzyScorer::kTokenSetRatio:
      return score_pairs<TokenSetRuns>(pairs, output, options.threads);
    default:
      return score_pairs<PairRuns>(pairs, output, options.threads, options.scorer);
  }
}

}  // namespace pytrace
