#include "fuzzy/edit.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/dispatch.h"
#include "fuzzy/edit_vector.h"
#include "fuzzy/fuzzy_matrix.h"
#include "fuzzy/fuzzy_text.h"

namespace pytrace {
namespace {

const EditVector& active_edit_vector() { return PYTRACE_SELECT_ISA(edit_vector)(); }

template <typename Mask>
const EditLanes<Mask>& edit_lanes(const EditVector& vector) {
  if constexpr (sizeof(Mask) == 1) return vector.lanes8;
  if constexpr (sizeof(Mask) == 2) return vector.lanes16;
  if constexpr (sizeof(Mask) == 4) return vector.lanes32;
  if constexpr (sizeof(Mask) == 8) return vector.lanes64;
}

// Longer needles are compared pair by pair: a pack's table takes a row for each of its distinct
// characters, each of which has a word for every 64 of the needle.
constexpr int64_t kPackSize = 2048;
constexpr int64_t kTileTexts = 256;
// Beside so few queries the table of a pack of choices takes longer than the comparisons.
constexpr int64_t kFewNeedles = 4;
// The table of a needle beside texts in lanes has a row for each of a text's characters.
constexpr int64_t kOneTextSize = 1024;
constexpr int64_t kOneTileTexts = 1024;

// Jaro's packs note for each character of a text what it met, up to 1 MiB here.
constexpr int64_t kJaroTextSize = 4096;
// Rows that a pack's table begins with; it doubles as it needs more.
constexpr size_t kFirstRows = 64;

template <typename Mask>
Mask first_bits(int64_t size) {
  if (size >= static_cast<int64_t>(8 * sizeof(Mask))) return static_cast<Mask>(~Mask{0});
  return static_cast<Mask>((uint64_t{1} << size) - 1);
}

// ---- from counts to results

// The first characters of a text, which Jaro-Winkler compares.
struct Prefix {
  uint32_t characters[4];
  int32_t size;
};

Prefix prefix_of(const Text& text) {
  Prefix prefix{};
  prefix.size = static_cast<int32_t>(std::min<int64_t>(text.size, 4));
  with_characters(text, [&](const auto* characters) {
    for (int32_t i = 0; i < prefix.size; ++i) prefix.characters[i] = characters[i];
  });
  return prefix;
}

int common_prefix(const Prefix& a, const Prefix& b) {
  const int size = std::min(a.size, b.size);
  int common = 0;
  while (common < size && a.characters[common] == b.characters[common]) ++common;
  return common;
}

// The needles beside which one text is compared, and room for what comes of it.
struct Batch {
  // Begins anew, with room for `count` needles.
  void clear(int64_t count) {
    sizes.clear();
    places.clear();
    prefixes.clear();
    sizes.reserve(static_cast<size_t>(count));
    places.reserve(static_cast<size_t>(count));
  }

  void add(const Text& needle, int64_t place, bool with_prefix) {
    sizes.push_back(static_cast<int32_t>(needle.size));
    places.push_back(place);
    if (with_prefix) prefixes.push_back(prefix_of(needle));
  }

  void make_room() {
    counts.resize(sizes.size());
    others.resize(sizes.size());
    scores.resize(sizes.size());
  }

  int64_t size() const { return static_cast<int64_t>(sizes.size()); }

  std::vector<int32_t> sizes;
  std::vector<int64_t> places;  // where a needle's results begin in the output
  std::vector<Prefix> prefixes;
  // The Levenshtein distance, the LCS, or the characters in common; of Jaro those that match, too.
  std::vector<int32_t> counts;
  std::vector<int32_t> others;
  std::vector<double> scores;
};

class EditOutput {
 public:
  EditOutput(const EditCdist& options, FuzzyType type, void* data)
      : options_(options), type_(type), data_(data), vector_(active_edit_vector()) {
    if (options.has_cutoff && edit_whole(options.metric, options.form)) {
      whole_cutoff_ = static_cast<int64_t>(std::max(0.0, std::min(options.cutoff, 0x1p62)));
    }
  }

  const EditCdist& options() const { return options_; }
  bool is_jaro() const { return options_.metric >= EditMetric::kJaro; }
  bool is_winkler() const { return options_.metric == EditMetric::kJaroWinkler; }

  // Whether no two texts of these sizes can reach the cutoff: not even if all characters of the
  // shorter stand in the longer. Goes through the arithmetic of the results themselves, which never
  // falls where the distance rises.
  bool hopeless(int64_t m, int64_t n) const {
    if (!options_.has_cutoff) return false;
    const int64_t shorter = std::min(m, n);
    const int64_t longer = std::max(m, n);
    if (is_jaro()) {
      if (is_winkler() || shorter == 0) return false;
      const auto both = static_cast<double>(shorter);
      const double sum = both / static_cast<double>(m) + both / static_cast<double>(n) + 1.0;
      return fails(is_similarity() ? sum / 3.0 : 1.0 - sum / 3.0);
    }
    const int64_t distance = longer - shorter;
    const int64_t most = options_.metric == EditMetric::kIndel ? m + n : longer;
    if (edit_whole(options_.metric, options_.form)) {
      return is_similarity() ? most - distance < whole_cutoff_ : distance > whole_cutoff_;
    }
    if (most == 0) return false;
    const double share = static_cast<double>(distance) / static_cast<double>(most);
    return fails(is_similarity() ? 1.0 - share : share);
  }

