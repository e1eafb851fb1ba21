// Many texts against many: what the scorers' matrices share. The work is cut into tiles that share
// the tables of a few needles and write to different places, so that threads need no lock and their
// number changes no result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/parallel.h"
#include "fuzzy/fuzzy.h"
#include "fuzzy/fuzzy_score.h"

namespace pytrace {

// A needle's table costs about as much as one or two pairs, so a tile of 64 texts or more makes it
// free; and a tile must be small enough that a call of a few thousand pairs has some for every
// thread.
inline constexpr int64_t kFuzzyTileNeedles = 16;
inline constexpr int64_t kFuzzyTileTexts = 128;

class FuzzyOutput {
 public:
  FuzzyOutput(const FuzzyCdist& options, FuzzyType type, void* data)
      : cutoff_(options.cutoff), multiplier_(options.multiplier), type_(type), data_(data) {}

  double cutoff() const { return cutoff_; }

  // Whether scores below the cutoff are zeros from the start and need not be put.
  bool prunes() const { return cutoff_ > 0 && std::isfinite(multiplier_); }

  // Makes `count` entries zero; in every type that is all bits zero.
  void clear(int64_t count) const {
    if (count > 0) std::memset(data_, 0, static_cast<size_t>(count * fuzzy_bytes(type_)));
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
struct FuzzySide {
  Span<const Text> texts;
  std::vector<int64_t> indices;
  int64_t stride;

  const Text& text(int64_t k) const { return texts[indices[static_cast<size_t>(k)]]; }
  int64_t place(int64_t k) const { return indices[static_cast<size_t>(k)] * stride; }
  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

template <typename Accept>
FuzzySide fuzzy_select(Span<const Text> texts, int64_t stride, const Accept& accept) {
  FuzzySide side{texts, {}, stride};
  side.indices.reserve(static_cast<size_t>(texts.size));
  for (int64_t i = 0; i < texts.size; ++i) {
    if (!texts[i].missing && accept(texts[i].size)) side.indices.push_back(i);
  }
  return side;
}

inline int64_t fuzzy_tiles_of(int64_t count, int64_t tile) { return (count + tile - 1) / tile; }

// Calls body(first begin, first end, second begin, second end) for every tile of a product.
template <typename Body>
void for_fuzzy_tiles(int64_t first, int64_t first_tile, int64_t second, int64_t second_tile,
                     int threads, const Body& body) {
  const int64_t columns = fuzzy_tiles_of(second, second_tile);
  parallel_for(fuzzy_tiles_of(first, first_tile) * columns, 1, threads,
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t tile = begin; tile < end; ++tile) {
                   const int64_t i = tile / columns * first_tile;
                   const int64_t j = tile % columns * second_tile;
                   body(i, std::min(i + first_tile, first), j, std::min(j + second_tile, second));
                 }
               });
}

// How a score is rounded: ratio's way or token_set_ratio's.
enum class FuzzyRounding { kRatio, kPercent };

inline double fuzzy_score_of(FuzzyRounding rounding, int64_t lcs, int64_t total) {
  return rounding == FuzzyRounding::kRatio ? fuzzy_ratio_of(lcs, total)
                                           : fuzzy_percent_of(lcs, total);
}

// ratio of all pairs, rounded one way or the other.
void fuzzy_ratio_cdist(Span<const Text> queries, Span<const Text> choices, FuzzyRounding rounding,
                       const FuzzyOutput& output, int threads);

// partial_ratio of all pairs; of those alone whose entry of `skip`, in the order of the output, is
// 0, if that is given.
void fuzzy_partial_cdist(Span<const Text> queries, Span<const Text> choices,
                         const FuzzyOutput& output, int threads, const uint8_t* skip);

// All pairs by a scorer that compares words.
void fuzzy_token_cdist(FuzzyScorer scorer, Span<const Text> queries, Span<const Text> choices,
                       const FuzzyOutput& output, int threads);

}  // namespace pytrace
