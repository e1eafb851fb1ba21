// Fuzzy string scores, 0 to 100, as RapidFuzz (3.10 and later) defines them, over Unicode code
// points.
//
// ratio: normalised Indel similarity, 100 * 2 * LCS(a, b) / (|a| + |b|); 100 for two empty texts.
//
// partial_ratio: the best ratio of the shorter text (the needle) with any window of the longer one
// that has the needle's length, or with any shorter prefix or suffix of it; equal lengths are tried
// both ways. 100 for two empty texts, 0 if only one is empty.
//
// token_set_ratio: both texts are split at white space into sets of words; the best ratio among the
// common words, the common words with the rest of a, and the common words with the rest of b. 0 if
// either has no word.
//
// token_sort_ratio: ratio of the texts' words, sorted and joined by blanks. token_ratio: the larger
// of it and token_set_ratio.
//
// partial_token_sort_ratio: partial_ratio of the sorted words. partial_token_set_ratio: 100 if the
// texts share a word, else partial_ratio of their distinct words; 0 if either has no word.
// partial_token_ratio: the larger of the two, but if neither has a word 100.
//
// weighted_ratio (WRatio): fuzzy_weighted.h. quick_ratio (QRatio): ratio, but 0 if a text is empty.
//
// How it is computed
//   One LCS: Hyyrö's bit-parallel recurrence ("Bit-Parallel LCS-length Computation Revisited",
//   AWOCA 2004), 64 rows of the table in one addition. All windows of a needle of up to 64
//   characters: the same recurrence for 64 / width windows side by side in every 64 bits of a
//   vector register, width being 8, 16, 32 or 64 bits, whichever first holds the needle. The masks
//   that neighbouring windows need at one step are neighbours in memory, so a step is one
//   contiguous load and four operations: O(n m / lanes) for a needle of m and a text of n
//   characters. The shortened windows of one end are met by one recurrence from that end inwards,
//   run only where the whole window there leaves one a chance. All windows of a longer needle:
//   Tiskin's semi-local LCS by braid combing ("Semi-local string comparison", 2008): one pass of
//   O(n m) gives the LCS with every window at once, where computing them one by one costs a factor
//   m / 64 more. One text against many by ratio: the needles of a batch sit side by side in the
//   lanes of a register. So do the joined words for token_set_ratio, which is their ratio unless
//   the two texts share a word.
//
// What a cutoff saves
//   Pairs, packs of pairs and windows that cannot reach the cutoff are left out: by their lengths,
//   and by how many characters they share whatever the order (fuzzy_bags.h). A bound is computed
//   as the score itself is, so no result changes, not in its last bit.
//
// Scores are computed in double precision from integer LCS lengths by RapidFuzz's own order of
// operations, so they do not depend on the instruction set or the number of threads. A score below
// `cutoff` becomes 0.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/views.h"

namespace pytrace {

// A text read in place: `size` code points of `kind` bytes each (1, 2 or 4). Null `data` with
// `missing` set is no text at all (Python's None).
struct Text {
  const void* data = nullptr;
  int64_t size = 0;
  int kind = 1;
  bool missing = false;
};

enum class FuzzyScorer {
  kRatio = 0,
  kPartialRatio = 1,
  kTokenSetRatio = 2,  // the last that a card has
  kTokenSortRatio = 3,
  kTokenRatio = 4,
  kPartialTokenSortRatio = 5,
  kPartialTokenSetRatio = 6,
  kPartialTokenRatio = 7,
  kWeightedRatio = 8,
  kQuickRatio = 9,
};
inline constexpr int kFuzzyScorers = 10;

// Texts longer than this are refused: window positions and strands are 32-bit, and a pair costs the
// product.
inline constexpr int64_t kFuzzyMaxSize = int64_t{1} << 30;

// The score of one pair; 0 if either is missing.
double fuzzy_score(FuzzyScorer scorer, const Text& a, const Text& b, double cutoff);

// Where partial_ratio found its best window: a[a_start:a_end] beside b[b_start:b_end]. Of windows
// that score the same it is the one that RapidFuzz reports. `found` is false if the score is below
// the cutoff or a text is missing.
struct FuzzyAlignment {
  bool found = false;
  double score = 0;
  int64_t a_start = 0;
  int64_t a_end = 0;
  int64_t b_start = 0;
  int64_t b_end = 0;
};
FuzzyAlignment fuzzy_partial_alignment(const Text& a, const Text& b, double cutoff);

enum class FuzzyType {
  kFloat32,
  kFloat64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
};

// Bytes of a score.
inline int64_t fuzzy_bytes(FuzzyType type) {
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

// How fuzzy_cdist and fuzzy_cpdist score and store.
struct FuzzyCdist {
  FuzzyScorer scorer = FuzzyScorer::kRatio;
  double cutoff = 0;
  double multiplier =
      1;  // every score is multiplied by it before it is stored; integer types then round
  double missing = 0;  // stored where a text is missing, not multiplied
  int threads = 0;     // as parallel_for
};

// out[i * choices.size + j] = score of queries[i] and choices[j].
void fuzzy_cdist(Span<const Text> queries, Span<const Text> choices, const FuzzyCdist& options,
                 FuzzyType type, void* out);

// out[i] = score of queries[i] and choices[i]; both sides are of one size. Each is the score that
// fuzzy_cdist has for the pair, to the last bit.
//
// A text that stands in neighbouring pairs, on either side, is made ready once for all of them: its
// masks for ratio; for partial_ratio its masks where it is the shorter text, and beside a cutoff
// its bags where it is the longer; its words and their masks for token_set_ratio. It is known again
// by its place in memory (one Python object in all pairs), not by its characters.
void fuzzy_cpdist(Span<const Text> queries, Span<const Text> choices, const FuzzyCdist& options,
                  FuzzyType type, void* out);

// The choices most like a query: those of score `cutoff` or more, at most `limit` of them (all if
// negative). The cutoff rises as the list fills, so most choices are dropped by a bound.
class FuzzySearch {
 public:
  struct Found {
    double score;
    int64_t index;
  };

  // The query's characters must outlive it.
  FuzzySearch(FuzzyScorer scorer, const Text& query, double cutoff, int64_t limit);
  ~FuzzySearch();

  // Looks at more choices. Missing ones are left out, but have an index.
  void add(Span<const Text> choices, int threads);

  // True once no choice to come can be among the best: only ties with the last are left.
  bool settled() const;

  // The best first; of equal ones, that of the lower index first.
  std::vector<Found> found() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pytrace
