#include "beam/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "beam/beam_check.h"
#include "beam/beam_vector.h"
#include "common/dispatch.h"
#include "common/parallel.h"

namespace pytrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Up to here the best are taken one pass each; above, a partial sort is cheaper.
constexpr int64_t kMaxPasses = 16;

const BeamKernels& kernels() { return *PYTRACE_SELECT_ISA(kBeamKernels); }

template <typename T>
class Step {
 public:
  Step(const BeamInput& input, const Options<T>& options, const BeamOptions& how)
      : input_(input), options_(options), how_(how), few_(how.chains <= kMaxPasses) {
    candidates_.reserve(kMaxPasses + 1);
    ranks_.reserve(kMaxPasses + 1);
    positions_.resize(kMaxPasses);
  }

  // Appends the extensions of one question, best first; returns how many.
  int64_t run(int64_t question, std::vector<Extension>& extensions) {
    candidates_.clear();
    ranks_.clear();
    const int64_t last = input_.question_offsets[question + 1];
    for (int64_t chain = input_.question_offsets[question]; chain < last; ++chain) {
      const double score = input_.scores[chain];
      if (!(score < kInfinity)) {
        fail_for_score(chain, score);
      }
      if (input_.finished[chain] != 0) {
        carry_over(chain, true);
      } else if (!extend(chain)) {
        carry_over(chain, false);
      }
    }
    if (few_) {
      extensions.insert(extensions.end(), candidates_.begin(), candidates_.end());
      return static_cast<int64_t>(candidates_.size());
    }
    const auto count = static_cast<int64_t>(candidates_.size());
    const int64_t wanted = std::min(count, how_.chains);
    // Candidates with rank -inf come after all others, in order; `take` does not give them.
    const int64_t taken = take(ranks_, count, wanted);
    for (int64_t i = 0; i < taken; ++i)
      extensions.push_back(candidates_[index(positions_[index(i)])]);
    int64_t found = taken;
    for (int64_t i = 0; i < count && found < wanted; ++i) {
      const Extension& candidate = candidates_[index(i)];
      if (candidate.score != -kInfinity) continue;
      extensions.push_back(candidate);
      ++found;
    }
    return found;
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  double rank(double score, int64_t steps) const {
    if (how_.length_penalty == 0.0 || score == -kInfinity) return score;
    return score / std::pow(static_cast<double>(std::max<int64_t>(1, steps)), how_.length_penalty);
  }

  int64_t length(int64_t chain) const {
    return input_.lengths.size > 0 ? input_.lengths[chain] : 0;
  }

  void carry_over(int64_t chain, bool finished) {
    const double score = input_.scores[chain];
    add(rank(score, length(chain)), {chain, -1, score, 0.0, finished, !finished});
  }

  // Takes a candidate among those to choose from. Where few are kept, they are held in order, equal
  // ones by arrival; false if there is no place for this one, nor for any of no higher rank.
  bool add(double value, const Extension& candidate) {
    // An array that another thread writes to may turn NaN after it was checked; it must not reach
    // an order.
    if (std::isnan(value)) value = -kInfinity;
    if (!few_) {
      ranks_.push_back(value);
      candidates_.push_back(candidate);
      return true;
    }
    const bool full = static_cast<int64_t>(ranks_.size()) == how_.chains;
    if (full && !(value > ranks_.back())) return false;
    if (full) {
      ranks_.pop_back();
      candidates_.pop_back();
    }
    size_t place = ranks_.size();
    while (place > 0 && value > ranks_[place - 1]) --place;
    ranks_.insert(ranks_.begin() + static_cast<std::ptrdiff_t>(place), value);
    candidates_.insert(candidates_.begin() + static_cast<std::ptrdiff_t>(place), candidate);
    return true;
  }

  // False if the chain has no possible option.
  bool extend(int64_t chain) {
    const Span<const T> logits = options_.of(chain);
    widened_.resize(index(logits.size + kRoom));
    for (int64_t i = 0; i < logits.size; ++i) widened_[index(i)] = static_cast<double>(logits[i]);
    double largest = 0.0;
    double sum = 0.0;
    if (!kernels_.sum_exp(widened_.data(), logits.size, &largest, &sum))
      fail_for_logits(chain, logits);
    if (largest == -kInfinity) return false;
    const double log_sum = std::log(sum);
    const int64_t wanted = std::min(logits.size, how_.beams);
    // One at a time where few are kept: most chains are done before they have tried `beams`.
    const bool singly = few_ && wanted <= kMaxPasses;
    const int64_t taken = singly ? wanted : take(widened_, logits.size, wanted);
    bool any = false;
    for (int64_t i = 0; i < taken; ++i) {
      if (singly && take(widened_, logits.size, 1) == 0) break;
      const int64_t option = positions_[index(singly ? 0 : i)];
      // Not logit - (largest + log_sum): that sum would round away digits when logits are large.
      const double step = (static_cast<double>(logits[option]) - largest) - log_sum;
      if (how_.min_prob > 0.0 && std::exp(step) < how_.min_prob) break;
      const double score = input_.scores[chain] + step;
      any = true;
      if (!add(rank(score, length(chain) + 1),
               {chain, option, score, step, option == how_.terminate, false})) {
        break;
      }
    }
    return any;
  }

  // Leaves in positions_ where the `wanted` largest values stand, except for -inf; returns how
  // many.
  int64_t take(std::vector<double>& values, int64_t count, int64_t wanted) {
    if (wanted <= kMaxPasses) {
      values.resize(index(count + kRoom));
      positions_.resize(index(kMaxPasses));
      return kernels_.best(values.data(), count, wanted, positions_.data());
    }
    positions_.clear();
    for (int64_t i = 0; i < count; ++i) {
      if (values[index(i)] != -kInfinity) positions_.push_back(i);
    }
    wanted = std::min(wanted, static_cast<int64_t>(positions_.size()));
    std::partial_sort(positions_.begin(), positions_.begin() + wanted, positions_.end(),
                      [&](int64_t a, int64_t b) {
                        const double left = values[index(a)];
                        const double right = values[index(b)];
                        return left != right ? left > right : a < b;
                      });
    return wanted;
  }

  // What the vector half may write past the values.
  static constexpr int64_t kRoom = 8;

  const BeamInput& input_;
  const Options<T>& options_;
  const BeamOptions& how_;
  const bool few_;  // are kept, so that the best are found by insertion
  const BeamKernels& kernels_ = kernels();
  std::vector<double> widened_;
  std::vector<int64_t> positions_;
  std::vector<Extension> candidates_;
  std::vector<double> ranks_;
};

}  // namespace

template <typename T>
BeamResult expand(const BeamInput& input, const Options<T>& options, const BeamOptions& how,
                  int threads) {
  require_step(input, options, how);
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

double log_sum_exp(Span<const float> values) {
  float largest = 0.0F;
  double sum = 0.0;
  if (!kernels().sum_exp_floats(values.data, values.size, &largest, &sum)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<double>(largest) + std::log(sum);
}

template BeamResult expand(const BeamInput&, const Options<float>&, const BeamOptions&, int);
template BeamResult expand(const BeamInput&, const Options<double>&, const BeamOptions&, int);

}  // namespace pytrace
