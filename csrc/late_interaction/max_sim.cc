#include "late_interaction/max_sim.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/dispatch.h"
#include "common/parallel.h"
#include "late_interaction/max_sim_vector.h"
#include "topk/topk_check.h"
#include "topk/topk_lists.h"

namespace pytrace {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
// A block of documents that many questions meet one after another while it is in the second-level
// cache; a question of 32 vectors takes some 15 us for it.
constexpr int64_t kBlockBytes = 128 << 10;
// Multiply-adds of one part of the work, some 15 us.
constexpr int64_t kPartWork = 1 << 20;
// Scores that are kept at once to choose the best of: 64 MiB.
constexpr int64_t kPairsAtOnce = 1 << 24;

// Questions [first, last) in panels.
class PackedQuestions {
 public:
  PackedQuestions(const MaxSimInput& input, const MaxSimKernels& kernels, int64_t first,
                  int64_t last, int threads)
      : first_(first), dim_(input.queries.cols), begins_{0} {
    for (int64_t g = first; g < last; ++g) {
      const int64_t count = input.query_offsets[g + 1] - input.query_offsets[g];
      begins_.push_back(begins_.back() +
                        (count + kernels.lanes - 1) / kernels.lanes * kernels.lanes);
    }
    if (begins_.back() > std::numeric_limits<int64_t>::max() / 8 / std::max<int64_t>(1, dim_)) {
      fail("queries are [" + to_text(input.queries.rows) + ", " + to_text(dim_) +
           "], which have no room in memory");
    }
    values_.resize(static_cast<size_t>(begins_.back() * dim_));
    const int64_t chunk = std::max<int64_t>(1, kPartWork / 8 / std::max<int64_t>(1, dim_ * 32));
    parallel_for(last - first, chunk, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t g = begin; g < end; ++g) pack(input, kernels, g);
    });
  }

  // Multiply-adds for a row of a document: of a question, and of all.
  int64_t row_work(int64_t question) const { return panels(question).lanes_used * dim_; }
  double row_work() const {
    return static_cast<double>(begins_.back()) * static_cast<double>(dim_);
  }

  MaxSimPanels panels(int64_t question) const {
    const auto g = static_cast<size_t>(question - first_);
    return {values_.data() + begins_[g] * dim_, begins_[g + 1] - begins_[g], dim_};
  }

 private:
  void pack(const MaxSimInput& input, const MaxSimKernels& kernels, int64_t g) {
    const auto at = static_cast<size_t>(g);
    const int64_t used = begins_[at + 1] - begins_[at];
    const int64_t begin = input.query_offsets[first_ + g];
    const int64_t count = input.query_offsets[first_ + g + 1] - begin;
    for (int64_t t = 0; t < count; ++t) {
      const int64_t panel = t / (2 * kernels.lanes) * (2 * kernels.lanes);
      const int64_t width = std::min<int64_t>(2 * kernels.lanes, used - panel);
      float* const to = values_.data() + (begins_[at] + panel) * dim_ + (t - panel);
      const float* const from = input.queries.row(begin + t);
      float zero = 0.0f;
      for (int64_t d = 0; d < dim_; ++d) {
        zero += from[d] * 0.0f;
        to[d * width] = from[d];
      }
      if (!(zero == 0.0f)) {
        const float* const bad =
            std::find_if_not(from, from + dim_, [](float x) { return std::isfinite(x); });
        fail_not_finite("queries", begin + t, bad - from);
      }
    }
  }

  int64_t first_;
  int64_t dim_;
  std::vector<int64_t> begins_;  // in lanes
  std::vector<float> values_;
};

bool finite_value(const Items& items, int64_t row, int64_t col) {
  const int64_t at = row * items.stride + col;
  switch (items.type) {
    case ItemType::kFloat32:
      return std::isfinite(static_cast<const float*>(items.data)[at]);
    case ItemType::kFloat16:
      return (static_cast<const uint16_t*>(items.data)[at] & 0x7c00) != 0x7c00;
    case ItemType::kInt8:
      break;
  }
  return true;
}

[[noreturn]] void fail_score(const MaxSimInput& input, int64_t question, int64_t document) {
  for (int64_t row = input.document_offsets[document]; row < input.document_offsets[document + 1];
       ++row) {
    for (int64_t col = 0; col < input.documents.cols; ++col) {
      if (!finite_value(input.documents, row, col)) fail_not_finite("documents", row, col);
    }
  }
  fail("the score of question " + to_text(question) + " with document " + to_text(document) +
       " overflows float32; make the vectors shorter");
}