  // Stores what is left of results that do not reach the cutoff.
  void put_cut(const int64_t* places, int64_t count, int64_t place) const {
    store([&](auto* out) {
      using Value = std::remove_reference_t<decltype(*out)>;
      Value value{};
      if (!is_similarity()) {
        if (edit_whole(options_.metric, options_.form)) {
          value = static_cast<Value>((whole_cutoff_ + 1) * whole_multiplier());
        } else {
          store_real(options_.multiplier, &value);
        }
      }
      for (int64_t k = 0; k < count; ++k) out[places[k] + place] = value;
    });
  }

  // Stores what the batch's counts come to beside a text, at `place` behind each needle's.
  void put(Batch* batch, const Text& text, int64_t place) const {
    if (is_jaro()) {
      put_jaro(batch, text, place);
    } else {
      put_counted(batch, text.size, place);
    }
  }

  void fill_missing(Span<const Text> queries, Span<const Text> choices) const {
    std::vector<int64_t> columns;
    for (int64_t c = 0; c < choices.size; ++c) {
      if (choices[c].missing) columns.push_back(c);
    }
    store([&](auto* out) {
      for (int64_t q = 0; q < queries.size; ++q) {
        auto* row = out + q * choices.size;
        if (queries[q].missing) {
          for (int64_t c = 0; c < choices.size; ++c) store_real(options_.missing, row + c);
        } else {
          for (const int64_t c : columns) store_real(options_.missing, row + c);
        }
      }
    });
  }

 private:
  bool is_similarity() const {
    return options_.form == EditForm::kSimilarity ||
           options_.form == EditForm::kNormalizedSimilarity;
  }

  bool fails(double score) const {
    return is_similarity() ? score < options_.cutoff : score > options_.cutoff;
  }

  int64_t whole_multiplier() const { return static_cast<int64_t>(options_.multiplier); }

  template <typename Body>
  void store(const Body& body) const {
    switch (type_) {
      case FuzzyType::kFloat32:
        return body(static_cast<float*>(data_));
      case FuzzyType::kFloat64:
        return body(static_cast<double*>(data_));
      case FuzzyType::kInt8:
        return body(static_cast<int8_t*>(data_));
      case FuzzyType::kInt16:
        return body(static_cast<int16_t*>(data_));
      case FuzzyType::kInt32:
        return body(static_cast<int32_t*>(data_));
      case FuzzyType::kInt64:
        return body(static_cast<int64_t*>(data_));
      case FuzzyType::kUint8:
        return body(static_cast<uint8_t*>(data_));
      case FuzzyType::kUint16:
        return body(static_cast<uint16_t*>(data_));
      case FuzzyType::kUint32:
        return body(static_cast<uint32_t*>(data_));
      case FuzzyType::kUint64:
        return body(static_cast<uint64_t*>(data_));
    }
  }

  template <typename Value>
  static void store_real(double value, Value* out) {
    if constexpr (std::is_floating_point_v<Value>) {
      *out = static_cast<Value>(value);
    } else {
      *out = static_cast<Value>(std::llround(value));
    }
  }

  void store_scores(const Batch& batch, int64_t place) const {
    store([&](auto* out) {
      const double* scores = batch.scores.data();
      const int64_t* places = batch.places.data();
      for (int64_t k = 0; k < batch.size(); ++k) {
        store_real(scores[k] * options_.multiplier, out + places[k] + place);
      }
    });
  }

  void put_counted(Batch* batch, int64_t text_size, int64_t place) const {
    const int64_t count = batch->size();
    const auto n = static_cast<int32_t>(text_size);
    const int32_t* sizes = batch->sizes.data();
    int32_t* distances = batch->counts.data();
    int32_t* most = batch->others.data();
    const bool indel = options_.metric == EditMetric::kIndel;
    for (int64_t k = 0; k < count; ++k) most[k] = indel ? sizes[k] + n : std::max(sizes[k], n);
    if (options_.metric != EditMetric::kLevenshtein) {
      const int32_t times = indel ? 2 : 1;
      for (int64_t k = 0; k < count; ++k) distances[k] = most[k] - times * distances[k];
    }
    if (edit_whole(options_.metric, options_.form)) return put_whole(batch, place);
    vector_.normalized(distances, most, count, is_similarity(), batch->scores.data());
    cut(batch);
    store_scores(*batch, place);
  }

  void put_whole(Batch* batch, int64_t place) const {
    const int64_t count = batch->size();
    int32_t* values = batch->counts.data();
    const int32_t* most = batch->others.data();
    if (options_.form == EditForm::kSimilarity) {
      for (int64_t k = 0; k < count; ++k) values[k] = most[k] - values[k];
      if (options_.has_cutoff) {
        for (int64_t k = 0; k < count; ++k) values[k] = values[k] >= whole_cutoff_ ? values[k] : 0;
      }
    } else if (options_.has_cutoff && whole_cutoff_ < INT32_MAX) {
      const auto least = static_cast<int32_t>(whole_cutoff_) + 1;
      for (int64_t k = 0; k < count; ++k) values[k] = std::min(values[k], least);
    }
    const int64_t multiplier = whole_multiplier();
    store([&](auto* out) {
      using Value = std::remove_reference_t<decltype(*out)>;
      const int64_t* places = batch->places.data();
      if (multiplier == 1) {
        for (int64_t k = 0; k < count; ++k) out[places[k] + place] = static_cast<Value>(values[k]);
      } else {
        for (int64_t k = 0; k < count; ++k) {
          out[places[k] + place] = static_cast<Value>(values[k] * multiplier);
        }
      }
    });
  }

