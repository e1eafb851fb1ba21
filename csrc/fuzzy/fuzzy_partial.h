// partial_ratio of many pairs: short needles' windows gathered until they fill the registers, and
// windows that cannot reach the cutoff left out.
#pragma once

#include <cstdint>
#include <vector>

#include "fuzzy/fuzzy_bags.h"
#include "fuzzy/fuzzy_text.h"

namespace pytrace {

// Characters and zeros that stand in one row: enough that the unfinished vector at the end does not
// matter, and at 8 bytes a mask and a count still in the first-level cache together.
inline constexpr int64_t kFuzzyRowSize = 1536;

// Calls sink(id, score) once for every pair that it was given, except pairs whose score is below
// the cutoff: of those it may leave out any. Some calls come only with finish().
template <typename Sink>
class PartialBatch {
 public:
  PartialBatch(const Sink& sink, double cutoff)
      : vector_(active_fuzzy_vector()),
        sink_(sink),
        needs_(cutoff),
        lane8_(vector_.lanes8),
        lane16_(vector_.lanes16),
        lane32_(vector_.lanes32),
        lane64_(vector_.lanes64) {
    set_cutoff(cutoff);
  }

  // For the pairs to come.
  void set_cutoff(double cutoff) {
    const bool before = prunes();
    cutoff_ = cutoff;
    needs_.set_cutoff(cutoff);
    if (prunes() && !before) set_bag();
  }

  // Whether add() reads bags at all.
  bool prunes() const { return cutoff_ >= kFuzzyBagCutoff; }

  // The needle of the pairs to come; what it points to must stay until finish().
  void set_needle(const Text& needle) {
    needle_ = needle;
    table_is_set_ = false;
    if (prunes()) set_bag();
  }

  // Scores the needle beside a text that is no shorter. `blocks` are the text's bags for the
  // needle's width; they are read only if prunes() and the needle is of 1 to 64 characters.
  void add(const Text& text, const FuzzyBag* blocks, int64_t id) {
    if (needle_.size == 0) {
      sink_(id, text.size == 0 ? 100.0 : 0.0);
    } else if (needle_.size > 64) {
      if (prunes() && !fuzzy_may_reach(needle_, text, cutoff_)) return;
      put(needle_, text, fuzzy_best_window(needle_, text), id);
    } else {
      with_mask(needle_.size, [&](auto mask) { add_to(lane(mask), text, blocks, id); });
    }
  }

  void finish() {
    finish_lane(lane8_);
    finish_lane(lane16_);
    finish_lane(lane32_);
    finish_lane(lane64_);
  }

 private:
  // A part of the text, and where its counts begin.
  struct Waiting {
    Text needle;
    Text text;
    int64_t id;
    int64_t part_size;
    int64_t begin;
    int ends;
    bool last;  // of its pair
  };

  template <typename Mask>
  struct Lane {
    explicit Lane(const FuzzyLanes<Mask>& loops) : row(loops) {}
    MatchTable<Mask> table;
    WindowRow<Mask> row;
    std::vector<Waiting> waiting;
  };

  void set_bag() {
    if (needle_.size <= 64) fuzzy_fill_bag(needle_, &bag_);
  }