// Scores pairs, one after another, with memory of its own.
class Scorer {
 public:
  Scorer(const MaxSimInput& input, const MaxSimKernels& kernels, const PackedQuestions& packed)
      : input_(input),
        kernels_(kernels),
        packed_(packed),
        widened_(static_cast<size_t>(input.documents.type == ItemType::kFloat32
                                         ? 0
                                         : kernels.tile_rows * input.queries.cols)) {}

  float score(int64_t question, int64_t document) {
    const int64_t tokens = input_.query_offsets[question + 1] - input_.query_offsets[question];
    const int64_t first = input_.document_offsets[document];
    const int64_t last = input_.document_offsets[document + 1];
    if (tokens == 0) return 0.0f;
    if (first == last) return kNothing;
    const MaxSimPanels panels = packed_.panels(question);
    best_.resize(static_cast<size_t>(panels.lanes_used));
    const bool finite =
        kernels_.largest(panels, input_.documents, first, last, widened_.data(), best_.data());
    double total = 0;
    for (int64_t t = 0; t < tokens; ++t) total += double{best_[static_cast<size_t>(t)]};
    const auto score = static_cast<float>(total);
    if (!finite || !std::isfinite(score)) fail_score(input_, question, document);
    return score;
  }

 private:
  const MaxSimInput& input_;
  const MaxSimKernels& kernels_;
  const PackedQuestions& packed_;
  std::vector<float> widened_;
  std::vector<float> best_;
};

// A question and some of its candidates, as positions among all.
struct Part {
  int64_t question;
  int64_t begin;
  int64_t end;
};

// How many parts a thread takes at once, where all are so many multiply-adds.
int64_t chunk_of(int64_t parts, double work) {
  const double each = std::max(1.0, work / static_cast<double>(std::max<int64_t>(1, parts)));
  return each >= kPartWork ? 1 : static_cast<int64_t>(kPartWork / each) + 1;
}

std::vector<Part> parts_of_candidates(const MaxSimInput& input, const PackedQuestions& packed,
                                      int64_t first, int64_t last, double* work) {
  std::vector<Part> parts;
  for (int64_t g = first; g < last; ++g) {
    const int64_t most = kPartWork / std::max<int64_t>(1, packed.row_work(g));
    int64_t begin = input.candidate_offsets[g], rows = 0;
    for (int64_t at = begin; at < input.candidate_offsets[g + 1]; ++at) {
      const int64_t document = input.candidates[at];
      if (document >= 0)
        rows += input.document_offsets[document + 1] - input.document_offsets[document];
      if (rows >= most || at + 1 == input.candidate_offsets[g + 1]) {
        parts.push_back({g, begin, at + 1});
        *work += static_cast<double>(rows) * static_cast<double>(packed.row_work(g));
        begin = at + 1;
        rows = 0;
      }
    }
  }
  return parts;
}

// Where blocks of documents begin, and where the last one ends.
std::vector<int64_t> blocks_of(const MaxSimInput& input) {
  const int64_t size = input.documents.type == ItemType::kFloat32   ? 4
                       : input.documents.type == ItemType::kFloat16 ? 2
                                                                    : 1;
  const int64_t most = kBlockBytes / std::max<int64_t>(1, input.documents.cols * size);
  std::vector<int64_t> begins{0};
  for (int64_t d = 1; d <= input.document_count(); ++d) {
    const int64_t rows = input.document_offsets[d] - input.document_offsets[begins.back()];
    // Documents without vectors take time, too.
    if (rows >= most || d - begins.back() >= kBlockBytes || d == input.document_count())
      begins.push_back(d);
  }
  return begins;
}

