// Many texts against many: the work is cut into tiles that share the tables of a few needles and
// write to different places, so that threads need no lock and their number changes no result.
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "fuzzy_partial.h"
#include "fuzzy_text.h"
#include "fuzzy_words.h"
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

  double cutoff() const { return cutoff_; }

  // Whether scores below the cutoff are zeros from the start and need not be put.
  bool prunes() const { return cutoff_ > 0 && std::isfinite(multiplier_); }

  // Makes `count` entries zero; in every type that is all bits zero.
  void clear(int64_t count) const {
    std::memset(data_, 0, static_cast<size_t>(count) * size_of(type_));
  }

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
  static size_t size_of(FuzzyType type) {
    switch (type) {
      case FuzzyType::kInt8:
      case FuzzyType::kUint8:
        return 1;
      case FuzzyType::kInt16:
      case FuzzyType::kUint16:
        return 2;
      case FuzzyType::kFloat32:
      case FuzzyType::kInt32:
      case FuzzyType::kUint32:
        return 4;
      default:
        return 8;
    }
  }

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

// How a score is rounded: ratio's way or token_set_ratio's.
enum class Rounding { kRatio, kPercent };

double score_of(Rounding rounding, int64_t lcs, int64_t total) {
  return rounding == Rounding::kRatio ? fuzzy_ratio_of(lcs, total) : fuzzy_percent_of(lcs, total);
}

// Some needles of at most 8 * sizeof(Mask) characters that share one table.
template <typename Mask>
class Pack {
 public:
  Pack(const Side& needles, int64_t begin, int64_t end)
      : lanes_(fuzzy_lanes<Mask>(active_fuzzy_vector())),
        narrow_(end - begin <= lanes_.narrow_size),
        width_(static_cast<size_t>(narrow_ ? lanes_.narrow_size : lanes_.pack_size)),
        sizes_(static_cast<size_t>(end - begin)),
        table_(width_, 0),
        lcs_(width_) {
    for (int64_t k = begin; k < end; ++k) add(needles.text(k), static_cast<size_t>(k - begin));
  }

  // scores[k] = score of needle k beside the text.
  void score(const Text& text, Rounding rounding, double* scores) {
    if (rows_.size() < static_cast<size_t>(text.size)) rows_.resize(static_cast<size_t>(text.size));
    alphabet_.number(text, rows_.data());
    (narrow_ ? lanes_.narrow_pack : lanes_.pack)(table_.data(), rows_.data(), text.size,
                                                 lcs_.data());
    const FuzzyVector& vector = active_fuzzy_vector();
    const auto count = static_cast<int64_t>(sizes_.size());
    const bool percent = rounding == Rounding::kPercent;
    const auto store = [&](auto function) {
      function(lcs_.data(), sizes_.data(), text.size, count, percent, scores);
    };
    if constexpr (sizeof(Mask) == 1) store(vector.scores8);
    if constexpr (sizeof(Mask) == 2) store(vector.scores16);
    if constexpr (sizeof(Mask) == 4) store(vector.scores32);
    if constexpr (sizeof(Mask) == 8) store(vector.scores64);
  }

 private:
  void add(const Text& needle, size_t k) {
    sizes_[k] = static_cast<int32_t>(needle.size);
    with_characters(needle, [&](const auto* characters) {
      for (int64_t r = 0; r < needle.size; ++r) {
        const size_t row = alphabet_.add(characters[r]);
        if (table_.size() < (row + 1) * width_) table_.resize((row + 1) * width_, 0);
        Mask& mask = table_[row * width_ + k];
        mask = static_cast<Mask>(mask | static_cast<Mask>(Mask{1} << r));
      }
    });
  }

  const FuzzyLanes<Mask>& lanes_;
  bool narrow_;
  size_t width_;
  std::vector<int32_t> sizes_;
  Alphabet alphabet_;
  std::vector<Mask> table_;
  std::vector<Mask> lcs_;
  std::vector<uint32_t> rows_;
};

// Beside a cutoff the needles are in order of size, so that most packs are too short or too long as
// a whole for most texts; a pack's table is made when the first text needs it.
template <typename Mask>
void ratio_packs(const Side& needles, const Side& texts, Rounding rounding, const Output& output,
                 int threads) {
  const int64_t pack_size = fuzzy_lanes<Mask>(active_fuzzy_vector()).pack_size;
  for_tiles(needles.size(), pack_size, texts.size(), kTileTexts, threads,
            [&](int64_t begin, int64_t end, int64_t text_begin, int64_t text_end) {
              const int64_t shortest = needles.text(begin).size;
              const int64_t longest = needles.text(end - 1).size;
              std::optional<Pack<Mask>> pack;
              std::vector<double> scores(static_cast<size_t>(end - begin));
              for (int64_t t = text_begin; t < text_end; ++t) {
                const Text& text = texts.text(t);
                if (output.prunes()) {
                  // The size that goes best with the text.
                  const int64_t m = std::max(shortest, std::min(longest, text.size));
                  const int64_t most = std::min(m, text.size);
                  if (score_of(rounding, most, m + text.size) < output.cutoff()) continue;
                }
                if (!pack) pack.emplace(needles, begin, end);
                pack->score(text, rounding, scores.data());
                output.put(scores.data(), needles.indices.data() + begin, end - begin,
                           texts.place(t), needles.stride);
              }
            });
}

