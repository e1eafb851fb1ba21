// ratio and partial_ratio of many texts against many.
#include <optional>

#include "common/dispatch.h"
#include "fuzzy/fuzzy_matrix.h"
#include "fuzzy/fuzzy_partial.h"
#include "fuzzy/fuzzy_text.h"

namespace pytrace {
namespace {

// ---- ratio

// Rows that a pack's table begins with; it doubles as it needs more.
constexpr size_t kFirstRows = 64;

// Some needles of at most 8 * sizeof(Mask) characters that share one table.
template <typename Mask>
class Pack {
 public:
  Pack(const FuzzySide& needles, int64_t begin, int64_t end)
      : lanes_(fuzzy_lanes<Mask>(active_fuzzy_vector())),
        narrow_(end - begin <= lanes_.narrow_size),
        width_(static_cast<size_t>(narrow_ ? lanes_.narrow_size : lanes_.pack_size)),
        sizes_(static_cast<size_t>(end - begin)),
        table_(kFirstRows * width_, 0),
        lcs_(width_) {
    for (int64_t k = begin; k < end; ++k) add(needles.text(k), static_cast<size_t>(k - begin));
  }

  // scores[k] = score of needle k beside the text.
  void score(const Text& text, FuzzyRounding rounding, double* scores) {
    if (rows_.size() < static_cast<size_t>(text.size)) rows_.resize(static_cast<size_t>(text.size));
    alphabet_.number(text, rows_.data());
    (narrow_ ? lanes_.narrow_pack : lanes_.pack)(table_.data(), rows_.data(), text.size,
                                                 lcs_.data());
    const FuzzyVector& vector = active_fuzzy_vector();
    const auto count = static_cast<int64_t>(sizes_.size());
    const bool percent = rounding == FuzzyRounding::kPercent;
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
    Mask* column = table_.data() + k;
    with_characters(needle, [&](const auto* characters) {
      for (int64_t r = 0; r < needle.size; ++r) {
        const size_t row = alphabet_.add(characters[r]);
        if (row * width_ >= table_.size()) {
          table_.resize(2 * row * width_, 0);
          column = table_.data() + k;
        }
        Mask& mask = column[row * width_];
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
void ratio_packs(const FuzzySide& needles, const FuzzySide& texts, FuzzyRounding rounding,
                 const FuzzyOutput& output, int threads) {
  const int64_t pack_size = fuzzy_lanes<Mask>(active_fuzzy_vector()).pack_size;
  for_fuzzy_tiles(needles.size(), pack_size, texts.size(), kFuzzyTileTexts, threads,
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
                        if (fuzzy_score_of(rounding, most, m + text.size) < output.cutoff())
                          continue;
                      }
                      if (!pack) pack.emplace(needles, begin, end);
                      pack->score(text, rounding, scores.data());
                      output.put(scores.data(), needles.indices.data() + begin, end - begin,
                                 texts.place(t), needles.stride);
                    }
                  });
}

// Puts texts of at most 64 characters in order of size.
void order_by_size(FuzzySide* side) {
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
void ratio_width(Span<const Text> needles, int64_t stride, const FuzzySide& texts,
                 FuzzyRounding rounding, const FuzzyOutput& output, int threads) {
  constexpr int64_t most = 8 * sizeof(Mask);
  FuzzySide side = fuzzy_select(
      needles, stride, [](int64_t size) { return size <= most && (most == 8 || size > most / 2); });
  if (side.size() == 0) return;
  if (output.prunes()) order_by_size(&side);
  ratio_packs<Mask>(side, texts, rounding, output, threads);
}

void ratio_short_needles(Span<const Text> needles, int64_t stride, const FuzzySide& texts,
                         FuzzyRounding rounding, const FuzzyOutput& output, int threads) {
  if (texts.size() == 0) return;
  ratio_width<uint8_t>(needles, stride, texts, rounding, output, threads);
  ratio_width<uint16_t>(needles, stride, texts, rounding, output, threads);
  ratio_width<uint32_t>(needles, stride, texts, rounding, output, threads);
  ratio_width<uint64_t>(needles, stride, texts, rounding, output, threads);
}

// A pack's table of many needles costs more than it saves beside so few texts.
constexpr int64_t kFewTexts = 3;
constexpr int64_t kFewTileTexts = 256;

// The masks of a longer text take a row for each distinct character, up to 128 KiB here, which the
// second-level cache still holds.
constexpr int64_t kReadySize = 1024;

// Few texts, or ones longer than a mask, beside many: the masks of each are made once.
void ratio_of_few(const FuzzySide& few, const FuzzySide& many, FuzzyRounding rounding,
                  const FuzzyOutput& output, int threads) {
  for_fuzzy_tiles(
      few.size(), 1, many.size(), kFewTileTexts, threads,
      [&](int64_t row, int64_t, int64_t begin, int64_t end) {
        LcsQuery query(few.text(row));
        Text others[LcsQuery::kTogether];
        int64_t places[LcsQuery::kTogether];
        int64_t count = 0;
        const auto put = [&] {
          int64_t lcs[LcsQuery::kTogether];
          query.lcs(others, count, lcs);
          for (int64_t i = 0; i < count; ++i) {
            output.put(fuzzy_score_of(rounding, lcs[i], query.size() + others[i].size), places[i]);
          }
          count = 0;
        };
        for (int64_t k = begin; k < end; ++k) {
          const Text& other = many.text(k);
          const int64_t most = std::min(query.size(), other.size);
          if (output.prunes() &&
              fuzzy_score_of(rounding, most, query.size() + other.size) < output.cutoff()) {
            continue;
          }
          others[count] = other;
          places[count++] = few.place(row) + many.place(k);
          if (count == LcsQuery::kTogether) put();
        }
        put();
      });
}

// Texts too long to make masks of once: pairs without what they begin and end with in common.
void ratio_of_longest(const FuzzySide& longest, const FuzzySide& many, FuzzyRounding rounding,
                      const FuzzyOutput& output, int threads) {
  for_fuzzy_tiles(
      longest.size(), 1, many.size(), 4, threads,
      [&](int64_t row, int64_t, int64_t begin, int64_t end) {
        const Text& text = longest.text(row);
        for (int64_t k = begin; k < end; ++k) {
          const Text& other = many.text(k);
          const int64_t total = text.size + other.size;
          const int64_t most = std::min(text.size, other.size);
          if (output.prunes() && fuzzy_score_of(rounding, most, total) < output.cutoff()) {
            continue;
          }
          output.put(fuzzy_score_of(rounding, fuzzy_lcs(text, other), total),
                     longest.place(row) + many.place(k));
        }
      });
}

// ---- partial_ratio

// The bags of many texts for needles of one width.
class Bags {
 public:
  Bags(const FuzzySide& texts, int64_t width, int64_t least, int threads) {
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
void partial_side(const FuzzySide& needles, const FuzzySide& texts, int64_t margin,
                  const FuzzyOutput& output, int threads, const uint8_t* skip) {
  int64_t longest = -1;
  for (int64_t t = 0; t < texts.size(); ++t) longest = std::max(longest, texts.text(t).size);
  FuzzySide fitting{needles.texts, {}, needles.stride};
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
  for_fuzzy_tiles(fitting.size(), kFuzzyTileNeedles, texts.size(), kFuzzyTileTexts, threads,
                  [&](int64_t begin, int64_t end, int64_t text_begin, int64_t text_end) {
                    PartialBatch batch(sink, cutoff);
                    for (int64_t k = begin; k < end; ++k) {
                      const Text& needle = fitting.text(k);
                      const std::optional<Bags>& blocks = bags[kind_of(needle.size)];
                      batch.set_needle(needle);
                      for (int64_t t = text_begin; t < text_end; ++t) {
                        const Text& text = texts.text(t);
                        const int64_t place = fitting.place(k) + texts.place(t);
                        if (text.size < needle.size + margin) continue;
                        if (skip != nullptr && skip[place] != 0) continue;
                        batch.add(text, blocks ? blocks->of(t) : nullptr, place);
                      }
                    }
                    batch.finish();
                  });
}

void fill_missing(Span<const Text> queries, Span<const Text> choices, double value, FuzzyType type,
                  void* out) {
  const FuzzyOutput output({FuzzyScorer::kRatio, -INFINITY, 1.0, 0.0, 1}, type, out);
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

// ratio, and 0 for a pair with an empty text.
void quick_ratio_cdist(Span<const Text> queries, Span<const Text> choices,
                       const FuzzyOutput& output, int threads) {
  std::vector<Text> rows(queries.begin(), queries.end());
  std::vector<Text> columns(choices.begin(), choices.end());
  for (Text& text : rows) text.missing |= text.size == 0;
  for (Text& text : columns) text.missing |= text.size == 0;
  fuzzy_ratio_cdist({rows.data(), queries.size}, {columns.data(), choices.size},
                    FuzzyRounding::kRatio, output, threads);
  for (int64_t q = 0; q < queries.size; ++q) {
    for (int64_t c = 0; c < choices.size; ++c) {
      if (queries[q].missing || choices[c].missing) continue;
      if (queries[q].size == 0 || choices[c].size == 0) output.put(0.0, q * choices.size + c);
    }
  }
}

}  // namespace

void fuzzy_partial_cdist(Span<const Text> queries, Span<const Text> choices,
                         const FuzzyOutput& output, int threads, const uint8_t* skip) {
  const auto any = [](int64_t) { return true; };
  const FuzzySide rows = fuzzy_select(queries, choices.size, any);
  const FuzzySide columns = fuzzy_select(choices, 1, any);
  partial_side(columns, rows, 0, output, threads, skip);
  partial_side(rows, columns, 1, output, threads, skip);
}

void fuzzy_ratio_cdist(Span<const Text> queries, Span<const Text> choices, FuzzyRounding rounding,
                       const FuzzyOutput& output, int threads) {
  // A few texts are compared without vectors, and still refused where every kernel refuses.
  required_isa();
  const auto any = [](int64_t) { return true; };
  const auto longer = [](int64_t size) { return size > 64; };
  const FuzzySide rows = fuzzy_select(queries, choices.size, any);
  if (queries.size <= kFewTexts)
    return ratio_of_few(rows, fuzzy_select(choices, 1, any), rounding, output, threads);
  if (choices.size <= kFewTexts)
    return ratio_of_few(fuzzy_select(choices, 1, any), rows, rounding, output, threads);
  const FuzzySide long_choices = fuzzy_select(choices, 1, longer);
  ratio_short_needles(choices, 1, rows, rounding, output, threads);
  ratio_short_needles(queries, choices.size, long_choices, rounding, output, threads);
  const auto ready = [](int64_t size) { return size > 64 && size <= kReadySize; };
  const auto longest = [](int64_t size) { return size > kReadySize; };
  ratio_of_few(fuzzy_select(queries, choices.size, ready), long_choices, rounding, output, threads);
  ratio_of_longest(fuzzy_select(queries, choices.size, longest), long_choices, rounding, output,
                   threads);
}

void fuzzy_cdist(Span<const Text> queries, Span<const Text> choices, const FuzzyCdist& options,
                 FuzzyType type, void* out) {
  const FuzzyOutput output(options, type, out);
  if (output.prunes()) output.clear(queries.size * choices.size);
  fill_missing(queries, choices, options.missing, type, out);
  switch (options.scorer) {
    case FuzzyScorer::kRatio:
      return fuzzy_ratio_cdist(queries, choices, FuzzyRounding::kRatio, output, options.threads);
    case FuzzyScorer::kPartialRatio:
      return fuzzy_partial_cdist(queries, choices, output, options.threads, nullptr);
    case FuzzyScorer::kQuickRatio:
      return quick_ratio_cdist(queries, choices, output, options.threads);
    default:
      return fuzzy_token_cdist(options.scorer, queries, choices, output, options.threads);
  }
}

}  // namespace pytrace