// Questions [first, last); the scores are those of these questions alone.
void score_questions(const MaxSimInput& input, int64_t first, int64_t last, int threads,
                     float* scores) {
  const MaxSimKernels& kernels = *PYTRACE_SELECT_ISA(kMaxSimKernels);
  const PackedQuestions packed(input, kernels, first, last, threads);
  if (input.candidate_offsets.size > 0) {
    double work = 0;
    const std::vector<Part> parts = parts_of_candidates(input, packed, first, last, &work);
    const int64_t from = input.candidate_offsets[first];
    const auto count = static_cast<int64_t>(parts.size());
    parallel_for(count, chunk_of(count, work), threads, [&](int64_t begin, int64_t end, int) {
      Scorer scorer(input, kernels, packed);
      for (int64_t p = begin; p < end; ++p) {
        const Part& part = parts[static_cast<size_t>(p)];
        for (int64_t at = part.begin; at < part.end; ++at) {
          const int64_t document = input.candidates[at];
          scores[at - from] = document < 0 ? kNothing : scorer.score(part.question, document);
        }
      }
    });
    return;
  }
  const std::vector<int64_t> blocks = blocks_of(input);
  const int64_t questions = last - first, documents = input.document_count();
  const int64_t parts = (static_cast<int64_t>(blocks.size()) - 1) * questions;
  const double work = packed.row_work() * static_cast<double>(input.documents.rows);
  parallel_for(parts, chunk_of(parts, work), threads, [&](int64_t begin, int64_t end, int) {
    Scorer scorer(input, kernels, packed);
    for (int64_t p = begin; p < end; ++p) {
      const auto block = static_cast<size_t>(p / questions);
      const int64_t question = p % questions;
      for (int64_t d = blocks[block]; d < blocks[block + 1]; ++d)
        scores[question * documents + d] = scorer.score(first + question, d);
    }
  });
}

}  // namespace

void check_max_sim(const MaxSimInput& input) {
  if (input.queries.cols != input.documents.cols) {
    fail("queries have " + to_text(input.queries.cols) + " dimensions, but documents have " +
         to_text(input.documents.cols));
  }
  require_offsets(input.query_offsets, input.queries.rows, "query_offsets");
  require_offsets(input.document_offsets, input.documents.rows, "document_offsets");
  if (input.document_count() > int64_t{std::numeric_limits<uint32_t>::max()}) {
    fail("there are " + to_text(input.document_count()) +
         " documents; one call scores at most 4294967295");
  }
  if (input.candidate_offsets.size == 0) return;
  if (input.candidate_offsets.size != input.query_offsets.size) {
    fail("candidates' offsets have " + to_text(input.candidate_offsets.size) + " values, but " +
         to_text(input.question_count()) + " questions need " + to_text(input.query_offsets.size));
  }
  require_offsets(input.candidate_offsets, input.candidates.size, "candidates' offsets");
  for (int64_t i = 0; i < input.candidates.size; ++i) {
    if (input.candidates[i] < -1 || input.candidates[i] >= input.document_count()) {
      fail("candidates holds " + to_text(input.candidates[i]) + ", but there are " +
           to_text(input.document_count()) + " documents; only -1 stands for none");
    }
  }
}

void max_sim(const MaxSimInput& input, int threads, float* scores) {
  score_questions(input, 0, input.question_count(), threads, scores);
}

void max_sim_top_k(const MaxSimInput& input, int64_t k, int threads, float* scores,
                   int64_t* indices) {
  const int64_t questions = input.question_count();
  const auto pairs = [&](int64_t first, int64_t last) {
    return input.candidate_offsets.size > 0
               ? input.candidate_offsets[last] - input.candidate_offsets[first]
               : (last - first) * input.document_count();
  };
  std::vector<float> kept;
  for (int64_t first = 0, last; first < questions; first = last) {
    for (last = first + 1; last < questions && pairs(first, last + 1) <= kPairsAtOnce;) ++last;
    kept.resize(static_cast<size_t>(pairs(first, last)));
    score_questions(input, first, last, threads, kept.data());
    parallel_for(last - first, 16, threads, [&](int64_t begin, int64_t end, int) {
      std::vector<uint64_t> keys;
      for (int64_t g = first + begin; g < first + end; ++g) {
        keys.clear();
        const float* const mine = kept.data() + pairs(first, g);
        for (int64_t i = 0; i < pairs(g, g + 1); ++i) {
          if (mine[i] == kNothing) continue;
          const int64_t document = input.candidate_offsets.size > 0
                                       ? input.candidates[input.candidate_offsets[g] + i]
                                       : i;
          keys.push_back(pack_key(mine[i], static_cast<uint32_t>(document)));
        }
        const int64_t found = std::min(k, static_cast<int64_t>(keys.size()));
        std::partial_sort(keys.begin(), keys.begin() + found, keys.end());
        for (int64_t i = 0; i < k; ++i) {
          const bool there = i < found;
          const uint64_t key = there ? keys[static_cast<size_t>(i)] : 0;
          scores[g * k + i] = there ? score_of_key(key) : kNothing;
          indices[g * k + i] = there ? static_cast<int64_t>(key & 0xffffffffu) : -1;
        }
      }
    });
  }
}

}  // namespace pytrace