// Puts texts of at most 64 characters in order of size.
void order_by_size(Side* side) {
  std::vector<int64_t> ends(66, 0);
  for (int64_t k = 0; k < side->size(); ++k) ++ends[static_cast<size_t>(side->text(k).size + 1)];
  for (size_t size = 1; size < ends.size(); ++size) ends[size] += ends[size - 1];
  std::vector<int64_t> ordered(side->indices.size());
  for (int64_t k = 0; k < side->size(); ++k) {
    const int64_t place = ends[static_cast<size_t>(side->text(k).size)]++;
    ordered[static_cast<size_t>(place)] = side->indices[static_cast<size_t>(k)];
  }
  side->indices.swap(ordered);
}

template <typename Mask>
void ratio_width(Span<const Text> needles, int64_t stride, const Side& texts, Rounding rounding,
                 const Output& output, int threads) {
  constexpr int64_t most = 8 * sizeof(Mask);
  Side side = select(needles, stride,
                     [](int64_t size) { return size <= most && (most == 8 || size > most / 2); });
  if (side.size() == 0) return;
  if (output.prunes()) order_by_size(&side);
  ratio_packs<Mask>(side, texts, rounding, output, threads);
}

void ratio_short_needles(Span<const Text> needles, int64_t stride, const Side& texts,
                         Rounding rounding, const Output& output, int threads) {
  if (texts.size() == 0) return;
  ratio_width<uint8_t>(needles, stride, texts, rounding, output, threads);
  ratio_width<uint16_t>(needles, stride, texts, rounding, output, threads);
  ratio_width<uint32_t>(needles, stride, texts, rounding, output, threads);
  ratio_width<uint64_t>(needles, stride, texts, rounding, output, threads);
}

void ratio_cdist(Span<const Text> queries, Span<const Text> choices, Rounding rounding,
                 const Output& output, int threads) {
  const auto any = [](int64_t) { return true; };
  const auto longer = [](int64_t size) { return size > 64; };
  ratio_short_needles(choices, 1, select(queries, choices.size, any), rounding, output, threads);
  const Side long_choices = select(choices, 1, longer);
  ratio_short_needles(queries, choices.size, long_choices, rounding, output, threads);
  const Side long_queries = select(queries, choices.size, longer);
  for_tiles(long_queries.size(), 4, long_choices.size(), 4, threads,
            [&](int64_t q_begin, int64_t q_end, int64_t c_begin, int64_t c_end) {
              for (int64_t q = q_begin; q < q_end; ++q) {
                for (int64_t c = c_begin; c < c_end; ++c) {
                  const Text& a = long_queries.text(q);
                  const Text& b = long_choices.text(c);
                  const int64_t total = a.size + b.size;
                  if (output.prunes() &&
                      score_of(rounding, std::min(a.size, b.size), total) < output.cutoff()) {
                    continue;
                  }
                  output.put(score_of(rounding, fuzzy_lcs(a, b), total),
                             long_queries.place(q) + long_choices.place(c));
                }
              }
            });
}

// ---- partial_ratio

// The bags of many texts for needles of one width.
class Bags {
 public:
  Bags(const Side& texts, int64_t width, int64_t least, int threads) {
    begins_.reserve(static_cast<size_t>(texts.size()));
    int64_t count = 0;
    for (int64_t t = 0; t < texts.size(); ++t) {
      begins_.push_back(count);
      if (texts.text(t).size >= least) count += fuzzy_block_count(texts.text(t).size, width);
    }
    bags_.resize(static_cast<size_t>(count));
    parallel_for(texts.size(), 64, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        if (texts.text(t).size < least) continue;
        fuzzy_fill_blocks(texts.text(t), width, bags_.data() + begins_[static_cast<size_t>(t)]);
      }
    });
  }

  const FuzzyBag* of(int64_t text) const {
    return bags_.data() + begins_[static_cast<size_t>(text)];
  }

 private:
  std::vector<int64_t> begins_;
  std::vector<FuzzyBag> bags_;
};

