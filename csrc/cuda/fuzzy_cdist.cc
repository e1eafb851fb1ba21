// What the fuzzy kernels are given: tiles of the matrix, their texts by length, and the order of
// copies and launches.
#include "cuda/fuzzy_cdist.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "cuda/fuzzy_kernels.h"
#include "cuda/fuzzy_texts.h"
#include "cuda/transfers.h"

namespace pytrace::cuda {
namespace {

// Classes of needles, each with a kernel or a launch of its own. Texts beyond the last bound get
// memory of their own, so that a few long ones do not take shared memory from all others.
constexpr int kClasses = 4;
constexpr int64_t kClassEnds[kClasses - 1] = {kFuzzyNarrow, kFuzzyWide, 1024};

int class_of(int64_t size) {
  int found = 0;
  while (found < kClasses - 1 && size > kClassEnds[found]) ++found;
  return found;
}

// Numbers from 0, by class and then by size, so that neighbouring warps and lanes have alike work.
struct Classes {
  std::vector<int32_t> order;
  std::array<int64_t, kClasses + 1> begins{};
  std::array<int64_t, kClasses> longest{};

  int64_t size(int k) const {
    return begins[static_cast<size_t>(k) + 1] - begins[static_cast<size_t>(k)];
  }
};

template <typename SizeOf>
Classes classify(int64_t count, const SizeOf& size_of) {
  Classes found;
  found.order.resize(static_cast<size_t>(count));
  std::iota(found.order.begin(), found.order.end(), 0);
  std::vector<int64_t> sizes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) sizes[static_cast<size_t>(i)] = size_of(i);
  std::stable_sort(found.order.begin(), found.order.end(), [&](int32_t x, int32_t y) {
    return sizes[static_cast<size_t>(x)] < sizes[static_cast<size_t>(y)];
  });
  for (const int64_t size : sizes) {
    const auto k = static_cast<size_t>(class_of(size));
    ++found.begins[k + 1];
    found.longest[k] = std::max(found.longest[k], size);
  }
  for (size_t k = 0; k < kClasses; ++k) found.begins[k + 1] += found.begins[k];
  return found;
}

struct Range {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

// Cuts a side into ranges of at most `most` texts whose packs take at most `bytes`; one text may
// take more.
std::vector<Range> cut(const FuzzySource& source, int64_t most, int64_t bytes) {
  std::vector<Range> ranges;
  int64_t begin = 0;
  int64_t sum = 0;
  for (int64_t i = 0; i < source.size(); ++i) {
    const int64_t own = source.bytes(i);
    if (i > begin && (i - begin >= most || FuzzyPack::room(i + 1 - begin, sum + own) > bytes)) {
      ranges.push_back({begin, i});
      begin = i;
      sum = 0;
    }
    sum += own;
  }
  if (source.size() > begin) ranges.push_back({begin, source.size()});
  return ranges;
}

int64_t room_of(const FuzzySource& source, const std::vector<Range>& ranges) {
  int64_t most = 0;
  for (const Range& range : ranges) {
    int64_t sum = 0;
    for (int64_t i = range.begin; i < range.end; ++i) sum += source.bytes(i);
    most = std::max(most, FuzzyPack::room(range.size(), sum));
  }
  return most;
}

int64_t longest_of(const FuzzySource& source) {
  int64_t longest = 0;
  for (int64_t i = 0; i < source.size(); ++i) longest = std::max(longest, source.characters(i));
  return longest;
}

size_t scratch_of(FuzzyScorer scorer, FuzzyLongest longest) {
  switch (scorer) {
    case FuzzyScorer::kRatio:
      return fuzzy_ratio_scratch(longest);
    case FuzzyScorer::kPartialRatio:
      return fuzzy_comb_scratch(longest);
    case FuzzyScorer::kTokenSetRatio:
      return fuzzy_token_set_scratch(longest);
    default:
      return 0;
  }
}

// Launches one tile's kernels.
class Launcher {
 public:
  Launcher(Context& context, FuzzyScorer scorer, FuzzyScratch scratch)
      : context_(context), scorer_(scorer), scratch_(scratch) {}

