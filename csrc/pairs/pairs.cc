#include "pairs/pairs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/parallel.h"

namespace pytrace {
namespace {

// So that features are numbers of one size.
constexpr double kScale = 10.0;
constexpr double kTiny = 1e-9;
constexpr int64_t kScores = 4;  // near, words, named, rarity of the name

Span<const int32_t> list(const Lists& lists, int64_t i) {
  const int64_t begin = lists.offsets[i];
  return {lists.values.data + begin, lists.offsets[i + 1] - begin};
}

double weight_of(const PairCorpus& corpus, int32_t word) {
  const bool known = word >= 0 && word < corpus.frequencies.size;
  const double frequency = known ? corpus.frequencies[word] : 0;
  return std::log(1 + (static_cast<double>(corpus.passages) - frequency + 0.5) / (frequency + 0.5));
}

// Words with a weight each, by open addressing.
class WordTable {
 public:
  // Makes it empty, with room for so many words.
  void clear(int64_t words) {
    size_t size = 16;
    while (size < 2 * static_cast<size_t>(words)) size *= 2;
    slots_.assign(size, Slot{});
    mask_ = size - 1;
    std::fill(std::begin(seen_), std::end(seen_), 0);
  }

  // A word stands once; `extra` says of which of two kinds it is.
  void add(int32_t word, double weight, bool extra) {
    if (word < 0) return;
    seen_[bit(word) / 64] |= uint64_t{1} << bit(word) % 64;
    size_t at = place(word);
    while (slots_[at].word >= 0) at = (at + 1) & mask_;
    slots_[at] = {word, extra, weight};
  }

  struct Slot {
    int32_t word = -1;
    bool extra = false;
    double weight = 0;
  };

  const Slot* find(int32_t word) const {
    if (word < 0 || (seen_[bit(word) / 64] >> bit(word) % 64 & 1) == 0) return nullptr;
    for (size_t at = place(word); slots_[at].word >= 0; at = (at + 1) & mask_) {
      if (slots_[at].word == word) return &slots_[at];
    }
    return nullptr;
  }

 private:
  size_t place(int32_t word) const {
    return (static_cast<uint32_t>(word) * 2654435769U >> 7) & mask_;
  }

  // Most words that are looked up are not there, and for nearly all of them a bit tells.
  static size_t bit(int32_t word) { return static_cast<uint32_t>(word) * 2654435769U >> 20; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  uint64_t seen_[(1 << 12) / 64] = {};
};

bool holds(Span<const int32_t> words, int32_t word) {
  return std::binary_search(words.begin(), words.end(), word);
}

float product(const float* a, const float* b, int64_t size) {
  constexpr int kLanes = 16;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float rest = 0;
  for (; i < size; ++i) rest += a[i] * b[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0] + rest;
}

// One question's pairs.
class Question {
 public:
  Question(const PairCorpus& corpus, const PairQuestions& questions,
           const PairCandidates& candidates)
      : corpus_(corpus), questions_(questions), candidates_(candidates) {}

  void compute(int64_t question, const Pairs& pairs, double* features) {
    question_ = question;
    begin_ = questions_.offsets[question];
    total_ = questions_.totals[question] + kTiny;
    describe_candidates();
    int64_t first = -1;
    for (int64_t p = pairs.offsets[question]; p < pairs.offsets[question + 1]; ++p) {
      if (pairs.firsts[p] != first) {
        first = pairs.firsts[p];
        begin_pairs_of(begin_ + first);
      }
      fill(pairs, p, features + p * kPairFeatures);
    }
  }

 private:
  // How much of the question each candidate has, and of its best name the question.
  void describe_candidates() {
    const Span<const int32_t> asked = list(questions_.words, question_);
    asked_.clear(asked.size);
    for (const int32_t word : asked) {
      const double weight = weight_of(corpus_, word);
      asked_.add(word, weight, false);
    }
    const int64_t end = questions_.offsets[question_ + 1];
    covered_.assign(static_cast<size_t>(end - begin_), 0);
    title_.assign(static_cast<size_t>(end - begin_), 0);
    name_begin_ = candidates_.names[begin_];
    name_totals_.clear();
    for (int64_t c = begin_; c < end; ++c) {
      double covered = 0;
      for (const int32_t word : list(candidates_.words, c)) {
        if (const auto* found = asked_.find(word)) covered += found->weight * found->weight;
      }
      covered_[static_cast<size_t>(c - begin_)] = covered / total_;
      double& title = title_[static_cast<size_t>(c - begin_)];
      for (int64_t name = candidates_.names[c]; name < candidates_.names[c + 1]; ++name) {
        double name_total = kTiny, held = 0;
        for (const int32_t word : list(candidates_.name_words, name)) {
          const double weight = weight_of(corpus_, word);
          name_total += weight * weight;
          if (asked_.find(word) != nullptr) held += weight * weight;
        }
        name_totals_.push_back(name_total);
        title = std::max(title, held / name_total);
      }
    }
  }

