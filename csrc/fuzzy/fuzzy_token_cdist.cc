// The token scorers and the weighted ratio of many texts against many.
//
// Each is made of the matrices of ratio and partial_ratio over the texts' words, tile by tile: a
// tile's scores stay in the second-level cache while they are put together.
#include <algorithm>
#include <vector>

#include "fuzzy/fuzzy_matrix.h"
#include "fuzzy/fuzzy_token_side.h"
#include "fuzzy/fuzzy_weighted.h"

namespace pytrace {
namespace {

// Enough needles for the widest pack of ratio; and at most 5 x 256 KiB of scores.
constexpr int64_t kTileRows = 128;
constexpr int64_t kTileColumns = 256;

// One tile of a matrix, as scores that go through no cutoff of the caller's yet.
class TokenTile {
 public:
  TokenTile(Span<const Text> queries, Span<const Text> choices, const TokenSide& rows,
            const TokenSide& columns, const CommonWords& common, double cutoff)
      : queries_(queries),
        choices_(choices),
        rows_(rows),
        columns_(columns),
        common_(common),
        cutoff_(cutoff) {}

  // The scores of rows [r0, r1) beside columns [c0, c1), one row behind the other.
  const double* run(FuzzyScorer scorer, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    r0_ = r0;
    r1_ = r1;
    c0_ = c0;
    c1_ = c1;
    const auto cells = static_cast<size_t>((r1 - r0) * (c1 - c0));
    best_.assign(cells, 0.0);
    skip_.assign(cells, 0);
    switch (scorer) {
      case FuzzyScorer::kTokenSetRatio:
        token_set(cutoff_, &best_);
        break;
      case FuzzyScorer::kTokenRatio:
        token(cutoff_, &best_);
        break;
      case FuzzyScorer::kPartialTokenSetRatio:
        mark_common();
        partial(rows_.distinct(r0, r1), columns_.distinct(c0, c1), cutoff_, &best_);
        put_common(&best_);
        break;
      case FuzzyScorer::kPartialTokenRatio:
        mark_common();
        partial_token(cutoff_, &best_);
        put_common(&best_);
        break;
      default:
        weighted();
    }
    return best_.data();
  }

 private:
  enum Skip : uint8_t { kAsked = 0, kSkipped = 1, kCommon = 2 };

  static FuzzyOutput output_to(double cutoff, std::vector<double>* out) {
    return FuzzyOutput({FuzzyScorer::kRatio, cutoff, 1.0, 0.0, 1}, FuzzyType::kFloat64,
                       out->data());
  }

  template <typename Body>
  void for_cells(const Body& body) const {
    size_t cell = 0;
    for (int64_t r = r0_; r < r1_; ++r) {
      for (int64_t c = c0_; c < c1_; ++c) body(r, c, cell++);
    }
  }

  void ratio(Span<const Text> rows, Span<const Text> columns, FuzzyRounding rounding, double cutoff,
             std::vector<double>* out) const {
    fuzzy_ratio_cdist(rows, columns, rounding, output_to(cutoff, out), 1);
  }

  // Leaves the cells alone that are to be skipped.
  void partial(Span<const Text> rows, Span<const Text> columns, double cutoff,
               std::vector<double>* out) const {
    fuzzy_partial_cdist(rows, columns, output_to(cutoff, out), 1, skip_.data());
  }

  // Two texts without a common word score as their joined words do, which packs compute at once
  // for all pairs; the pairs that have one are then scored one by one.
  void token_set(double cutoff, std::vector<double>* out) {
    ratio(rows_.distinct(r0_, r1_), columns_.distinct(c0_, c1_), FuzzyRounding::kPercent, cutoff,
          out);
    const int64_t width = c1_ - c0_;
    for (int64_t r = r0_; r < r1_; ++r) {
      shares_.assign(static_cast<size_t>(width), 0);
      common_.for_columns(r, c0_, c1_,
                          [&](int64_t c) { shares_[static_cast<size_t>(c - c0_)] = 1; });
      for (int64_t c = c0_; c < c1_; ++c) {
        const auto cell = static_cast<size_t>((r - r0_) * width + c - c0_);
        if (shares_[static_cast<size_t>(c - c0_)] == 0 || skip_[cell] == kSkipped) continue;
        (*out)[cell] = token_set_.of(rows_.words(r), columns_.words(c), cutoff);
      }
    }
  }

  void token(double cutoff, std::vector<double>* out) {
    ratio(rows_.sorted(r0_, r1_), columns_.sorted(c0_, c1_), FuzzyRounding::kRatio, cutoff, out);
    other_.assign(out->size(), 0.0);
    token_set(cutoff, &other_);
    take_larger(out);
  }

  void take_larger(std::vector<double>* out) const {
    for (size_t k = 0; k < out->size(); ++k) (*out)[k] = std::max((*out)[k], other_[k]);
  }

  void mark_common() {
    for (int64_t r = r0_; r < r1_; ++r) {
      uint8_t* row = skip_.data() + (r - r0_) * (c1_ - c0_) - c0_;
      common_.for_columns(r, c0_, c1_, [&](int64_t c) {
        if (row[c] == kAsked) row[c] = kCommon;
      });
    }
  }

  void put_common(std::vector<double>* out) const {
    for (size_t k = 0; k < out->size(); ++k) {
      if (skip_[k] == kCommon) (*out)[k] = 100.0;
    }
  }