  void all_pairs(const FuzzyPairs& tile, const Classes& rows, const Classes& columns,
                 const FuzzyScores& scores) const {
    for (int r = 0; r < kClasses; ++r) {
      for (int c = 0; c < kClasses; ++c) {
        FuzzyPairs pairs = tile;
        pairs.firsts += rows.begins[static_cast<size_t>(r)];
        pairs.seconds += columns.begins[static_cast<size_t>(c)];
        pairs.first_count = rows.size(r);
        pairs.second_count = columns.size(c);
        if (pairs.count() == 0) continue;
        const FuzzyLongest longest{rows.longest[static_cast<size_t>(r)],
                                   columns.longest[static_cast<size_t>(c)]};
        launch(pairs, std::min(r, c), longest, scores);
      }
    }
  }

  // The classes are those of the pairs' shorter texts.
  void pair_by_pair(const FuzzyPairs& tile, const Classes& pairs, FuzzyLongest longest,
                    const FuzzyScores& scores) const {
    for (int k = 0; k < kClasses; ++k) {
      FuzzyPairs some = tile;
      some.firsts += pairs.begins[static_cast<size_t>(k)];
      some.seconds = some.firsts;
      some.first_count = pairs.size(k);
      if (some.count() > 0) launch(some, k, longest, scores);
    }
  }

 private:
  void launch(const FuzzyPairs& pairs, int needle_class, FuzzyLongest longest,
              const FuzzyScores& scores) const {
    const int multiprocessors = context_.multiprocessors();
    const cudaStream_t stream = context_.stream();
    if (scorer_ == FuzzyScorer::kRatio && needle_class == 0) {
      fuzzy_ratio_short(pairs, scores, multiprocessors, stream);
    } else if (scorer_ == FuzzyScorer::kRatio) {
      fuzzy_ratio(pairs, scores, longest, scratch_, multiprocessors, stream);
    } else if (scorer_ == FuzzyScorer::kTokenSetRatio) {
      fuzzy_token_set(pairs, scores, longest, scratch_, multiprocessors, stream);
    } else if (needle_class < 2) {
      fuzzy_windows(pairs, scores, needle_class == 0, multiprocessors, stream);
    } else {
      fuzzy_comb(pairs, scores, longest, scratch_, multiprocessors, stream);
    }
  }

  Context& context_;
  FuzzyScorer scorer_;
  FuzzyScratch scratch_;
};

// What both functions share: the memory of a call, and what goes up and comes down when. Of rows,
// columns and scores there are two places, so that copies and kernels run side by side.
class Call {
 public:
  Call(Context& context, const FuzzyCdist& options, FuzzyType type, int64_t rows_room,
       int64_t columns_room, int64_t tile_values, FuzzyLongest longest, size_t memory)
      : context_(context), options_(options), type_(type) {
    // As many blocks as fill the card, in what is left of the memory; one at least.
    const size_t each = scratch_of(options.scorer, longest);
    const size_t wanted = each * 16 * static_cast<size_t>(context.multiprocessors());
    const size_t scratch =
        std::max(each, std::min(wanted, memory / 4 / std::max<size_t>(each, 1) * each));
    for (int slot = 0; slot < 2; ++slot) {
      rows_[slot] = workspace_.take<char>(rows_room);
      columns_[slot] = workspace_.take<char>(columns_room);
      scores_[slot] = workspace_.take<char>(tile_values * fuzzy_bytes(type));
    }
    scratch_ = workspace_.take<char>(static_cast<int64_t>(scratch));
    context.lay_out(workspace_);
  }