  void put_jaro(Batch* batch, const Text& text, int64_t place) const {
    const int64_t count = batch->size();
    double* scores = batch->scores.data();
    vector_.jaro_scores(batch->counts.data(), batch->others.data(), batch->sizes.data(), text.size,
                        count, scores);
    if (text.size == 0) {
      for (int64_t k = 0; k < count; ++k) {
        if (batch->sizes[static_cast<size_t>(k)] == 0) scores[k] = 1.0;
      }
    }
    if (is_winkler()) {
      const Prefix prefix = prefix_of(text);
      for (int64_t k = 0; k < count; ++k) {
        if (scores[k] <= 0.7) continue;
        const int common = common_prefix(prefix, batch->prefixes[static_cast<size_t>(k)]);
        const double bonus = static_cast<double>(common) * options_.prefix_weight;
        scores[k] = std::min(scores[k] + bonus * (1.0 - scores[k]), 1.0);
      }
    }
    if (!is_similarity()) {
      for (int64_t k = 0; k < count; ++k) scores[k] = 1.0 - scores[k];
    }
    cut(batch);
    store_scores(*batch, place);
  }

  void cut(Batch* batch) const {
    if (!options_.has_cutoff) return;
    const double worst = is_similarity() ? 0.0 : 1.0;
    for (double& score : batch->scores) score = fails(score) ? worst : score;
  }

  const EditCdist& options_;
  FuzzyType type_;
  void* data_;
  const EditVector& vector_;
  int64_t whole_cutoff_ = 0;
};

// ---- packs

// Room that nothing is set to ahead: for few texts that would take longer than they do.
template <typename Value>
class Scratch {
 public:
  void reserve(size_t size) {
    if (size <= size_) return;
    values_.reset(new Value[size]);
    size_ = size;
  }

  Value* data() { return values_.get(); }

 private:
  std::unique_ptr<Value[]> values_;
  size_t size_ = 0;
};

// Which character has which row of a pack's table, and a text in rows.
class PackRows {
 public:
  uint32_t add(uint32_t character) { return alphabet_.add(character); }

  const uint32_t* number(const Text& text) {
    if (rows_.size() < static_cast<size_t>(text.size)) rows_.resize(static_cast<size_t>(text.size));
    alphabet_.number(text, rows_.data());
    return rows_.data();
  }

 private:
  Alphabet alphabet_;
  std::vector<uint32_t> rows_;
};

// Some needles of at most 8 * sizeof(Mask) characters that share one table.
template <typename Mask>
class ShortPack {
 public:
  ShortPack(const FuzzySide& needles, int64_t begin, int64_t end, const EditOutput& output)
      : output_(output),
        lanes_(edit_lanes<Mask>(active_edit_vector())),
        lcs_lanes_(fuzzy_lanes<Mask>(active_fuzzy_vector())),
        narrow_(end - begin <= lanes_.narrow_size),
        width_(static_cast<size_t>(narrow_ ? lanes_.narrow_size : lanes_.pack_size)),
        table_(kFirstRows * width_, 0),
        ends_(width_, 0),
        first_(width_, 0),
        second_(width_, 0) {
    batch_.clear(end - begin);
    for (int64_t k = begin; k < end; ++k) {
      const Text& needle = needles.text(k);
      batch_.add(needle, needles.place(k), output.is_winkler());
      longest_ = std::max(longest_, needle.size);
      add(needle, static_cast<size_t>(k - begin));
    }
    batch_.make_room();
  }

  void compare(const Text& text, int64_t place) {
    const uint32_t* rows = rows_.number(text);
    switch (output_.options().metric) {
      case EditMetric::kLevenshtein: {
        (narrow_ ? lanes_.narrow_levenshtein : lanes_.levenshtein)(
            table_.data(), ends_.data(), nullptr, rows, text.size, first_.data(), second_.data());
        const auto n = static_cast<int32_t>(text.size);
        for (size_t k = 0; k < batch_.counts.size(); ++k) {
          batch_.counts[k] = n + static_cast<int32_t>(first_[k]) - static_cast<int32_t>(second_[k]);
        }
        break;
      }
      case EditMetric::kIndel:
      case EditMetric::kLcsSeq:
        (narrow_ ? lcs_lanes_.narrow_pack : lcs_lanes_.pack)(table_.data(), rows, text.size,
                                                             first_.data());
        for (size_t k = 0; k < batch_.counts.size(); ++k) {
          batch_.counts[k] = static_cast<int32_t>(first_[k]);
        }
        break;
      default:
        jaro(text.size, rows);
        for (size_t k = 0; k < batch_.counts.size(); ++k) {
          batch_.counts[k] = static_cast<int32_t>(first_[k]);
          batch_.others[k] = static_cast<int32_t>(second_[k]);
        }
    }
    output_.put(&batch_, text, place);
  }

 private:
  void add(const Text& needle, size_t k) {
    ends_[k] = first_bits<Mask>(needle.size);
    Mask* column = table_.data() + k;
    with_characters(needle, [&](const auto* characters) {
      for (int64_t r = 0; r < needle.size; ++r) {
        const size_t row = rows_.add(characters[r]);
        if (row * width_ >= table_.size()) {
          table_.resize(2 * row * width_, 0);
          column = table_.data() + k;
        }
        Mask& mask = column[row * width_];
        mask = static_cast<Mask>(mask | static_cast<Mask>(Mask{1} << r));
      }
    });
  }