// The pairs whose text is longer than the needle by `margin` or more.
void partial_side(const Side& needles, const Side& texts, int64_t margin, const Output& output,
                  int threads) {
  int64_t longest = -1;
  for (int64_t t = 0; t < texts.size(); ++t) longest = std::max(longest, texts.text(t).size);
  Side fitting{needles.texts, {}, needles.stride};
  int64_t least[4] = {-1, -1, -1, -1};  // the shortest needle of each width
  const auto kind_of = [](int64_t size) {
    return size <= 8 ? 0 : size <= 16 ? 1 : size <= 32 ? 2 : 3;
  };
  for (int64_t k = 0; k < needles.size(); ++k) {
    const int64_t m = needles.text(k).size;
    if (m + margin > longest) continue;
    fitting.indices.push_back(needles.indices[static_cast<size_t>(k)]);
    if (m == 0 || m > 64) continue;
    int64_t& shortest = least[kind_of(m)];
    shortest = shortest < 0 ? m : std::min(shortest, m);
  }
  const double cutoff = output.prunes() ? output.cutoff() : 0.0;
  std::optional<Bags> bags[4];
  for (int kind = 0; kind < 4 && cutoff >= kFuzzyBagCutoff; ++kind) {
    if (least[kind] > 0)
      bags[kind].emplace(texts, int64_t{8} << kind, least[kind] + margin, threads);
  }
  const auto sink = [&](int64_t place, double score) { output.put(score, place); };
  for_tiles(fitting.size(), kTileNeedles, texts.size(), kTileTexts, threads,
            [&](int64_t begin, int64_t end, int64_t text_begin, int64_t text_end) {
              PartialBatch batch(sink, cutoff);
              for (int64_t k = begin; k < end; ++k) {
                const Text& needle = fitting.text(k);
                const std::optional<Bags>& blocks = bags[kind_of(needle.size)];
                batch.set_needle(needle);
                for (int64_t t = text_begin; t < text_end; ++t) {
                  const Text& text = texts.text(t);
                  if (text.size < needle.size + margin) continue;
                  batch.add(text, blocks ? blocks->of(t) : nullptr,
                            fitting.place(k) + texts.place(t));
                }
              }
              batch.finish();
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

// Words by number, the same number for the same word.
class Numbering {
 public:
  static constexpr uint32_t kUnknown = 0xffffffff;

  uint32_t add(const WordSet& set, const WordSet::Word& word) {
    if (slots_.size() < 2 * (known_.size() + 1)) {
      slots_.assign(std::max<size_t>(64, 2 * slots_.size()), kUnknown);
      for (uint32_t number = 0; number < known_.size(); ++number) {
        slots_[probe(*known_[number].set, known_[number].word)] = number;
      }
    }
    uint32_t& number = slots_[probe(set, word)];
    if (number == kUnknown) {
      number = static_cast<uint32_t>(known_.size());
      known_.push_back({&set, word});
    }
    return number;
  }

  uint32_t find(const WordSet& set, const WordSet::Word& word) const {
    return slots_.empty() ? kUnknown : slots_[probe(set, word)];
  }

 private:
  struct Known {
    const WordSet* set;
    WordSet::Word word;
  };

  size_t probe(const WordSet& set, const WordSet::Word& word) const {
    uint64_t hash = 0;
    const uint32_t* characters = set.characters(word);
    for (int64_t i = 0; i < word.size(); ++i) {
      hash = (hash ^ characters[i]) * uint64_t{0x9E3779B97F4A7C15};
      hash ^= hash >> 32;
    }
    const size_t mask = slots_.size() - 1;
    for (size_t at = static_cast<size_t>(hash) & mask;; at = (at + 1) & mask) {
      if (slots_[at] == kUnknown) return at;
      const Known& known = known_[slots_[at]];
      if (set.compare(word, *known.set, known.word) == 0) return at;
    }
  }

  std::vector<uint32_t> slots_;
  std::vector<Known> known_;
};

// The texts of one side as word sets, each word with its number, and all words joined.
struct TokenSide {
  explicit TokenSide(Span<const Text> texts, int threads)
      : sets(static_cast<size_t>(texts.size)),
        numbers(static_cast<size_t>(texts.size)),
        joined(static_cast<size_t>(texts.size)),
        characters(static_cast<size_t>(texts.size)) {
    parallel_for(texts.size, 64, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const auto k = static_cast<size_t>(i);
        joined[k].missing = true;
        if (texts[i].missing) continue;
        sets[k].assign(texts[i]);
        if (sets[k].size() == 0) continue;
        sets[k].join(nullptr, &characters[k]);
        joined[k] = {characters[k].data(), sets[k].joined_size(), 4, false};
      }
    });
  }

  template <typename Number>
  void number(const Number& number_of) {
    for (size_t k = 0; k < sets.size(); ++k) {
      numbers[k].reserve(static_cast<size_t>(sets[k].size()));
      for (int64_t w = 0; w < sets[k].size(); ++w) {
        numbers[k].push_back(number_of(sets[k], sets[k].word(w)));
      }
    }
  }

  Span<const Text> texts() const { return {joined.data(), static_cast<int64_t>(joined.size())}; }

  std::vector<WordSet> sets;
  std::vector<std::vector<uint32_t>> numbers;
  std::vector<Text> joined;  // missing where there is no word
  std::vector<std::vector<uint32_t>> characters;
};

// The words of one text, found by number.
class NumberSet {
 public:
  explicit NumberSet(const std::vector<uint32_t>& numbers) {
    size_t room = 8;
    while (room < 4 * numbers.size()) room *= 2;
    slots_.assign(room, Numbering::kUnknown);
    places_.resize(room);
    for (size_t k = 0; k < numbers.size(); ++k) {
      const size_t at = probe(numbers[k]);
      slots_[at] = numbers[k];
      places_[at] = static_cast<int64_t>(k);
    }
  }

  // Where the number stands among the words; -1 if it does not.
  int64_t find(uint32_t number) const {
    const size_t at = probe(number);
    return slots_[at] == Numbering::kUnknown ? -1 : places_[at];
  }

 private:
  size_t probe(uint32_t number) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (number * uint32_t{0x9E3779B1} >> 16) & mask;
    while (slots_[at] != Numbering::kUnknown && slots_[at] != number) at = (at + 1) & mask;
    return at;
  }

  std::vector<uint32_t> slots_;
  std::vector<int64_t> places_;
};