  const char* send_columns(const FuzzyPack& pack) {
    column_slot_ = 1 - column_slot_;
    columns_read_[column_slot_].hold(context_.copy_stream());
    return send(pack, columns_[column_slot_].data());
  }

  const char* send_rows(const FuzzyPack& pack) {
    rows_read_[slot_].hold(context_.copy_stream());
    return send(pack, rows_[slot_].data());
  }

  FuzzyScores begin_tile() {
    arrived_.record(context_.copy_stream());
    arrived_.hold(context_.stream());
    left_[slot_].hold(context_.stream());
    return {options_.cutoff, options_.multiplier, options_.missing, type_, scores_[slot_].data()};
  }

  Launcher launcher() const {
    return {context_, options_.scorer, {scratch_.data(), static_cast<size_t>(scratch_.size())}};
  }

  // Brings the tile's scores to rows of `columns` of the host's matrix, `pitch` values apart.
  void end_tile(char* out, int64_t rows, int64_t columns, int64_t pitch) {
    const int64_t bytes = fuzzy_bytes(type_);
    rows_read_[slot_].record(context_.stream());
    columns_read_[column_slot_].record(context_.stream());
    downloader_.receive(scores_[slot_].data(), {out, pitch * bytes, columns * bytes, rows});
    left_[slot_].record(context_.return_stream());
    slot_ = 1 - slot_;
  }

  void finish() {
    downloader_.finish();
    context_.finish();
  }

 private:
  const char* send(const FuzzyPack& pack, char* to) {
    const auto bytes = static_cast<int64_t>(pack.memory().size());
    uploader_.send({pack.memory().data(), bytes, bytes, 1}, to);
    return to;
  }