  void jaro(int64_t n, const uint32_t* rows) {
    const bool together = n >= longest_;
    const int64_t bound = std::max(longest_, n) / 2 - 1;  // the longest needle's
    if (!together) {
      bounds_.assign(width_, 0);
      for (size_t k = 0; k < batch_.sizes.size(); ++k) {
        const int64_t longer = std::max<int64_t>(batch_.sizes[k], n);
        bounds_[k] = static_cast<Mask>(std::max<int64_t>(longer / 2 - 1, 0));
      }
    }
    const int64_t met = std::min(n, longest_ + std::max<int64_t>(bound, 0));
    hits_.reserve(static_cast<size_t>(met) * width_);
    (narrow_ ? lanes_.narrow_jaro : lanes_.jaro)(table_.data(), bounds_.data(), together,
                                                 std::max<int64_t>(bound, 0), rows, met,
                                                 hits_.data(), first_.data(), second_.data());
  }

  const EditOutput& output_;
  const EditLanes<Mask>& lanes_;
  const FuzzyLanes<Mask>& lcs_lanes_;
  bool narrow_;
  size_t width_;
  int64_t longest_ = 0;
  PackRows rows_;
  Batch batch_;
  std::vector<Mask> table_;
  std::vector<Mask> ends_;
  std::vector<Mask> first_;
  std::vector<Mask> second_;
  std::vector<Mask> bounds_;
  Scratch<Mask> hits_;
};

// Some needles of at most kPackSize characters: Levenshtein and LCS.
class LongPack {
 public:
  LongPack(const FuzzySide& needles, int64_t begin, int64_t end, const EditOutput& output)
      : output_(output), lanes_(active_edit_vector().long_lanes) {
    narrow_ = end - begin <= lanes_.narrow_size;
    width_ = narrow_ ? lanes_.narrow_size : lanes_.pack_size;
    for (int64_t k = begin; k < end; ++k) {
      words_ = std::max(words_, (needles.text(k).size + 63) / 64);
    }
    stride_ = static_cast<size_t>(words_ * width_);
    table_.assign(stride_, 0);
    ends_.assign(stride_, 0);
    state_.assign(2 * stride_, 0);
    results_.assign(static_cast<size_t>(width_), 0);
    batch_.clear(end - begin);
    for (int64_t k = begin; k < end; ++k) {
      batch_.add(needles.text(k), needles.place(k), false);
      add(needles.text(k), static_cast<size_t>(k - begin));
    }
    batch_.make_room();
  }

  void compare(const Text& text, int64_t place) {
    const uint32_t* rows = rows_.number(text);
    const bool is_levenshtein = output_.options().metric == EditMetric::kLevenshtein;
    if (is_levenshtein) {
      (narrow_ ? lanes_.narrow_levenshtein : lanes_.levenshtein)(table_.data(), ends_.data(),
                                                                 nullptr, words_, rows, text.size,
                                                                 state_.data(), results_.data());
    } else {
      (narrow_ ? lanes_.narrow_lcs : lanes_.lcs)(table_.data(), words_, rows, text.size,
                                                 state_.data(), results_.data());
    }
    const int64_t base = is_levenshtein ? text.size : 0;
    for (size_t k = 0; k < batch_.counts.size(); ++k) {
      batch_.counts[k] = static_cast<int32_t>(base + results_[k]);
    }
    output_.put(&batch_, text, place);
  }

 private:
  void add(const Text& needle, size_t k) {
    const auto width = static_cast<size_t>(width_);
    with_characters(needle, [&](const auto* characters) {
      for (int64_t r = 0; r < needle.size; ++r) {
        const size_t row = rows_.add(characters[r]);
        if (table_.size() < (row + 1) * stride_) table_.resize((row + 1) * stride_, 0);
        const size_t at = static_cast<size_t>(r / 64) * width + k;
        table_[row * stride_ + at] |= uint64_t{1} << (r % 64);
        ends_[at] |= uint64_t{1} << (r % 64);
      }
    });
  }

  const EditOutput& output_;
  const EditLongLanes& lanes_;
  bool narrow_ = false;
  int64_t width_ = 0;
  int64_t words_ = 0;
  size_t stride_ = 0;
  PackRows rows_;
  Batch batch_;
  std::vector<uint64_t> table_;
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> state_;
  std::vector<int64_t> results_;
};

// The LCS of one text of at most kPackSize characters with many.
class OneLcs {
 public:
  OneLcs(const Text& text, const EditOutput& output) : output_(output), text_(text), query_(text) {}

  int64_t pack_size() const { return 64; }

  void compare(const FuzzySide& texts, int64_t begin, int64_t end, int64_t place) {
    batch_.clear(end - begin);
    for (int64_t k = begin; k < end; ++k) batch_.add(texts.text(k), texts.place(k), false);
    batch_.make_room();
    for (int64_t k = begin; k < end; k += LcsQuery::kTogether) {
      Text others[LcsQuery::kTogether];
      int64_t lcs[LcsQuery::kTogether];
      const int64_t count = std::min(LcsQuery::kTogether, end - k);
      for (int64_t i = 0; i < count; ++i) others[i] = texts.text(k + i);
      query_.lcs(others, count, lcs);
      int32_t* counts = batch_.counts.data() + (k - begin);
      for (int64_t i = 0; i < count; ++i) counts[i] = static_cast<int32_t>(lcs[i]);
    }
    output_.put(&batch_, text_, place);
  }

 private:
  const EditOutput& output_;
  Text text_;
  LcsQuery query_;
  Batch batch_;
};

// The masks of one needle of at most 64 characters, and what it is compared with in lanes: texts of
// their own, so that row i of the table has the masks of their characters i.
template <typename Mask>
class OneNeedle {
 public:
  OneNeedle(const Text& needle, const EditOutput& output)
      : output_(output),
        needle_(needle),
        lanes_(edit_lanes<Mask>(active_edit_vector())),
        ends_(static_cast<size_t>(lanes_.pack_size), first_bits<Mask>(needle.size)),
        first_(ends_.size(), 0),
        second_(ends_.size(), 0),
        sizes_(ends_.size(), 0) {
    masks_.assign(needle);
  }

