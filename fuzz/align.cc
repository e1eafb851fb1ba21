// Alignments beside the plain table of three states, and edit distances beside theirs.
#include "align/align.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "fuzzing.h"

namespace {

using pytrace::Scoring;
using pytrace::Span;
using pytrace::Step;
using Symbols = std::vector<int32_t>;

constexpr double kNever = -std::numeric_limits<double>::infinity();

Span<const int32_t> view(const Symbols& symbols) {
  return {symbols.data(), static_cast<int64_t>(symbols.size())};
}

Symbols symbols_of(FuzzedDataProvider* data, size_t most) {
  constexpr int32_t kFirsts[] = {
      0,     30,    std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max() - 4,
      32765, -32770};
  const int32_t first = data->PickValueInArray(kFirsts);
  const int32_t letters = data->ConsumeIntegralInRange<int32_t>(1, 5);
  Symbols out(data->ConsumeIntegralInRange<size_t>(0, most));
  for (int32_t& symbol : out) symbol = first + data->ConsumeIntegral<uint8_t>() % letters;
  return out;
}

// What a function scores: by the last bits of its symbols.
std::vector<double> answers(16, 0.0);
uint32_t turn = 0;
double steady(int32_t a, int32_t b) {
  return answers[(static_cast<uint32_t>(a) % 4) * 4 + static_cast<uint32_t>(b) % 4];
}
double fickle(int32_t a, int32_t b) { return steady(a, b) + ((++turn * 2654435761u) >> 30); }

double pair_score(const Scoring& scoring, const Symbols& a, const Symbols& b, size_t i, size_t j) {
  if (scoring.function != nullptr) return scoring.function(a[i], b[j]);
  if (scoring.matrix.data != nullptr) {
    return scoring.matrix.row(static_cast<int64_t>(i))[static_cast<int64_t>(j)];
  }
  return a[i] == b[j] ? scoring.match : scoring.mismatch;
}

double plain_score(const Symbols& a, const Symbols& b, const Scoring& scoring) {
  struct Cell {
    double best = kNever;
    double up = kNever;
    double left = kNever;
  };
  std::vector<std::vector<Cell>> table(a.size() + 1, std::vector<Cell>(b.size() + 1));
  table[0][0].best = 0.0;
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      Cell& cell = table[i][j];
      if (i > 0)
        cell.up =
            std::max(table[i - 1][j].best + scoring.gap_open, table[i - 1][j].up + scoring.gap);
      if (j > 0)
        cell.left =
            std::max(table[i][j - 1].best + scoring.gap_open, table[i][j - 1].left + scoring.gap);
      cell.best = std::max({cell.best, cell.up, cell.left});
      if (i > 0 && j > 0) {
        cell.best =
            std::max(cell.best, table[i - 1][j - 1].best + pair_score(scoring, a, b, i - 1, j - 1));
      }
    }
  }
  return table[a.size()][b.size()].best;
}

// The score of the columns themselves; ends the process if they do not use up both sequences.
double score_of(const std::vector<Step>& steps, const Symbols& a, const Symbols& b,
                const Scoring& scoring) {
  size_t i = 0;
  size_t j = 0;
  double score = 0.0;
  Step before = pytrace::kPair;
  for (Step step : steps) {
    if (step == pytrace::kPair) {
      FUZZ_CHECK(i < a.size() && j < b.size());
      score += pair_score(scoring, a, b, i++, j++);
    } else {
      FUZZ_CHECK(step == pytrace::kUp ? i++ < a.size() : j++ < b.size());
      score += step == before ? scoring.gap : scoring.gap_open;
    }
    before = step;
  }
  FUZZ_CHECK(i == a.size() && j == b.size());
  return score;
}