  // Notes the words of a first passage that are new, and those of the question that it lacks.
  void begin_pairs_of(int64_t first) {
    const Span<const int32_t> words = list(candidates_.words, first);
    const Span<const int32_t> asked = list(questions_.words, question_);
    table_.clear(words.size + asked.size);
    new_total_ = kTiny;
    for (int64_t i = 0; i < words.size; ++i) {
      // Each once, and where a damaged file has one twice, too.
      if ((i > 0 && words[i] == words[i - 1]) || asked_.find(words[i]) != nullptr) continue;
      const double weight = weight_of(corpus_, words[i]);
      new_total_ += weight * weight;
      table_.add(words[i], weight, false);
    }
    for (const int32_t word : asked) {
      // Looked up again: another thread may write to what was given.
      const auto* found = asked_.find(word);
      if (found != nullptr && !holds(words, word)) table_.add(word, found->weight, true);
    }
    const float* const mine = candidates_.vectors.row(first);
    const float* const asking = questions_.vectors.row(question_);
    const int64_t size = questions_.vectors.cols;
    both_.resize(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) both_[static_cast<size_t>(i)] = asking[i] + mine[i];
    const float norm =
        std::sqrt(product(both_.data(), both_.data(), size)) + static_cast<float>(kTiny);
    for (float& value : both_) value /= norm;
    own_names_.clear();
    for (int64_t name = candidates_.names[first]; name < candidates_.names[first + 1]; ++name) {
      for (const int32_t word : list(candidates_.name_words, name)) {
        const double weight = weight_of(corpus_, word);
        own_names_.push_back({word, name, weight * weight});
      }
    }
  }

  void fill(const Pairs& pairs, int64_t pair, double* out) const {
    const int64_t first = begin_ + pairs.firsts[pair], second = begin_ + pairs.seconds[pair];
    const auto place = static_cast<size_t>(second - begin_);
    const auto first_place = static_cast<size_t>(first - begin_);
    const Span<const int32_t> words = list(candidates_.words, second);
    double rarest = 0, shared = 0, adds = 0;
    for (const int32_t word : words) {
      const auto* found = table_.find(word);
      if (found == nullptr) continue;
      if (found->extra) {
        adds += found->weight * found->weight;
      } else {
        rarest = std::max(rarest, found->weight);
        shared += found->weight * found->weight;
      }
    }
    double rarest_in_name = 0, names_it = 0, name_weight = 0;
    for (int64_t name = candidates_.names[second]; name < candidates_.names[second + 1]; ++name) {
      double held = 0;
      for (const int32_t word : list(candidates_.name_words, name)) {
        const auto* found = table_.find(word);
        if (found == nullptr || found->extra) continue;
        held += found->weight * found->weight;
        rarest_in_name = std::max(rarest_in_name, found->weight);
      }
      names_it = std::max(names_it, held / total_of(name));
      name_weight = std::max(name_weight, held);
    }
    double named_by_it = 0, of_name = 0;
    for (size_t i = 0; i < own_names_.size(); ++i) {
      const OwnWord& own = own_names_[i];
      if (i == 0 || own.name != own_names_[i - 1].name) of_name = 0;
      if (own.word >= 0 && holds(words, own.word)) of_name += own.square;
      named_by_it = std::max(named_by_it, of_name / total_of(own.name));
    }
    const double* const mine = candidates_.scores.row(first);
    const double* const theirs = candidates_.scores.row(second);
    const float* const vector = candidates_.vectors.row(second);
    const int64_t size = questions_.vectors.cols;
    *out++ = product(vector, both_.data(), size);
    *out++ = product(vector, candidates_.vectors.row(first), size);
    *out++ = pairs.forth[pair];
    *out++ = pairs.back[pair];
    *out++ = rarest / kScale;
    *out++ = rarest_in_name / kScale;
    *out++ = shared / new_total_;
    *out++ = adds / total_;
    *out++ = adds / std::max(total_ * (1 - covered_[first_place]), kTiny);
    *out++ = theirs[2] * mine[2];
    *out++ = names_it;
    *out++ = std::sqrt(name_weight) / kScale;
    *out++ = named_by_it;
    *out++ = theirs[0];
    *out++ = theirs[1];
    *out++ = theirs[2];
    *out++ = theirs[3] / kScale;
    *out++ = title_[place];
    *out++ = mine[0];
    *out++ = mine[1];
    *out++ = covered_[first_place];
    *out++ = mine[2];
    *out++ = mine[3] / kScale;
    *out++ = title_[first_place];
  }