  int64_t pack_size() const { return lanes_.pack_size; }

  void compare(const FuzzySide& texts, int64_t begin, int64_t end, int64_t place) {
    const bool narrow = end - begin <= lanes_.narrow_size;
    const auto width = static_cast<size_t>(narrow ? lanes_.narrow_size : lanes_.pack_size);
    batch_.clear(end - begin);
    int64_t longest = 0;
    for (int64_t k = begin; k < end; ++k) {
      batch_.add(texts.text(k), texts.place(k), output_.is_winkler());
      longest = std::max(longest, texts.text(k).size);
    }
    batch_.make_room();
    table_.assign(static_cast<size_t>(longest) * width, 0);
    while (rows_.size() < static_cast<size_t>(longest)) {
      rows_.push_back(static_cast<uint32_t>(rows_.size()));
    }
    for (int64_t k = begin; k < end; ++k) {
      const Text& text = texts.text(k);
      sizes_[static_cast<size_t>(k - begin)] = static_cast<Mask>(text.size);
      masks_.fill(text, table_.data() + (k - begin), static_cast<int64_t>(width));
    }
    switch (output_.options().metric) {
      case EditMetric::kLevenshtein:
        (narrow ? lanes_.narrow_levenshtein : lanes_.levenshtein)(
            table_.data(), ends_.data(), sizes_.data(), rows_.data(), longest, first_.data(),
            second_.data());
        for (size_t k = 0; k < batch_.counts.size(); ++k) {
          batch_.counts[k] =
              batch_.sizes[k] + static_cast<int32_t>(first_[k]) - static_cast<int32_t>(second_[k]);
        }
        break;
      default:
        for (size_t k = 0; k < batch_.sizes.size(); ++k) {
          const int64_t longer = std::max<int64_t>(batch_.sizes[k], needle_.size);
          sizes_[k] = static_cast<Mask>(std::max<int64_t>(longer / 2 - 1, 0));
        }
        hits_.reserve(table_.size());
        (narrow ? lanes_.narrow_jaro : lanes_.jaro)(table_.data(), sizes_.data(), false, 0,
                                                    rows_.data(), longest, hits_.data(),
                                                    first_.data(), second_.data());
        for (size_t k = 0; k < batch_.counts.size(); ++k) {
          batch_.counts[k] = static_cast<int32_t>(first_[k]);
          batch_.others[k] = static_cast<int32_t>(second_[k]);
        }
    }
    output_.put(&batch_, needle_, place);
  }

 private:
  const EditOutput& output_;
  Text needle_;
  const EditLanes<Mask>& lanes_;
  MatchTable<Mask> masks_;
  Batch batch_;
  std::vector<uint32_t> rows_;
  std::vector<Mask> table_;
  std::vector<Mask> ends_;
  std::vector<Mask> first_;
  std::vector<Mask> second_;
  std::vector<Mask> sizes_;
  Scratch<Mask> hits_;
};

// The same for Levenshtein with a needle of at most kPackSize characters.
class OneLongNeedle {
 public:
  OneLongNeedle(const Text& needle, const EditOutput& output)
      : output_(output),
        needle_(needle),
        lanes_(active_edit_vector().long_lanes),
        words_(static_cast<size_t>((needle.size + 63) / 64)),
        masks_(words_, 0),
        sizes_(static_cast<size_t>(lanes_.pack_size), 0),
        results_(sizes_.size(), 0) {
    with_characters(needle, [&](const auto* characters) {
      for (int64_t r = 0; r < needle.size; ++r) {
        const size_t at = alphabet_.add(characters[r]) * words_;
        if (masks_.size() < at + words_) masks_.resize(at + words_, 0);
        masks_[at + static_cast<size_t>(r / 64)] |= uint64_t{1} << (r % 64);
      }
    });
  }

  int64_t pack_size() const { return lanes_.pack_size; }

  void compare(const FuzzySide& texts, int64_t begin, int64_t end, int64_t place) {
    const bool narrow = end - begin <= lanes_.narrow_size;
    const auto width = static_cast<size_t>(narrow ? lanes_.narrow_size : lanes_.pack_size);
    const size_t stride = words_ * width;
    batch_.clear(end - begin);
    int64_t longest = 0;
    for (int64_t k = begin; k < end; ++k) {
      batch_.add(texts.text(k), texts.place(k), false);
      longest = std::max(longest, texts.text(k).size);
    }
    batch_.make_room();
    table_.assign(static_cast<size_t>(longest) * stride, 0);
    state_.resize(2 * stride);
    ends_.resize(stride);
    for (size_t w = 0; w < words_; ++w) {
      const int64_t rest = needle_.size - static_cast<int64_t>(64 * w);
      std::fill_n(ends_.begin() + static_cast<std::ptrdiff_t>(w * width), width,
                  first_bits<uint64_t>(rest));
    }
    while (rows_.size() < static_cast<size_t>(longest)) {
      rows_.push_back(static_cast<uint32_t>(rows_.size()));
    }
    for (int64_t k = begin; k < end; ++k) {
      const Text& text = texts.text(k);
      uint64_t* column = table_.data() + (k - begin);
      sizes_[static_cast<size_t>(k - begin)] = static_cast<uint64_t>(text.size);
      with_characters(text, [&](const auto* characters) {
        for (int64_t i = 0; i < text.size; ++i) {
          const uint64_t* masks = masks_.data() + alphabet_.find(characters[i]) * words_;
          uint64_t* cells = column + static_cast<size_t>(i) * stride;
          for (size_t w = 0; w < words_; ++w) cells[w * width] = masks[w];
        }
      });
    }
    const auto words = static_cast<int64_t>(words_);
    (narrow ? lanes_.narrow_levenshtein : lanes_.levenshtein)(
        table_.data(), ends_.data(), sizes_.data(), words, rows_.data(), longest, state_.data(),
        results_.data());
    for (size_t k = 0; k < batch_.counts.size(); ++k) {
      batch_.counts[k] = static_cast<int32_t>(batch_.sizes[k] + results_[k]);
    }
    output_.put(&batch_, needle_, place);
  }

