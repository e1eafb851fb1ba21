// Many texts against many: the work is cut into tiles that share the tables of a few needles and
// write to different places, so that threads need no lock and their number changes no result.
#include <cmath>
#include <type_traits>

#include "fuzzy_text.h"
#include "parallel.h"

namespace pytrace {
namespace {

// A needle's table costs about as much as one or two pairs, so a tile of 64 texts or more makes it
// free; and a tile must be small enough that a call of a few thousand pairs has some for every
// thread.
constexpr int64_t kTileNeedles = 16;
constexpr int64_t kTileTexts = 128;

class Output {
 public:
  Output(const FuzzyCdist& options, FuzzyType type, void* data)
      : cutoff_(options.cutoff), multiplier_(options.multiplier), type_(type), data_(data) {}

  // Stores scores[k] at begin + where[k] * stride.
  void put(const double* scores, const int64_t* where, int64_t count, int64_t begin,
           int64_t stride) const {
    switch (type_) {
      case FuzzyType::kFloat32:
        return put_as<float>(scores, where, count, begin, stride);
      case FuzzyType::kFloat64:
        return put_as<double>(scores, where, count, begin, stride);
      case FuzzyType::kInt8:
        return put_as<int8_t>(scores, where, count, begin, stride);
      case FuzzyType::kInt16:
        return put_as<int16_t>(scores, where, count, begin, stride);
      case FuzzyType::kInt32:
        return put_as<int32_t>(scores, where, count, begin, stride);
      case FuzzyType::kInt64:
        return put_as<int64_t>(scores, where, count, begin, stride);
      case FuzzyType::kUint8:
        return put_as<uint8_t>(scores, where, count, begin, stride);
      case FuzzyType::kUint16:
        return put_as<uint16_t>(scores, where, count, begin, stride);
      case FuzzyType::kUint32:
        return put_as<uint32_t>(scores, where, count, begin, stride);
      case FuzzyType::kUint64:
        return put_as<uint64_t>(scores, where, count, begin, stride);
    }
  }

  void put(double score, int64_t at) const {
    const int64_t where = 0;
    put(&score, &where, 1, at, 1);
  }

 private:
  template <typename Value>
  void put_as(const double* scores, const int64_t* where, int64_t count, int64_t begin,
              int64_t stride) const {
    Value* out = static_cast<Value*>(data_) + begin;
    for (int64_t k = 0; k < count; ++k) {
      const double value = fuzzy_apply_cutoff(scores[k], cutoff_) * multiplier_;
      if constexpr (std::is_floating_point_v<Value>) {
        out[where[k] * stride] = static_cast<Value>(value);
      } else {
        out[where[k] * stride] = static_cast<Value>(std::llround(value));
      }
    }
  }

  double cutoff_;
  double multiplier_;
  FuzzyType type_;
  void* data_;
};

// One side of the matrix: which of its texts take part, and how far apart their entries are in the
// output.
struct Side {
  Span<const Text> texts;
  std::vector<int64_t> indices;
  int64_t stride;

