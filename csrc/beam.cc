#include "beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "parallel.h"

namespace pytrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Ranked {
  double rank;
  Extension extension;

  bool operator<(const Ranked& other) const {
    if (rank != other.rank) return rank > other.rank;
    return std::tie(extension.parent, extension.option) <
           std::tie(other.extension.parent, other.extension.option);
  }
};

struct Choice {
  double logit;
  int64_t option;

  bool operator<(const Choice& other) const {
    return logit != other.logit ? logit > other.logit : option < other.option;
  }
};

template <typename T>
class Step {
 public:
  Step(const BeamInput& input, const Options<T>& options, const BeamOptions& how)
      : input_(input), options_(options), how_(how) {}

  // Appends the extensions of one question, best first; returns how many.
  int64_t run(int64_t question, std::vector<Extension>& extensions) {
    results_.clear();
    for (int64_t chain = input_.question_offsets[question];
         chain < input_.question_offsets[question + 1]; ++chain) {
      if (std::isnan(input_.scores[chain]) || input_.scores[chain] == kInfinity) {
        fail("chain_scores[" + to_text(chain) + "] is " +
             (std::isnan(input_.scores[chain]) ? "NaN" : "infinite") +
             "; it must be a log-probability");
      }
      if (input_.finished[chain]) {
        carry_over(chain, true);
      } else if (!extend(chain)) {
        carry_over(chain, false);
      }
    }
    const auto kept = std::min<size_t>(results_.size(), static_cast<size_t>(how_.chains));
    std::partial_sort(results_.begin(), results_.begin() + static_cast<std::ptrdiff_t>(kept),
                      results_.end());
    for (size_t i = 0; i < kept; ++i) extensions.push_back(results_[i].extension);
    return static_cast<int64_t>(kept);
  }

 private:
  double rank(double score, int64_t steps) const {
    if (how_.length_penalty == 0.0) return score;
    return score / std::pow(static_cast<double>(std::max<int64_t>(1, steps)), how_.length_penalty);
  }

  int64_t length(int64_t chain) const {
    return input_.lengths.size > 0 ? input_.lengths[chain] : 0;
  }

  void carry_over(int64_t chain, bool finished) {
    const double score = input_.scores[chain];
    results_.push_back({rank(score, length(chain)), {chain, -1, score, 0.0, finished, !finished}});
  }

  // False if the chain has no possible option.
  bool extend(int64_t chain) {
    const Span<const T> logits = options_.of(chain);
    double largest = -kInfinity;
    choices_.clear();
    for (int64_t option = 0; option < logits.size; ++option) {
      const auto logit = static_cast<double>(logits[option]);
      if (std::isnan(logit) || logit == kInfinity) {
        fail("option_logits of chain " + to_text(chain) + ", option " + to_text(option) + ", is " +
             (std::isnan(logit) ? "NaN" : "infinite") +
             "; only -inf stands for an impossible option");
      }
      if (logit == -kInfinity) continue;
      largest = std::max(largest, logit);
      choices_.push_back({logit, option});
    }
    if (choices_.empty()) return false;
    double sum = 0.0;
    for (const Choice& choice : choices_) sum += std::exp(choice.logit - largest);
    const double log_sum = std::log(sum);
    const auto kept = std::min<size_t>(choices_.size(), static_cast<size_t>(how_.beams));
    std::partial_sort(choices_.begin(), choices_.begin() + static_cast<std::ptrdiff_t>(kept),
                      choices_.end());
    bool any = false;
    for (size_t i = 0; i < kept; ++i) {
      const Choice& choice = choices_[i];
      // Not logit - (largest + log_sum): that sum would round away digits when logits are large.
      const double step = (choice.logit - largest) - log_sum;
      if (how_.min_prob > 0.0 && std::exp(step) < how_.min_prob) break;
      const double score = input_.scores[chain] + step;
      results_.push_back(
          {rank(score, length(chain) + 1),
           {chain, choice.option, score, step, choice.option == how_.terminate, false}});
      any = true;
    }
    return any;
  }

  const BeamInput& input_;
  const Options<T>& options_;
  const BeamOptions& how_;
  std::vector<Choice> choices_;
  std::vector<Ranked> results_;
};