 private:
  const EditOutput& output_;
  Text needle_;
  const EditLongLanes& lanes_;
  size_t words_;
  Alphabet alphabet_;
  std::vector<uint64_t> masks_;
  Batch batch_;
  std::vector<uint32_t> rows_;
  std::vector<uint64_t> table_;
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> state_;
  std::vector<uint64_t> sizes_;
  std::vector<int64_t> results_;
};

template <typename Needle>
void compare_all(const Text& text, int64_t place, const FuzzySide& texts, int64_t begin,
                 int64_t end, const EditOutput& output) {
  if (begin == end) return;
  Needle needle(text, output);
  for (int64_t t = begin; t < end; t += needle.pack_size()) {
    needle.compare(texts, t, std::min(t + needle.pack_size(), end), place);
  }
}

// A few needles, each beside texts of at most kOneTextSize characters.
template <typename Needle>
void compare_one(const FuzzySide& needles, const FuzzySide& texts, const EditOutput& output) {
  for_fuzzy_tiles(needles.size(), 1, texts.size(), kOneTileTexts, output.options().threads,
                  [&](int64_t k, int64_t, int64_t begin, int64_t end) {
                    const Text& text = needles.text(k);
                    if (!output.options().has_cutoff) {
                      return compare_all<Needle>(text, needles.place(k), texts, begin, end, output);
                    }
                    FuzzySide kept{texts.texts, {}, texts.stride};
                    for (int64_t t = begin; t < end; ++t) {
                      if (output.hopeless(text.size, texts.text(t).size)) {
                        const int64_t place = texts.place(t);
                        output.put_cut(&place, 1, needles.place(k));
                      } else {
                        kept.indices.push_back(texts.indices[static_cast<size_t>(t)]);
                      }
                    }
                    compare_all<Needle>(text, needles.place(k), kept, 0, kept.size(), output);
                  });
}

// Needles in order of size: those of one pack take as many words as its longest, and beside a
// cutoff most packs are too short or too long as a whole for most texts.
FuzzySide in_order(FuzzySide side) {
  int64_t longest = 0;
  for (int64_t k = 0; k < side.size(); ++k) longest = std::max(longest, side.text(k).size);
  std::vector<size_t> ends(static_cast<size_t>(longest + 2), 0);
  for (int64_t k = 0; k < side.size(); ++k) ++ends[static_cast<size_t>(side.text(k).size + 1)];
  for (size_t size = 1; size < ends.size(); ++size) ends[size] += ends[size - 1];
  std::vector<int64_t> ordered(side.indices.size());
  for (const int64_t index : side.indices) {
    ordered[ends[static_cast<size_t>(side.texts[index].size)]++] = index;
  }
  side.indices.swap(ordered);
  return side;
}

// A pack's table is made when the first text needs it. Beside a cutoff `needles` are in order.
template <typename Pack>
void compare_packs(const FuzzySide& needles, int64_t pack_size, const FuzzySide& texts,
                   const EditOutput& output) {
  for_fuzzy_tiles(needles.size(), pack_size, texts.size(), kTileTexts, output.options().threads,
                  [&](int64_t begin, int64_t end, int64_t text_begin, int64_t text_end) {
                    const int64_t shortest = needles.text(begin).size;
                    const int64_t longest = needles.text(end - 1).size;
                    std::optional<Pack> pack;
                    std::vector<int64_t> places;
                    for (int64_t t = text_begin; t < text_end; ++t) {
                      const Text& text = texts.text(t);
                      // The size that goes best with the text.
                      const int64_t m = std::max(shortest, std::min(longest, text.size));
                      if (output.hopeless(m, text.size)) {
                        for (int64_t k = begin + static_cast<int64_t>(places.size()); k < end;
                             ++k) {
                          places.push_back(needles.place(k));
                        }
                        output.put_cut(places.data(), end - begin, texts.place(t));
                        continue;
                      }
                      if (!pack) pack.emplace(needles, begin, end, output);
                      pack->compare(text, texts.place(t));
                    }
                  });
}

// The texts of one side, or those of a range of sizes.
struct Side {
  Span<const Text> texts;
  int64_t stride;
  int64_t least;
  int64_t most;

  Side(Span<const Text> all, int64_t stride_of_one)
      : texts(all), stride(stride_of_one), least(0), most(-1) {
    for (const Text& text : all) most = std::max(most, text.missing ? -1 : text.size);
  }

  Side within(int64_t from, int64_t to) const {
    Side side = *this;
    side.least = std::max(least, from);
    side.most = std::min(most, to);
    return side;
  }