  double total_of(int64_t name) const {
    return name_totals_[static_cast<size_t>(name - name_begin_)];
  }

  struct OwnWord {
    int32_t word;
    int64_t name;
    double square;
  };

  const PairCorpus& corpus_;
  const PairQuestions& questions_;
  const PairCandidates& candidates_;
  int64_t question_ = 0, begin_ = 0, name_begin_ = 0;
  double total_ = 0, new_total_ = 0;
  WordTable asked_, table_;
  std::vector<double> covered_, title_, name_totals_;
  std::vector<float> both_;
  std::vector<OwnWord> own_names_;
};

void require_size(int64_t size, int64_t due, const char* name) {
  if (size != due) {
    fail(std::string(name) + " has " + to_text(size) + " values; " + to_text(due) + " are due");
  }
}

void require(const PairCorpus& corpus, const PairQuestions& questions,
             const PairCandidates& candidates, const Pairs& pairs) {
  const int64_t count = questions.vectors.rows, size = candidates.vectors.rows;
  if (corpus.passages < 0) fail("there are " + to_text(corpus.passages) + " passages");
  require_size(questions.totals.size, count, "totals");
  require_size(questions.offsets.size, count + 1, "offsets");
  require_offsets(questions.offsets, size, "offsets");
  require_size(questions.words.offsets.size, count + 1, "question_words' offsets");
  require_offsets(questions.words.offsets, questions.words.values.size, "question_words' offsets");
  require_size(candidates.scores.rows, size, "scores");
  require_size(candidates.words.offsets.size, size + 1, "words' offsets");
  require_offsets(candidates.words.offsets, candidates.words.values.size, "words' offsets");
  require_size(candidates.names.size, size + 1, "names");
  require_offsets(candidates.names, candidates.name_words.offsets.size - 1, "names");
  require_offsets(candidates.name_words.offsets, candidates.name_words.values.size,
                  "name_words' offsets");
  require_size(pairs.offsets.size, count + 1, "pair_offsets");
  require_offsets(pairs.offsets, pairs.firsts.size, "pair_offsets");
  require_size(pairs.seconds.size, pairs.firsts.size, "seconds");
  require_size(pairs.forth.size, pairs.firsts.size, "forth");
  require_size(pairs.back.size, pairs.firsts.size, "back");
  if (size > 0 && candidates.scores.cols != kScores) {
    fail("scores has " + to_text(candidates.scores.cols) + " columns, not 4");
  }
  if (size > 0 && candidates.vectors.cols != questions.vectors.cols) {
    fail("passages have vectors of " + to_text(candidates.vectors.cols) +
         " numbers, questions of " + to_text(questions.vectors.cols));
  }
  for (int64_t q = 0; q < count; ++q) {
    const int64_t own = questions.offsets[q + 1] - questions.offsets[q];
    for (int64_t p = pairs.offsets[q]; p < pairs.offsets[q + 1]; ++p) {
      const int64_t first = pairs.firsts[p], second = pairs.seconds[p];
      if (std::min(first, second) < 0 || std::max(first, second) >= own) {
        fail("pair " + to_text(p) + " is of places " + to_text(first) + " and " + to_text(second) +
             ", and its question has " + to_text(own) + " candidates");
      }
    }
  }
}

}  // namespace

void pair_features(const PairCorpus& corpus, const PairQuestions& questions,
                   const PairCandidates& candidates, const Pairs& pairs, int threads,
                   double* features) {
  require(corpus, questions, candidates, pairs);
  parallel_for(questions.vectors.rows, 1, threads, [&](int64_t begin, int64_t end, int) {
    Question question(corpus, questions, candidates);
    for (int64_t q = begin; q < end; ++q) question.compute(q, pairs, features);
  });
}

}  // namespace pytrace
