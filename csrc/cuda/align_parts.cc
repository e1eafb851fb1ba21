#include "cuda/align_parts.h"

#include <algorithm>
#include <limits>

#include "common/parallel.h"

namespace pytrace::cuda {
namespace {

// What a reference takes beside its symbols: its offset, its place in a list of pairs, score, path
// and group; and a candidate: offset, group, results; with steps also their offset and its trace.
constexpr int64_t kReferenceBytes = 5 * 8;
constexpr int64_t kCandidateBytes = 6 * 8;
constexpr int64_t kTracedBytes = 5 * 8;
// A column of an alignment: two positions.
constexpr int64_t kColumnBytes = 2 * 8;

int64_t size_of(Span<const int64_t> offsets, int64_t i) { return offsets[i + 1] - offsets[i]; }

// Sequences [first, last) by themselves.
struct Slice {
  std::vector<int64_t> offsets;
  RaggedSymbols symbols;

  Slice(const RaggedSymbols& whole, int64_t first, int64_t last) {
    for (int64_t i = first; i <= last; ++i) {
      offsets.push_back(whole.offsets[i] - whole.offsets[first]);
    }
    symbols = {{whole.values.data + whole.offsets[first], offsets.back()},
               {offsets.data(), last - first + 1}};
  }
};

struct PartResults {
  std::vector<int64_t> best, matches, lengths;
  std::vector<double> scores;
  std::vector<int64_t> candidate_steps, reference_steps, offsets;

  AlignedArrays arrays(int64_t candidates) {
    const auto count = static_cast<size_t>(candidates);
    for (auto* values : {&best, &matches, &lengths}) values->resize(count);
    scores.resize(count);
    offsets.resize(count + 1);
    return {best.data(), scores.data(), matches.data(), lengths.data(), false};
  }
  StepArrays steps(int64_t columns) {
    candidate_steps.resize(static_cast<size_t>(columns));
    reference_steps.resize(static_cast<size_t>(columns));
    return {candidate_steps.data(), reference_steps.data(), offsets.data()};
  }
};

PartResults align_part(const AlignBatch& batch, const AlignPart& part, int device, int64_t memory,
                       const AlignPartly& align, bool want_steps) {
  const Slice candidates(batch.candidates, part.first_candidate, part.last_candidate);
  const Slice references(batch.references, part.first_reference, part.last_reference);
  std::vector<int64_t> groups;
  for (int64_t c = part.first_candidate; c <= part.last_candidate; ++c) {
    const int64_t at = std::clamp(batch.groups[c], part.first_reference, part.last_reference);
    groups.push_back(at - part.first_reference);
  }
  AlignBatch own;
  own.candidates = candidates.symbols;
  own.references = references.symbols;
  own.groups = {groups.data(), static_cast<int64_t>(groups.size())};
  own.scoring = batch.scoring;
  PartResults results;
  const std::function<StepArrays(int64_t)> room = [&](int64_t columns) {
    return results.steps(columns);
  };
  const Borrowed context(device);
  align(*context, own, memory, results.arrays(own.candidates.size()), want_steps ? &room : nullptr);
  return results;
}

}  // namespace

std::vector<AlignPart> cut_pairs(const AlignBatch& batch, bool want_steps, int64_t bytes) {
  std::vector<AlignPart> parts;
  AlignPart part;
  int64_t taken = 0;
  int64_t columns = 0;  // of the last candidate's steps, so far
  const auto close = [&] {
    if (part.last_reference > part.first_reference) parts.push_back(part);
    part.first_reference = part.last_reference;
    taken = 0;
  };
  for (int64_t c = 0; c < batch.candidates.size(); ++c) {
    const int64_t symbols = size_of(batch.candidates.offsets, c);
    bool in_part = false;
    for (int64_t r = batch.groups[c]; r < batch.groups[c + 1]; ++r) {
      const int64_t length = size_of(batch.references.offsets, r);
      const auto cost = [&] {
        int64_t more = kReferenceBytes + 4 * length;
        if (!in_part) {
          more += kCandidateBytes + 4 * symbols;
          if (want_steps) more += kTracedBytes;
        }
        const int64_t before = in_part ? columns : 0;
        if (want_steps) more += kColumnBytes * std::max<int64_t>(0, symbols + length - before);
        return more;
      };
      if (taken > 0 && taken + cost() > bytes) {
        close();
        in_part = false;
      }
      if (taken == 0) part.first_candidate = c;
      taken += cost();
      columns = in_part ? std::max(columns, symbols + length) : symbols + length;
      in_part = true;
      part.last_candidate = c + 1;
      part.last_reference = r + 1;
    }
  }
  close();
  return parts;
}

void align_parts(const AlignBatch& batch, const std::vector<AlignPart>& parts, int device,
                 int64_t memory, const AlignPartly& align, const AlignedArrays& out,
                 const std::function<StepArrays(int64_t)>* room) {
  const int64_t candidates = batch.candidates.size();
  std::vector<PartResults> results(parts.size());
  constexpr int kTogether = 2;
  parallel_for(
      static_cast<int64_t>(parts.size()), 1, kTogether, [&](int64_t begin, int64_t end, int) {
        for (int64_t p = begin; p < end; ++p) {
          const auto at = static_cast<size_t>(p);
          results[at] =
              align_part(batch, parts[at], device, memory / kTogether, align, room != nullptr);
        }
      });

  // Which part has a candidate's best.
  std::vector<size_t> holder(static_cast<size_t>(candidates), parts.size());
  for (int64_t c = 0; c < candidates; ++c) {
    out.best[c] = -1;
    out.scores[c] = -std::numeric_limits<double>::infinity();
    out.matches[c] = out.lengths[c] = 0;
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    const AlignPart& part = parts[p];
    for (int64_t c = part.first_candidate; c < part.last_candidate; ++c) {
      const auto own = static_cast<size_t>(c - part.first_candidate);
      const PartResults& found = results[p];
      if (found.best[own] < 0) continue;
      if (out.best[c] >= 0 && found.scores[own] <= out.scores[c]) continue;
      out.best[c] = part.first_reference + found.best[own];
      out.scores[c] = found.scores[own];
      out.matches[c] = found.matches[own];
      out.lengths[c] = found.lengths[own];
      holder[static_cast<size_t>(c)] = p;
    }
  }
  if (room == nullptr) return;
  int64_t columns = 0;
  for (int64_t c = 0; c < candidates; ++c) columns += out.lengths[c];
  const StepArrays steps = (*room)(columns);
  steps.offsets[0] = 0;
  for (int64_t c = 0; c < candidates; ++c) {
    const int64_t to = steps.offsets[c];
    steps.offsets[c + 1] = to + out.lengths[c];
    if (out.lengths[c] == 0) continue;
    const size_t p = holder[static_cast<size_t>(c)];
    const PartResults& found = results[p];
    const int64_t from = found.offsets[static_cast<size_t>(c - parts[p].first_candidate)];
    std::copy_n(found.candidate_steps.begin() + from, out.lengths[c], steps.candidate_steps + to);
    std::copy_n(found.reference_steps.begin() + from, out.lengths[c], steps.reference_steps + to);
  }
}

}  // namespace pytrace::cuda