  const Text& text(int64_t k) const { return texts[indices[static_cast<size_t>(k)]]; }
  int64_t place(int64_t k) const { return indices[static_cast<size_t>(k)] * stride; }
  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

template <typename Accept>
Side select(Span<const Text> texts, int64_t stride, const Accept& accept) {
  Side side{texts, {}, stride};
  for (int64_t i = 0; i < texts.size; ++i) {
    if (!texts[i].missing && accept(texts[i].size)) side.indices.push_back(i);
  }
  return side;
}

int64_t tiles_of(int64_t count, int64_t tile) { return (count + tile - 1) / tile; }

// Calls body(first begin, first end, second begin, second end) for every tile of a product.
template <typename Body>
void for_tiles(int64_t first, int64_t first_tile, int64_t second, int64_t second_tile, int threads,
               const Body& body) {
  const int64_t columns = tiles_of(second, second_tile);
  parallel_for(tiles_of(first, first_tile) * columns, 1, threads,
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t tile = begin; tile < end; ++tile) {
                   const int64_t i = tile / columns * first_tile;
                   const int64_t j = tile % columns * second_tile;
                   body(i, std::min(i + first_tile, first), j, std::min(j + second_tile, second));
                 }
               });
}

// ---- ratio

// The needles of a pack are at most 8 * sizeof(Mask) characters long and share one table.
template <typename Mask>
void ratio_packs(const Side& needles, const Side& texts, const Output& output, int threads) {
  const FuzzyLanes<Mask>& lanes = fuzzy_lanes<Mask>(active_fuzzy_vector());
  const FuzzyVector& vector = active_fuzzy_vector();
  for_tiles(needles.size(), lanes.pack_size, texts.size(), kTileTexts, threads,
            [&](int64_t begin, int64_t end, int64_t text_begin, int64_t text_end) {
              const int64_t count = end - begin;
              const bool narrow = count <= lanes.narrow_size;
              const int64_t width = narrow ? lanes.narrow_size : lanes.pack_size;
              Alphabet alphabet;
              std::vector<Mask> table(static_cast<size_t>(width), 0);
              std::vector<int32_t> sizes(static_cast<size_t>(count));
              for (int64_t k = 0; k < count; ++k) {
                const Text& needle = needles.text(begin + k);
                sizes[static_cast<size_t>(k)] = static_cast<int32_t>(needle.size);
                with_characters(needle, [&](const auto* characters) {
                  for (int64_t r = 0; r < needle.size; ++r) {
                    const size_t row = alphabet.add(characters[r]);
                    if (table.size() < (row + 1) * static_cast<size_t>(width)) {
                      table.resize((row + 1) * static_cast<size_t>(width), 0);
                    }
                    Mask& mask = table[row * static_cast<size_t>(width) + static_cast<size_t>(k)];
                    mask = static_cast<Mask>(mask | static_cast<Mask>(Mask{1} << r));
                  }
                });
              }
              std::vector<uint32_t> rows;
              std::vector<Mask> lcs(static_cast<size_t>(width));
              std::vector<double> scores(static_cast<size_t>(count));
              for (int64_t t = text_begin; t < text_end; ++t) {
                const Text& text = texts.text(t);
                if (rows.size() < static_cast<size_t>(text.size))
                  rows.resize(static_cast<size_t>(text.size));
                alphabet.number(text, rows.data());
                (narrow ? lanes.narrow_pack : lanes.pack)(table.data(), rows.data(), text.size,
                                                          lcs.data());
                if constexpr (sizeof(Mask) == 1)
                  vector.scores8(lcs.data(), sizes.data(), text.size, count, scores.data());
                if constexpr (sizeof(Mask) == 2)
                  vector.scores16(lcs.data(), sizes.data(), text.size, count, scores.data());
                if constexpr (sizeof(Mask) == 4)
                  vector.scores32(lcs.data(), sizes.data(), text.size, count, scores.data());
                if constexpr (sizeof(Mask) == 8)
                  vector.scores64(lcs.data(), sizes.data(), text.size, count, scores.data());
                output.put(scores.data(), needles.indices.data() + begin, count, texts.place(t),
                           needles.stride);
              }
            });
}

template <typename Mask>
void ratio_width(Span<const Text> needles, int64_t stride, const Side& texts, const Output& output,
                 int threads) {
  constexpr int64_t most = 8 * sizeof(Mask);
  const Side side = select(
      needles, stride, [](int64_t size) { return size <= most && (most == 8 || size > most / 2); });
  if (side.size() > 0) ratio_packs<Mask>(side, texts, output, threads);
}

void ratio_short_needles(Span<const Text> needles, int64_t stride, const Side& texts,
                         const Output& output, int threads) {
  if (texts.size() == 0) return;
  ratio_width<uint8_t>(needles, stride, texts, output, threads);
  ratio_width<uint16_t>(needles, stride, texts, output, threads);
  ratio_width<uint32_t>(needles, stride, texts, output, threads);
  ratio_width<uint64_t>(needles, stride, texts, output, threads);
}

void ratio_cdist(Span<const Text> queries, Span<const Text> choices, const Output& output,
                 int threads) {
  const auto any = [](int64_t) { return true; };
  const auto longer = [](int64_t size) { return size > 64; };
  ratio_short_needles(choices, 1, select(queries, choices.size, any), output, threads);
  const Side long_choices = select(choices, 1, longer);
  ratio_short_needles(queries, choices.size, long_choices, output, threads);
  const Side long_queries = select(queries, choices.size, longer);
  for_tiles(long_queries.size(), 4, long_choices.size(), 4, threads,
            [&](int64_t q_begin, int64_t q_end, int64_t c_begin, int64_t c_end) {
              for (int64_t q = q_begin; q < q_end; ++q) {
                for (int64_t c = c_begin; c < c_end; ++c) {
                  const Text& a = long_queries.text(q);
                  const Text& b = long_choices.text(c);
                  output.put(fuzzy_ratio_of(fuzzy_lcs(a, b), a.size + b.size),
                             long_queries.place(q) + long_choices.place(c));
                }
              }
            });
}

// ---- partial_ratio

// Characters and zeros that stand in one row: enough that the unfinished vector at the end does not
// matter, and at 8 bytes a mask and a count still in the first-level cache together.
constexpr int64_t kRowSize = 1536;

class PartialTile {
 public:
  PartialTile(const FuzzyVector& vector, const Output& output)
      : vector_(vector),
        output_(output),
        lane8_(vector.lanes8),
        lane16_(vector.lanes16),
        lane32_(vector.lanes32),
        lane64_(vector.lanes64) {}