  template <typename Mask>
  void add_to(Lane<Mask>& lane, const Text& text, const FuzzyBag* blocks, int64_t id) {
    if (lane.row.size() + text.size > kFuzzyRowSize) finish_lane(lane);
    constexpr int64_t width = 8 * static_cast<int64_t>(sizeof(Mask));
    const int64_t m = needle_.size;
    const int64_t n = text.size;
    if (!prunes()) return add_part(lane, text, 0, n, kFuzzyPrefixes | kFuzzySuffixes, id, true);

    const int64_t count = fuzzy_block_count(n, width) - kFuzzyEndBags;
    const WindowNeeds::Needs& needs = needs_.of(m, width);
    uint8_t bounds[kFuzzyEndBags];
    vector_.bag_bounds(bag_, blocks, 1, bounds);
    if (bounds[0] < needs.least) return;
    // Of equal lengths each is the other's needle; the bags are of one direction's windows only.
    if (n == m) return add_part(lane, text, 0, n, kFuzzyPrefixes | kFuzzySuffixes, id, true);
    const size_t before = lane.waiting.size();
    int64_t begin = -1;  // of the part that is being gathered: its first window's start
    int64_t end = 0;     // and where the next one would start
    int ends = 0;
    const auto close = [&] {
      if (begin >= 0) add_part(lane, text, begin, end - 1 + m, ends, id, false);
      begin = -1;
      ends = 0;
    };
    const auto gather = [&](int64_t first, int64_t behind, int kind) {
      if (begin < 0 || first > end) {
        close();
        begin = first;
        end = behind;
      }
      end = std::max(end, behind);
      ends |= kind;
    };
    const int64_t windows = n - m + 1;
    vector_.bag_bounds(bag_, blocks + 1, kFuzzyEndBags - 1, bounds + 1);
    bool prefixes = false;
    bool suffixes = false;
    for (int k = 0; k < 4; ++k) {
      prefixes |= bounds[1 + k] >= needs.shortened[k];
      suffixes |= bounds[5 + k] >= needs.shortened[k];
    }
    if (prefixes) gather(0, 1, kFuzzyPrefixes);
    constexpr int64_t kStep = 64;
    uint8_t inner[kStep];
    for (int64_t at = 0; at < count; at += kStep) {
      const int64_t some = std::min(kStep, count - at);
      vector_.bag_bounds(bag_, blocks + kFuzzyEndBags + at, some, inner);
      for (int64_t j = 0; j < some; ++j) {
        const int64_t first = (at + j) * (width / 2);
        if (inner[j] >= needs.whole && first < windows) {
          gather(first, std::min(first + width / 2, windows), 0);
        }
      }
    }
    if (suffixes) gather(windows - 1, windows, kFuzzySuffixes);
    close();
    if (lane.waiting.size() > before) lane.waiting.back().last = true;
  }

  template <typename Mask>
  void add_part(Lane<Mask>& lane, const Text& text, int64_t begin, int64_t end, int ends,
                int64_t id, bool last) {
    if (lane.waiting.capacity() == 0) lane.waiting.reserve(64);
    if (!table_is_set_) {
      lane.table.assign(needle_);
      table_is_set_ = true;
    }
    const int64_t at = lane.row.add(lane.table, needle_.size, fuzzy_part(text, begin, end));
    lane.waiting.push_back({needle_, text, id, end - begin, at, ends, last});
  }

  template <typename Mask>
  void finish_lane(Lane<Mask>& lane) {
    if (lane.waiting.empty()) return;
    lane.row.run();
    const FuzzyLanes<Mask>& loops = fuzzy_lanes<Mask>(vector_);
    FuzzyWindow best{0, 1};
    for (const Waiting& one : lane.waiting) {
      const int64_t m = one.needle.size;
      const FuzzyWindow window = loops.best(
          lane.row.counts() + one.begin, lane.row.masks() + one.begin, one.part_size, m, one.ends);
      if (best.lcs == 0 || fuzzy_better(window, best, m)) best = window;
      if (!one.last) continue;
      put(one.needle, one.text, best, one.id);
      best = {0, 1};
    }
    lane.waiting.clear();
    lane.row.clear();
  }

  void put(const Text& needle, const Text& text, FuzzyWindow window, int64_t id) const {
    const int64_t m = needle.size;
    if (text.size == m && window.lcs < m) {
      const FuzzyWindow other = fuzzy_best_window(text, needle);
      if (fuzzy_better(other, window, m)) window = other;
    }
    sink_(id, fuzzy_ratio_of(window.lcs, m + window.length));
  }

  Lane<uint8_t>& lane(uint8_t) { return lane8_; }
  Lane<uint16_t>& lane(uint16_t) { return lane16_; }
  Lane<uint32_t>& lane(uint32_t) { return lane32_; }
  Lane<uint64_t>& lane(uint64_t) { return lane64_; }

  const FuzzyVector& vector_;
  const Sink& sink_;
  double cutoff_ = 0;
  WindowNeeds needs_;
  Text needle_;
  bool table_is_set_ = false;
  FuzzyBag bag_;
  Lane<uint8_t> lane8_;
  Lane<uint16_t> lane16_;
  Lane<uint32_t> lane32_;
  Lane<uint64_t> lane64_;
};

}  // namespace pytrace