  Context& context_;
  FuzzyCdist options_;
  FuzzyType type_;
  Workspace workspace_;
  Workspace::Piece<char> rows_[2];
  Workspace::Piece<char> columns_[2];
  Workspace::Piece<char> scores_[2];
  Workspace::Piece<char> scratch_;
  Uploader uploader_{context_};
  Downloader downloader_{context_};
  Event rows_read_[2];
  Event columns_read_[2];
  Event left_[2];
  Event arrived_;
  int slot_ = 0;  // of rows and scores
  int column_slot_ = 0;
};

// The card's memory in eighths: two each for rows, columns, scores and scratch.
constexpr int64_t kParts = 8;
// Local numbers are of 32 bits.
constexpr int64_t kMostTexts = int64_t{1} << 30;

}  // namespace

void fuzzy_cdist(Context& context, Span<const Text> queries, Span<const Text> choices,
                 const FuzzyCdist& options, FuzzyType type, void* out) {
  if (queries.size == 0 || choices.size == 0) return;
  const bool words = options.scorer == FuzzyScorer::kTokenSetRatio;
  FuzzySource rows(queries, words);
  FuzzySource columns(choices, words);
  if (words) FuzzySource::number(&rows, &columns);
  const size_t memory = memory_to_use(context);
  const int64_t part = static_cast<int64_t>(memory) / kParts;
  const int64_t value = fuzzy_bytes(type);
  // A tile's scores: what the downloader takes without keeping the host from queueing the next.
  const int64_t tile_values =
      std::clamp<int64_t>(std::min(part, Downloader::kHeldBytes) / value, 1, kMostTexts);
  const auto column_ranges = cut(columns, tile_values, part);
  int64_t widest = 0;
  for (const Range& range : column_ranges) widest = std::max(widest, range.size());
  const auto row_ranges = cut(rows, tile_values / widest, part);
  int64_t tallest = 0;
  for (const Range& range : row_ranges) tallest = std::max(tallest, range.size());
  Call call(context, options, type, room_of(rows, row_ranges), room_of(columns, column_ranges),
            tallest * widest, {longest_of(rows), longest_of(columns)}, memory);
  const Launcher launcher = call.launcher();
  for (const Range& across : column_ranges) {
    const Classes column_classes =
        classify(across.size(), [&](int64_t i) { return columns.characters(across.begin + i); });
    const FuzzyPack column_pack(columns, across.begin, across.end, column_classes.order);
    const char* column_base = call.send_columns(column_pack);
    for (const Range& down : row_ranges) {
      const Classes row_classes =
          classify(down.size(), [&](int64_t i) { return rows.characters(down.begin + i); });
      const FuzzyPack row_pack(rows, down.begin, down.end, row_classes.order);
      const char* row_base = call.send_rows(row_pack);
      const FuzzyScores scores = call.begin_tile();
      FuzzyPairs tile;
      tile.a = row_pack.texts(row_base);
      tile.b = column_pack.texts(column_base);
      tile.firsts = row_pack.order(row_base);
      tile.seconds = column_pack.order(column_base);
      tile.stride = across.size();
      launcher.all_pairs(tile, row_classes, column_classes, scores);
      call.end_tile(static_cast<char*>(out) + (down.begin * choices.size + across.begin) * value,
                    down.size(), across.size(), choices.size);
    }
  }
  call.finish();
}

void fuzzy_cpdist(Context& context, Span<const Text> queries, Span<const Text> choices,
                  const FuzzyCdist& options, FuzzyType type, void* out) {
  if (queries.size == 0) return;
  const bool words = options.scorer == FuzzyScorer::kTokenSetRatio;
  FuzzySource firsts(queries, words);
  FuzzySource seconds(choices, words);
  if (words) FuzzySource::number(&firsts, &seconds);
  const size_t memory = memory_to_use(context);
  const int64_t part = static_cast<int64_t>(memory) / kParts;
  const int64_t value = fuzzy_bytes(type);
  const int64_t most =
      std::clamp<int64_t>(std::min(part, Downloader::kHeldBytes) / value, 1, kMostTexts);
  // Where either side must be cut, both are.
  std::vector<Range> ranges;
  int64_t begin = 0;
  int64_t first_bytes = 0;
  int64_t second_bytes = 0;
  for (int64_t i = 0; i < queries.size; ++i) {
    const int64_t first = firsts.bytes(i);
    const int64_t second = seconds.bytes(i);
    const int64_t texts = i + 1 - begin;
    if (i > begin && (texts > most || FuzzyPack::room(texts, first_bytes + first) > part ||
                      FuzzyPack::room(texts, second_bytes + second) > part)) {
      ranges.push_back({begin, i});
      begin = i;
      first_bytes = second_bytes = 0;
    }
    first_bytes += first;
    second_bytes += second;
  }
  ranges.push_back({begin, queries.size});
  int64_t largest = 0;
  for (const Range& range : ranges) largest = std::max(largest, range.size());
  Call call(context, options, type, room_of(firsts, ranges), room_of(seconds, ranges), largest,
            {longest_of(firsts), longest_of(seconds)}, memory);
  const Launcher launcher = call.launcher();
  for (const Range& range : ranges) {
    const auto shorter = [&](int64_t i) {
      return std::min(firsts.characters(range.begin + i), seconds.characters(range.begin + i));
    };
    const Classes classes = classify(range.size(), shorter);
    const FuzzyPack first_pack(firsts, range.begin, range.end, classes.order);
    const FuzzyPack second_pack(seconds, range.begin, range.end, {});
    const char* second_base = call.send_columns(second_pack);
    const char* first_base = call.send_rows(first_pack);
    const FuzzyScores scores = call.begin_tile();
    FuzzyPairs tile;
    tile.a = first_pack.texts(first_base);
    tile.b = second_pack.texts(second_base);
    tile.firsts = first_pack.order(first_base);
    tile.paired = true;
    launcher.pair_by_pair(tile, classes, {first_pack.longest(), second_pack.longest()}, scores);
    call.end_tile(static_cast<char*>(out) + range.begin * value, range.size(), 1, 1);
  }
  call.finish();
}

}  // namespace pytrace::cuda