  // Scores a needle beside the texts of [begin, end) that are longer by `margin` or more. Some
  // scores may be stored only by finish().
  void run(const Text& needle, int64_t place, const Side& texts, int64_t begin, int64_t end,
           int64_t margin) {
    if (needle.size > 0 && needle.size <= 64) {
      with_mask(needle.size,
                [&](auto mask) { run_lane(lane(mask), needle, place, texts, begin, end, margin); });
      return;
    }
    for (int64_t t = begin; t < end; ++t) {
      const Text& text = texts.text(t);
      if (text.size < needle.size + margin) continue;
      if (needle.size == 0) {
        output_.put(text.size == 0 ? 100.0 : 0.0, place + texts.place(t));
      } else {
        put(needle, text, fuzzy_best_window(needle, text), place + texts.place(t));
      }
    }
  }

  void finish() {
    finish_lane(lane8_);
    finish_lane(lane16_);
    finish_lane(lane32_);
    finish_lane(lane64_);
  }

 private:
  struct Waiting {
    const Text* needle;
    const Text* text;
    int64_t place;
    int64_t begin;  // of its counts
  };

  template <typename Mask>
  struct Lane {
    explicit Lane(const FuzzyLanes<Mask>& loops) : row(loops) {}
    MatchTable<Mask> table;
    WindowRow<Mask> row;
    std::vector<Waiting> waiting;
  };

  template <typename Mask>
  void run_lane(Lane<Mask>& lane, const Text& needle, int64_t place, const Side& texts,
                int64_t begin, int64_t end, int64_t margin) {
    lane.table.assign(needle);
    for (int64_t t = begin; t < end; ++t) {
      const Text& text = texts.text(t);
      if (text.size < needle.size + margin) continue;
      if (lane.row.size() + text.size > kRowSize) finish_lane(lane);
      lane.waiting.push_back(
          {&needle, &text, place + texts.place(t), lane.row.add(lane.table, needle.size, text)});
    }
  }

  template <typename Mask>
  void finish_lane(Lane<Mask>& lane) {
    if (lane.waiting.empty()) return;
    lane.row.run();
    const FuzzyLanes<Mask>& loops = fuzzy_lanes<Mask>(vector_);
    for (const Waiting& one : lane.waiting) {
      const FuzzyWindow window =
          loops.best(lane.row.counts() + one.begin, one.text->size, one.needle->size);
      put(*one.needle, *one.text, window, one.place);
    }
    lane.waiting.clear();
    lane.row.clear();
  }

  void put(const Text& needle, const Text& text, FuzzyWindow window, int64_t place) const {
    const int64_t m = needle.size;
    if (text.size == m && window.lcs < m) {
      const FuzzyWindow other = fuzzy_best_window(text, needle);
      if (fuzzy_better(other, window, m)) window = other;
    }
    output_.put(fuzzy_ratio_of(window.lcs, m + window.length), place);
  }

  Lane<uint8_t>& lane(uint8_t) { return lane8_; }
  Lane<uint16_t>& lane(uint16_t) { return lane16_; }
  Lane<uint32_t>& lane(uint32_t) { return lane32_; }
  Lane<uint64_t>& lane(uint64_t) { return lane64_; }