// Two texts without a common word score as their joined words do, which packs compute at once for
// all pairs; the pairs that have one are then scored one by one.
void token_set_cdist(Span<const Text> queries, Span<const Text> choices, double cutoff,
                     const Output& output, int threads) {
  TokenSide rows(queries, threads);
  TokenSide columns(choices, threads);
  Numbering numbering;
  rows.number([&](const auto& set, const auto& word) { return numbering.add(set, word); });
  columns.number([&](const auto& set, const auto& word) { return numbering.find(set, word); });
  // Without words the score is 0, which no loop below stores.
  for (int64_t q = 0; q < queries.size; ++q) {
    const bool empty_row = rows.sets[static_cast<size_t>(q)].size() == 0;
    for (int64_t c = 0; c < choices.size; ++c) {
      const bool empty = empty_row || columns.sets[static_cast<size_t>(c)].size() == 0;
      if (empty && !queries[q].missing && !choices[c].missing)
        output.put(0.0, q * choices.size + c);
    }
  }
  ratio_cdist(rows.texts(), columns.texts(), Rounding::kPercent, output, threads);
  for_tiles(queries.size, kTileNeedles, choices.size, 16 * kTileTexts, threads,
            [&](int64_t q_begin, int64_t q_end, int64_t c_begin, int64_t c_end) {
              TokenSetRatio scorer;
              std::vector<uint8_t> common_row;
              std::vector<uint8_t> common_column;
              for (int64_t q = q_begin; q < q_end; ++q) {
                const auto row = static_cast<size_t>(q);
                const NumberSet set(rows.numbers[row]);
                common_row.assign(rows.numbers[row].size(), 0);
                for (int64_t c = c_begin; c < c_end; ++c) {
                  const auto column = static_cast<size_t>(c);
                  const std::vector<uint32_t>& numbers = columns.numbers[column];
                  bool any = false;
                  for (size_t w = 0; w < numbers.size(); ++w) {
                    if (numbers[w] == Numbering::kUnknown) continue;
                    const int64_t place = set.find(numbers[w]);
                    if (place < 0) continue;
                    if (!any) common_column.assign(numbers.size(), 0);
                    any = true;
                    common_column[w] = 1;
                    common_row[static_cast<size_t>(place)] = 1;
                  }
                  if (!any) continue;
                  output.put(scorer.of_common(rows.sets[row], common_row.data(),
                                              columns.sets[column], common_column.data(), cutoff),
                             q * choices.size + c);
                  std::fill(common_row.begin(), common_row.end(), uint8_t{0});
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
  if (output.prunes()) output.clear(queries.size * choices.size);
  fill_missing(queries, choices, options.missing, type, out);
  switch (options.scorer) {
    case FuzzyScorer::kRatio:
      return ratio_cdist(queries, choices, Rounding::kRatio, output, options.threads);
    case FuzzyScorer::kPartialRatio:
      return partial_cdist(queries, choices, output, options.threads);
    case FuzzyScorer::kTokenSetRatio:
      return token_set_cdist(queries, choices, options.cutoff, output, options.threads);
  }
}

}  // namespace pytrace