template <typename T>
void check(const BeamInput& input, const Options<T>& options, const BeamOptions& how) {
  const int64_t chains = input.scores.size;
  if (how.beams < 1) fail("beams is " + to_text(how.beams) + "; it must be at least 1");
  if (how.chains < 1) fail("chains is " + to_text(how.chains) + "; it must be at least 1");
  if (!(how.min_prob >= 0.0 && how.min_prob <= 1.0)) {
    fail("min_prob is " + std::to_string(how.min_prob) + "; it must be from 0 to 1");
  }
  if (!(how.length_penalty >= 0.0 && how.length_penalty < kInfinity)) {
    fail("length_penalty is " + std::to_string(how.length_penalty) +
         "; it must be at least 0 and finite");
  }
  if (input.finished.size != chains) {
    fail("finished has " + to_text(input.finished.size) + " values, but there are " +
         to_text(chains) + " chain_scores");
  }
  require_offsets(input.question_offsets, chains, "question_offsets");
  if (input.lengths.size > 0 || how.length_penalty != 0.0) {
    if (input.lengths.size != chains) {
      fail("lengths has " + to_text(input.lengths.size) + " values, but there are " +
           to_text(chains) + " chain_scores; length_penalty needs one a chain");
    }
    for (int64_t chain = 0; chain < chains; ++chain) {
      if (input.lengths[chain] < 0) {
        fail("lengths[" + to_text(chain) + "] is " + to_text(input.lengths[chain]) +
             "; it must be at least 0");
      }
    }
  }
  if (options.offsets.size > 0) {
    if (options.offsets.size != chains + 1) {
      fail("option_offsets has " + to_text(options.offsets.size) + " values, but " +
           to_text(chains) + " chains need " + to_text(chains + 1));
    }
    require_offsets(options.offsets, options.flat.size, "option_offsets");
  } else if (options.matrix.rows != chains) {
    fail("option_logits has " + to_text(options.matrix.rows) + " rows, but there are " +
         to_text(chains) + " chain_scores");
  }
}

}  // namespace

template <typename T>
BeamResult expand(const BeamInput& input, const Options<T>& options, const BeamOptions& how,
                  int threads) {
  check(input, options, how);
  const int64_t questions = input.question_offsets.size - 1;
  // Some 10 ns an option; a piece for another thread should take 50 us or more.
  const int team = resolve_threads(threads, std::min(questions, options.size() / 4096));
  const int64_t chunk =
      team == 1 ? std::max<int64_t>(1, questions) : (questions + team * 4 - 1) / (team * 4);
  const int64_t chunks = (questions + chunk - 1) / chunk;

  // Each chunk of questions gathers its own extensions; they are strung together in order
  // afterwards.
  std::vector<std::vector<Extension>> gathered(static_cast<size_t>(chunks));
  BeamResult out;
  out.offsets.assign(static_cast<size_t>(questions + 1), 0);
  parallel_for(chunks, 1, team, [&](int64_t begin, int64_t end, int) {
    Step<T> step(input, options, how);
    for (int64_t index = begin; index < end; ++index) {
      const int64_t last = std::min(questions, (index + 1) * chunk);
      for (int64_t question = index * chunk; question < last; ++question) {
        out.offsets[static_cast<size_t>(question + 1)] =
            step.run(question, gathered[static_cast<size_t>(index)]);
      }
    }
  });
  for (size_t question = 1; question < out.offsets.size(); ++question) {
    out.offsets[question] += out.offsets[question - 1];
  }
  if (chunks == 1) {
    out.extensions = std::move(gathered[0]);
    return out;
  }
  out.extensions.reserve(static_cast<size_t>(out.offsets.back()));
  for (const std::vector<Extension>& part : gathered) {
    out.extensions.insert(out.extensions.end(), part.begin(), part.end());
  }
  return out;
}

template BeamResult expand(const BeamInput&, const Options<float>&, const BeamOptions&, int);
template BeamResult expand(const BeamInput&, const Options<double>&, const BeamOptions&, int);

}  // namespace pytrace