  const FuzzyVector& vector_;
  const Output& output_;
  Lane<uint8_t> lane8_;
  Lane<uint16_t> lane16_;
  Lane<uint32_t> lane32_;
  Lane<uint64_t> lane64_;
};

// The pairs whose text is longer than the needle by `margin` or more.
void partial_side(const Side& needles, const Side& texts, int64_t margin, const Output& output,
                  int threads) {
  int64_t longest = -1;
  for (int64_t t = 0; t < texts.size(); ++t) longest = std::max(longest, texts.text(t).size);
  Side fitting{needles.texts, {}, needles.stride};
  for (int64_t k = 0; k < needles.size(); ++k) {
    if (needles.text(k).size + margin <= longest) {
      fitting.indices.push_back(needles.indices[static_cast<size_t>(k)]);
    }
  }
  const FuzzyVector& vector = active_fuzzy_vector();
  for_tiles(fitting.size(), kTileNeedles, texts.size(), kTileTexts, threads,
            [&](int64_t begin, int64_t end, int64_t text_begin, int64_t text_end) {
              PartialTile tile(vector, output);
              for (int64_t k = begin; k < end; ++k) {
                tile.run(fitting.text(k), fitting.place(k), texts, text_begin, text_end, margin);
              }
              tile.finish();
            });
}

void partial_cdist(Span<const Text> queries, Span<const Text> choices, const Output& output,
                   int threads) {
  const auto any = [](int64_t) { return true; };
  const Side rows = select(queries, choices.size, any);
  const Side columns = select(choices, 1, any);
  partial_side(columns, rows, 0, output, threads);
  partial_side(rows, columns, 1, output, threads);
}

// ---- token_set_ratio

std::vector<Words> split_all(const Side& side, int threads) {
  std::vector<Words> words(static_cast<size_t>(side.size()));
  parallel_for(side.size(), 64, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) words[static_cast<size_t>(k)] = fuzzy_split(side.text(k));
  });
  return words;
}

void token_set_cdist(Span<const Text> queries, Span<const Text> choices, double cutoff,
                     const Output& output, int threads) {
  const auto any = [](int64_t) { return true; };
  const Side rows = select(queries, choices.size, any);
  const Side columns = select(choices, 1, any);
  const std::vector<Words> row_words = split_all(rows, threads);
  const std::vector<Words> column_words = split_all(columns, threads);
  for_tiles(rows.size(), kTileNeedles, columns.size(), kTileTexts, threads,
            [&](int64_t q_begin, int64_t q_end, int64_t c_begin, int64_t c_end) {
              for (int64_t q = q_begin; q < q_end; ++q) {
                for (int64_t c = c_begin; c < c_end; ++c) {
                  output.put(fuzzy_token_set_ratio(row_words[static_cast<size_t>(q)],
                                                   column_words[static_cast<size_t>(c)], cutoff),
                             rows.place(q) + columns.place(c));
                }
              }
            });
}

void fill_missing(Span<const Text> queries, Span<const Text> choices, double value, FuzzyType type,
                  void* out) {
  const Output output({FuzzyScorer::kRatio, -INFINITY, 1.0, 0.0, 1}, type, out);
  std::vector<int64_t> missing_columns;
  for (int64_t c = 0; c < choices.size; ++c) {
    if (choices[c].missing) missing_columns.push_back(c);
  }
  const std::vector<double> values(missing_columns.size(), value);
  for (int64_t q = 0; q < queries.size; ++q) {
    if (queries[q].missing) {
      for (int64_t c = 0; c < choices.size; ++c) output.put(value, q * choices.size + c);
    } else {
      output.put(values.data(), missing_columns.data(), static_cast<int64_t>(values.size()),
                 q * choices.size, 1);
    }
  }
}

}  // namespace

void fuzzy_cdist(Span<const Text> queries, Span<const Text> choices, const FuzzyCdist& options,
                 FuzzyType type, void* out) {
  const Output output(options, type, out);
  fill_missing(queries, choices, options.missing, type, out);
  switch (options.scorer) {
    case FuzzyScorer::kRatio:
      return ratio_cdist(queries, choices, output, options.threads);
    case FuzzyScorer::kPartialRatio:
      return partial_cdist(queries, choices, output, options.threads);
    case FuzzyScorer::kTokenSetRatio:
      return token_set_cdist(queries, choices, options.cutoff, output, options.threads);
  }
}

}  // namespace pytrace