  FuzzySide of(int64_t from, int64_t to) const {
    const int64_t low = std::max(least, from);
    const int64_t high = std::min(most, to);
    if (low > high) return {texts, {}, stride};
    return fuzzy_select(texts, stride, [&](int64_t size) { return size >= low && size <= high; });
  }
};

// Compares the needles of at least `least` characters that fit a mask; returns the size from which
// on needles are left. So few needles that they fill no register wait for those of the next width.
template <typename Mask>
int64_t compare_width(const Side& needles, int64_t least, const FuzzySide& texts,
                      const EditOutput& output) {
  constexpr int64_t most = 8 * sizeof(Mask);
  const EditLanes<Mask>& lanes = edit_lanes<Mask>(active_edit_vector());
  FuzzySide side = needles.of(least, most);
  const bool wait = side.size() < lanes.narrow_size && most < 64 && needles.most > most;
  if (wait) return least;
  if (output.options().has_cutoff) side = in_order(std::move(side));
  compare_packs<ShortPack<Mask>>(side, lanes.pack_size, texts, output);
  return most + 1;
}

void compare_short(const Side& needles, const FuzzySide& texts, const EditOutput& output) {
  if (texts.size() == 0) return;
  int64_t least = compare_width<uint8_t>(needles, 0, texts, output);
  least = compare_width<uint16_t>(needles, least, texts, output);
  least = compare_width<uint32_t>(needles, least, texts, output);
  compare_width<uint64_t>(needles, least, texts, output);
}

void compare_long(const FuzzySide& needles, const FuzzySide& texts, const EditOutput& output) {
  const int64_t pack_size = active_edit_vector().long_lanes.pack_size;
  compare_packs<LongPack>(in_order(needles), pack_size, texts, output);
}

// ---- pairs of long texts

// Levenshtein's distance in strips of the needle: each hands what its last row's cells differ by on
// to the next, so that the masks of one strip are all that is held at a time.
int32_t longest_levenshtein(const Text& needle, const Text& text) {
  constexpr int64_t kStripWords = kPackSize / 64;
  std::vector<uint32_t> rows(static_cast<size_t>(text.size));
  // Bit 0: one more than the cell to the left; bit 1: one less.
  std::vector<uint8_t> across(static_cast<size_t>(text.size), 1);
  int64_t distance = 0;
  for (int64_t begin = 0; begin < needle.size; begin += kPackSize) {
    const int64_t end = std::min(begin + kPackSize, needle.size);
    const Text strip = fuzzy_part(needle, begin, end);
    const int64_t words = (strip.size + 63) / 64;
    Alphabet alphabet;
    std::vector<uint64_t> table(static_cast<size_t>(words), 0);
    with_characters(strip, [&](const auto* characters) {
      for (int64_t r = 0; r < strip.size; ++r) {
        const auto at = static_cast<size_t>(alphabet.add(characters[r]) * words);
        if (table.size() < at + static_cast<size_t>(words)) {
          table.resize(at + static_cast<size_t>(words), 0);
        }
        table[at + static_cast<size_t>(r / 64)] |= uint64_t{1} << (r % 64);
      }
    });
    alphabet.number(text, rows.data());
    uint64_t more[kStripWords];
    uint64_t less[kStripWords];
    std::fill(more, more + words, ~uint64_t{0});
    std::fill(less, less + words, uint64_t{0});
    distance = end;  // that of the strips so far beside no text
    const int top = static_cast<int>((strip.size - 1) % 64);
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint64_t* row = table.data() + static_cast<int64_t>(rows[i]) * words;
      uint64_t from_more = across[i] & 1u;
      uint64_t from_less = across[i] >> 1;
      for (int64_t w = 0; w < words; ++w) {
        const uint64_t match = row[w] | less[w] | from_less;
        const uint64_t zero = (((match & more[w]) + more[w]) ^ more[w]) | match;
        uint64_t right = less[w] | ~(zero | more[w]);
        uint64_t left = zero & more[w];
        const int last = w + 1 == words ? top : 63;
        const uint64_t out_more = (right >> last) & 1;
        const uint64_t out_less = (left >> last) & 1;
        right = (right << 1) | from_more;
        left = (left << 1) | from_less;
        more[w] = left | ~(zero | right);
        less[w] = zero & right;
        from_more = out_more;
        from_less = out_less;
      }
      across[i] = static_cast<uint8_t>(from_more | (from_less << 1));
      distance += static_cast<int64_t>(from_more) - static_cast<int64_t>(from_less);
    }
  }
  return static_cast<int32_t>(distance);
}

// Where each character of a text stands.
struct Places {
  struct Place {
    uint32_t character;
    int32_t at;
  };

  explicit Places(const Text& text) : places(static_cast<size_t>(text.size)) {
    with_characters(text, [&](const auto* characters) {
      for (size_t i = 0; i < places.size(); ++i) {
        places[i] = {static_cast<uint32_t>(characters[i]), static_cast<int32_t>(i)};
      }
    });
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return a.character != b.character ? a.character < b.character : a.at < b.at;
    });
  }

  std::vector<Place> places;
};