int64_t plain_distance(const Symbols& a, const Symbols& b) {
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Each candidate's best reference is one that scores best of all, and the first of them.
void check_batch(FuzzedDataProvider* data, const Scoring& scoring) {
  std::vector<Symbols> sides[2];
  Symbols values[2];
  std::vector<int64_t> offsets[2] = {{0}, {0}};
  std::vector<int64_t> groups{0};
  const size_t candidates = data->ConsumeIntegralInRange<size_t>(0, 5);
  for (size_t c = 0; c < candidates; ++c) {
    sides[0].push_back(symbols_of(data, 20));
    const size_t references = data->ConsumeIntegralInRange<size_t>(0, 3);
    for (size_t r = 0; r < references; ++r) sides[1].push_back(symbols_of(data, 20));
    groups.push_back(static_cast<int64_t>(sides[1].size()));
  }
  for (int side : {0, 1}) {
    for (const Symbols& path : sides[side]) {
      values[side].insert(values[side].end(), path.begin(), path.end());
      offsets[side].push_back(static_cast<int64_t>(values[side].size()));
    }
  }
  const auto ends = [](const std::vector<int64_t>& all) {
    return Span<const int64_t>{all.data(), static_cast<int64_t>(all.size())};
  };
  const auto count = static_cast<int64_t>(candidates);
  std::vector<int64_t> best(candidates);
  std::vector<double> scores(candidates);
  std::vector<int64_t> matches(candidates);
  std::vector<int64_t> lengths(candidates);
  std::vector<std::vector<Step>> steps(candidates);
  pytrace::align_batch({view(values[0]), ends(offsets[0])}, {view(values[1]), ends(offsets[1])},
                       ends(groups), scoring, 1,
                       {{best.data(), count},
                        {scores.data(), count},
                        {matches.data(), count},
                        {lengths.data(), count},
                        &steps});
  for (size_t c = 0; c < candidates; ++c) {
    int64_t expected = -1;
    double score = kNever;
    for (int64_t r = groups[c]; r < groups[c + 1]; ++r) {
      const double other = plain_score(sides[0][c], sides[1][static_cast<size_t>(r)], scoring);
      if (expected < 0 || other > score) {
        expected = r;
        score = other;
      }
    }
    FUZZ_CHECK(best[c] == expected && scores[c] == score);
    FUZZ_CHECK(lengths[c] == static_cast<int64_t>(steps[c].size()));
    if (expected >= 0) {
      FUZZ_CHECK(score_of(steps[c], sides[0][c], sides[1][static_cast<size_t>(expected)],
                          scoring) == score);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  choose_isa(&data);
  // Halves and whole numbers: their sums are exact, so scores are compared as they are.
  constexpr double kScores[] = {1.0, 0.0,  -1.0,      2.5,      -0.5,
                                3.0, -7.0, 999'999.0, 30'000.0, -30'000.0};
  constexpr double kGaps[] = {-1.0, -2.0, -0.5, 0.0, 1.0, -100.0, -30'000.0};
  Scoring scoring;
  scoring.match = data.PickValueInArray(kScores);
  scoring.mismatch = data.PickValueInArray(kScores);
  scoring.gap = data.PickValueInArray(kGaps);
  scoring.gap_open =
      scoring.gap - (data.ConsumeBool() ? data.ConsumeIntegralInRange<int>(0, 6) * 0.5 : 0.0);
  const int judge = data.ConsumeIntegralInRange<int>(0, 5);
  if (judge == 0) {
    check_batch(&data, scoring);
    return 0;
  }
  const size_t most = judge == 1 ? 200 : 70;
  const Symbols a = symbols_of(&data, most);
  const Symbols b = symbols_of(&data, most);
  std::vector<double> matrix;
  if (judge == 2) {
    for (size_t i = 0; i < a.size() * b.size(); ++i) {
      const auto byte = data.ConsumeIntegral<uint8_t>();
      matrix.push_back(byte == 255 ? kNever : (byte % 9 - 4) * 0.5);
    }
    if (matrix.empty()) return 0;
    scoring.matrix = {matrix.data(), static_cast<int64_t>(a.size()), static_cast<int64_t>(b.size()),
                      static_cast<int64_t>(b.size())};
    scoring.by_position = true;
  } else if (judge >= 4) {
    for (double& answer : answers) answer = data.ConsumeIntegralInRange<int>(-6, 6) * 0.5;
    scoring.function = judge == 4 ? steady : fickle;
  }
  constexpr int64_t kTraceBytes[] = {0, 1, 100, 3000, pytrace::kTraceBytes};
  const int64_t trace_bytes = data.PickValueInArray(kTraceBytes);
  const pytrace::AlignmentPath path = pytrace::align(view(a), view(b), scoring, trace_bytes);
  const double alone = pytrace::alignment_score(view(a), view(b), scoring);
  const double again = score_of(path.steps, a, b, scoring);
  if (judge == 5)
    return 0;  // a function that changes its mind gets an alignment, of whatever score
  const double expected = plain_score(a, b, scoring);
  FUZZ_CHECK(path.score == expected && alone == expected && again == expected);
  const pytrace::AlignmentPath whole = pytrace::align(view(a), view(b), scoring);
  FUZZ_CHECK(whole.steps == path.steps && whole.matches == path.matches);
  FUZZ_CHECK(pytrace::edit_distance(view(a), view(b)) == plain_distance(a, b));
  return 0;
}