  // Of the cells that are asked for: those have no common word. Skips those of them whose texts
  // repeat no word when it is done.
  void partial_token(double cutoff, std::vector<double>* out) {
    partial(rows_.sorted(r0_, r1_), columns_.sorted(c0_, c1_), cutoff, out);
    bool any = false;
    for_cells([&](int64_t r, int64_t c, size_t cell) {
      const bool repeats = rows_.words(r).repeats() || columns_.words(c).repeats();
      if (!repeats && skip_[cell] == kAsked) skip_[cell] = kSkipped;
      any |= skip_[cell] == kAsked;
    });
    if (!any) return;
    other_.assign(out->size(), 0.0);
    partial(rows_.distinct(r0_, r1_), columns_.distinct(c0_, c1_), cutoff, &other_);
    take_larger(out);
  }

  void weighted() {
    const double cutoff = fuzzy_weighted_cutoff(cutoff_, 1.0);
    const Span<const Text> rows{queries_.data + r0_, r1_ - r0_};
    const Span<const Text> columns{choices_.data + c0_, c1_ - c0_};
    ratio(rows, columns, FuzzyRounding::kRatio, cutoff, &best_);
    bool any_near = false;
    bool any_far = false;
    scales_.resize(best_.size());
    for_cells([&](int64_t r, int64_t c, size_t cell) {
      const double scale = fuzzy_partial_scale(queries_[r], choices_[c]);
      scales_[cell] = scale;
      any_near |= scale == kFuzzyNear;
      any_far |= scale > 0 && scale < kFuzzyNear;
      if (scale == 0) best_[cell] = 0.0;  // two empty texts
    });
    if (any_near) {
      skip_where([&](size_t cell) { return scales_[cell] != kFuzzyNear; });
      tokens_.assign(best_.size(), 0.0);
      token(fuzzy_weighted_cutoff(cutoff_, kFuzzyTokenScale), &tokens_);
      for (size_t k = 0; k < best_.size(); ++k) {
        if (scales_[k] == kFuzzyNear) best_[k] = fuzzy_weighted_near(best_[k], tokens_[k]);
      }
    }
    if (!any_far) return;
    const auto cannot_win = [&](size_t cell, double most) {
      const double scale = scales_[cell];
      return scale == 0 || scale == kFuzzyNear || most * scale < std::max(best_[cell], cutoff);
    };
    skip_where([&](size_t cell) { return cannot_win(cell, 100.0); });
    tokens_.assign(best_.size(), 0.0);
    partial(rows, columns, fuzzy_weighted_cutoff(cutoff_, kFuzzyFarScale), &tokens_);
    limits_.assign(best_.size(), 0.0);
    for (size_t k = 0; k < best_.size(); ++k) {
      if (skip_[k] == kSkipped) continue;
      best_[k] = fuzzy_weighted_partial(best_[k], tokens_[k], scales_[k], &limits_[k]);
    }
    skip_where([&](size_t cell) { return cannot_win(cell, 100.0 * kFuzzyTokenScale); });
    mark_common();
    asked_ = skip_;
    tokens_.assign(best_.size(), 0.0);
    partial_token(fuzzy_weighted_cutoff(cutoff_, kFuzzyTokenScale * kFuzzyFarScale), &tokens_);
    for (size_t k = 0; k < best_.size(); ++k) {
      if (asked_[k] == kSkipped) continue;
      const double score = asked_[k] == kCommon ? 100.0 : tokens_[k];
      best_[k] = fuzzy_weighted_token(best_[k], score, scales_[k], limits_[k]);
    }
  }

  template <typename Condition>
  void skip_where(const Condition& condition) {
    for (size_t k = 0; k < skip_.size(); ++k) skip_[k] = condition(k) ? kSkipped : kAsked;
  }

  Span<const Text> queries_;
  Span<const Text> choices_;
  const TokenSide& rows_;
  const TokenSide& columns_;
  const CommonWords& common_;
  double cutoff_;
  int64_t r0_ = 0;
  int64_t r1_ = 0;
  int64_t c0_ = 0;
  int64_t c1_ = 0;
  std::vector<double> best_;
  std::vector<double> other_;
  std::vector<double> tokens_;
  std::vector<double> scales_;
  std::vector<double> limits_;
  std::vector<uint8_t> skip_;
  std::vector<uint8_t> asked_;
  std::vector<uint8_t> shares_;
  TokenSetRatio token_set_;
};

}  // namespace

void fuzzy_token_cdist(FuzzyScorer scorer, Span<const Text> queries, Span<const Text> choices,
                       const FuzzyOutput& output, int threads) {
  const TokenSide rows(queries, threads);
  const TokenSide columns(choices, threads);
  if (scorer == FuzzyScorer::kTokenSortRatio) {
    return fuzzy_ratio_cdist(rows.sorted(0, queries.size), columns.sorted(0, choices.size),
                             FuzzyRounding::kRatio, output, threads);
  }
  if (scorer == FuzzyScorer::kPartialTokenSortRatio) {
    return fuzzy_partial_cdist(rows.sorted(0, queries.size), columns.sorted(0, choices.size),
                               output, threads, nullptr);
  }
  const CommonWords common(rows, columns);
  for_fuzzy_tiles(queries.size, kTileRows, choices.size, kTileColumns, threads,
                  [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
                    TokenTile tile(queries, choices, rows, columns, common, output.cutoff());
                    const double* scores = tile.run(scorer, r0, r1, c0, c1);
                    double row[kTileColumns];
                    int64_t places[kTileColumns];
                    for (int64_t r = r0; r < r1; ++r, scores += c1 - c0) {
                      if (queries[r].missing) continue;
                      int64_t count = 0;
                      for (int64_t c = c0; c < c1; ++c) {
                        if (choices[c].missing) continue;
                        row[count] = scores[c - c0];
                        places[count++] = c;
                      }
                      output.put(row, places, count, r * choices.size, 1);
                    }
                  });
}

}  // namespace pytrace