// A character takes the first free one like it within the window, so the places of one character on
// both sides are gone through in step: whichever lies before the other's window meets nothing.
class LongJaro {
 public:
  // Sets the characters in common, and those of them that match in order.
  void compare(const Places& a, const Places& b, int32_t* common, int32_t* matching) {
    const auto& left = a.places;
    const auto& right = b.places;
    const auto longer = static_cast<int32_t>(std::max(left.size(), right.size()));
    const int32_t bound = std::max(longer / 2 - 1, 0);
    of_left_.assign(left.size(), kNone);
    of_right_.assign(right.size(), kNone);
    *common = 0;
    size_t i = 0;
    size_t j = 0;
    while (i < left.size() && j < right.size()) {
      if (left[i].character != right[j].character) {
        ++(left[i].character < right[j].character ? i : j);
      } else if (left[i].at < right[j].at - bound) {
        ++i;
      } else if (right[j].at < left[i].at - bound) {
        ++j;
      } else {
        of_left_[static_cast<size_t>(left[i].at)] = left[i].character;
        of_right_[static_cast<size_t>(right[j].at)] = right[j].character;
        ++i;
        ++j;
        ++*common;
      }
    }
    *matching = 0;
    j = 0;
    for (const uint32_t character : of_left_) {
      if (character == kNone) continue;
      while (of_right_[j] == kNone) ++j;
      *matching += of_right_[j++] == character ? 1 : 0;
    }
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  std::vector<uint32_t> of_left_;
  std::vector<uint32_t> of_right_;
};

void compare_pairs(const FuzzySide& needles, const FuzzySide& texts, const EditOutput& output) {
  const bool is_jaro = output.is_jaro();
  int64_t longest = 0;
  for (int64_t k = 0; k < needles.size(); ++k) longest = std::max(longest, needles.text(k).size);
  // The places of a tile's needles are all held at a time.
  const int64_t tile = longest > kPackSize ? 1 : 64;
  for_fuzzy_tiles(needles.size(), tile, texts.size(), 64, output.options().threads,
                  [&](int64_t begin, int64_t end, int64_t text_begin, int64_t text_end) {
                    std::vector<Places> places;
                    for (int64_t k = begin; is_jaro && k < end; ++k) {
                      places.emplace_back(needles.text(k));
                    }
                    Batch batch;
                    batch.clear(end - begin);
                    for (int64_t k = begin; k < end; ++k) {
                      batch.add(needles.text(k), needles.place(k), output.is_winkler());
                    }
                    batch.make_room();
                    LongJaro jaro;
                    for (int64_t t = text_begin; t < text_end; ++t) {
                      const Text& text = texts.text(t);
                      const Places own(is_jaro ? text : Text{});
                      for (size_t k = 0; k < batch.counts.size(); ++k) {
                        const Text& needle = needles.text(begin + static_cast<int64_t>(k));
                        if (is_jaro) {
                          jaro.compare(places[k], own, &batch.counts[k], &batch.others[k]);
                        } else if (output.options().metric == EditMetric::kLevenshtein) {
                          batch.counts[k] = longest_levenshtein(needle, text);
                        } else {
                          batch.counts[k] = static_cast<int32_t>(fuzzy_lcs(needle, text));
                        }
                      }
                      output.put(&batch, text, texts.place(t));
                    }
                  });
}

// All pairs, by packs of needles: of the shorter text if it has at most 64 characters, and rather
// of `many`, so that a pack is compared with few texts.
void compare_many(const Side& few, const Side& many, const EditOutput& output) {
  if (few.least > few.most || many.least > many.most) return;
  if (output.is_jaro()) {
    compare_short(many, few.of(0, kJaroTextSize), output);
    compare_short(few, many.of(65, kJaroTextSize), output);
    compare_pairs(many.of(0, 64), few.of(kJaroTextSize + 1, INT64_MAX), output);
    compare_pairs(few.of(0, 64), many.of(kJaroTextSize + 1, INT64_MAX), output);
    return compare_pairs(many.of(65, INT64_MAX), few.of(65, INT64_MAX), output);
  }
  compare_short(many, few.of(0, INT64_MAX), output);
  compare_short(few, many.of(65, INT64_MAX), output);
  const FuzzySide longest = many.of(kPackSize + 1, INT64_MAX);
  compare_long(many.of(65, kPackSize), few.of(65, INT64_MAX), output);
  compare_long(few.of(65, kPackSize), longest, output);
  compare_pairs(longest, few.of(kPackSize + 1, INT64_MAX), output);
}

// The same for so few texts that each is made ready by itself.
void compare_few(const Side& few, const Side& many, const EditOutput& output) {
  int64_t most_few = kPackSize;
  int64_t most_many = kOneTextSize;
  if (!output.is_jaro() && output.options().metric != EditMetric::kLevenshtein) {
    most_many = INT64_MAX;
    compare_one<OneLcs>(few.of(0, kPackSize), many.of(0, INT64_MAX), output);
  } else {
    const FuzzySide texts = many.of(0, kOneTextSize);
    const bool bytes = many.most < 256;  // a lane counts the characters of its text
    if (bytes) compare_one<OneNeedle<uint8_t>>(few.of(0, 8), texts, output);
    compare_one<OneNeedle<uint16_t>>(few.of(bytes ? 9 : 0, 16), texts, output);
    compare_one<OneNeedle<uint32_t>>(few.of(17, 32), texts, output);
    compare_one<OneNeedle<uint64_t>>(few.of(33, 64), texts, output);
    if (output.is_jaro()) {
      most_few = 64;
    } else {
      compare_one<OneLongNeedle>(few.of(65, kPackSize), texts, output);
    }
  }
  if (most_many < INT64_MAX) {
    compare_many(few.within(0, most_few), many.within(most_many + 1, INT64_MAX), output);
  }
  compare_many(few.within(most_few + 1, INT64_MAX), many, output);
}

}  // namespace

void edit_cdist(Span<const Text> queries, Span<const Text> choices, const EditCdist& options,
                FuzzyType type, void* out) {
  required_isa();
  const EditOutput output(options, type, out);
  Side few(queries, choices.size);
  Side many(choices, 1);
  for (const Side* side : {&few, &many}) {
    if (side->most > kEditMaxSize) {
      fail("a text of " + to_text(side->most) + " characters; at most " + to_text(kEditMaxSize) +
           " can be compared");
    }
  }
  output.fill_missing(queries, choices);
  if (choices.size < queries.size) std::swap(few, many);
  (few.texts.size <= kFewNeedles ? compare_few : compare_many)(few, many, output);
}

}  // namespace pytrace
