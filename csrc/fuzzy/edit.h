// Edit distances of many texts against many, over Unicode code points: Levenshtein, Indel, LCSseq,
// Jaro and Jaro-Winkler, as RapidFuzz 3.14 defines them.
//
// Levenshtein: the least number of insertions, deletions and substitutions that turn one text into
// the other; at most max(m, n). Indel: the same without substitutions, m + n - 2 LCS; at most
// m + n. LCSseq: the length of the longest common subsequence as a similarity, at most max(m, n).
// Of these, distance and similarity are whole numbers that add up to that most, and the normalized
// ones are divided by it: 0 and 1 for two empty texts.
//
// Jaro: with c characters in common within a window of max(m, n) / 2 - 1 places and t of them
// transposed, (c / m + c / n + (c - t / 2) / c) / 3; 1 for two empty texts, 0 without a character
// in common. Jaro-Winkler: above 0.7, that and prefix_weight times what it lacks of 1 for each of
// the first four characters that the texts begin with in common (Winkler 1990). Their normalized
// forms are the forms themselves.
//
// How it is computed
//   Levenshtein: Hyyrö's bit-parallel recurrence ("A Bit-Vector Algorithm for Computing Levenshtein
//   and Damerau Edit Distances", 2003). The needles of a pack stand side by side in the lanes of
//   vector registers, of 8, 16, 32 or 64 bits, whichever first holds them; longer ones take several
//   64-bit words, each of which hands its last row's differences on to the next. The distance is
//   not followed from step to step: it is n and the sum of the last column's differences. O(n m /
//   64) a pair, for all pairs of a register at once. The LCS goes the same way (Hyyrö 2004). Jaro:
//   the first free character of the window is the lowest bit of three masks' conjunction, so a pack
//   goes through the text twice, once for the characters in common and once for those that match in
//   order. Two texts beyond 64 characters go character by character through the places of each,
//   O(m + n) a pair once these are sorted.
//
// Results do not depend on the instruction set or the number of threads.
#pragma once

#include <cstdint>

#include "common/views.h"
#include "fuzzy/fuzzy.h"

namespace pytrace {

enum class EditMetric {
  kLevenshtein = 0,
  kIndel = 1,
  kLcsSeq = 2,
  kJaro = 3,
  kJaroWinkler = 4,
};
inline constexpr int kEditMetrics = 5;

enum class EditForm {
  kDistance = 0,
  kSimilarity = 1,
  kNormalizedDistance = 2,
  kNormalizedSimilarity = 3,
};
inline constexpr int kEditForms = 4;

// Whether the results are whole numbers.
inline bool edit_whole(EditMetric metric, EditForm form) {
  return metric <= EditMetric::kLcsSeq && form <= EditForm::kSimilarity;
}

// Texts longer than this are refused: distances are 32-bit.
inline constexpr int64_t kEditMaxSize = kFuzzyMaxSize - 1;

struct EditCdist {
  EditMetric metric = EditMetric::kLevenshtein;
  EditForm form = EditForm::kDistance;
  // A similarity below it becomes 0; a distance above it becomes 1, a whole one cutoff + 1.
  bool has_cutoff = false;
  double cutoff = 0;
  double multiplier = 1;  // every result is multiplied by it before it is stored; integers round
  double missing = 0;     // stored where a text is missing, not multiplied
  double prefix_weight = 0.1;  // Jaro-Winkler's
  int threads = 0;             // as parallel_for
};

// out[i * choices.size + j] = result for queries[i] and choices[j]. Throws std::invalid_argument
// for a text that is too long.
void edit_cdist(Span<const Text> queries, Span<const Text> choices, const EditCdist& options,
                FuzzyType type, void* out);

}  // namespace pytrace
