#include "cover/cover_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

namespace pytrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Deeper than any provable search gets; a problem that needs more is answered without a proof.
constexpr int kDeepest = 2000;

// What is left of a problem at a node, as lists: column c is a set, row r a feature, both numbered
// from 0.
struct Compact {
  std::vector<int32_t> set_of;
  std::vector<int32_t> feature_of;
  std::vector<double> weight;
  std::vector<int32_t> begin;  // of column c in `rows`
  std::vector<int32_t> rows;   // of all columns
  std::vector<int32_t> row_begin;
  std::vector<int32_t> columns;  // of all rows
};

class Search {
 public:
  Search(const CoverProblem& problem, const CoverLimits& limits)
      : sets_(problem.sets),
        features_(problem.features),
        set_words_((problem.sets + 63) / 64),
        feature_words_(problem.words),
        members_(problem.members),
        owners_(problem.features, problem.sets),
        weights_(static_cast<size_t>(problem.sets), 1.0),
        limits_(limits),
        steps_(weight_steps(problem)) {
    if (limits.seconds < 1e9) {
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(limits.seconds));
      limited_ = true;
    }
    for (int64_t s = 0; s < sets_; ++s) {
      each_bit(members(s), feature_words_, [&](int64_t f) { return set_bit(owners_[f], s), true; });
      if (problem.weights != nullptr) weights_[static_cast<size_t>(s)] = problem.weights[s];
    }
    multipliers_.assign(static_cast<size_t>(features_), 0.0);
    sizes_.resize(static_cast<size_t>(sets_));
    owner_counts_.resize(static_cast<size_t>(features_));
    restricted_ = BitRows(sets_, features_);
    holders_ = BitRows(features_, sets_);
  }

  // Searches for covers of `features` from `sets` lighter than `incumbent`; returns what no cover
  // is lighter than.
  double run(const std::vector<Word>& features, const std::vector<int64_t>& incumbent) {
    best_ = incumbent;
    best_weight_ = 0.0;
    for (int64_t s : incumbent) best_weight_ += weights_[static_cast<size_t>(s)];
    Level& root = level(0);
    std::copy(features.begin(), features.end(), root.features.begin());
    for (int64_t s = 0; s < sets_; ++s) set_bit(root.sets.data(), s);
    // Free sets cost nothing to take.
    double cost = 0.0;
    for (int64_t s = 0; s < sets_; ++s) {
      if (weights_[static_cast<size_t>(s)] == 0.0) take(s, &root, &cost);
    }
    const double bound = explore(0, cost, 0.0);
    return std::min(bound, best_weight_);
  }

  const std::vector<int64_t>& best() const { return best_; }
  double best_weight() const { return best_weight_; }
  int64_t nodes() const { return nodes_; }

  // A bound in steps of the weights.
  double rounded(double bound) const {
    return steps_.whole ? std::ceil(bound / steps_.step - 1e-6) * steps_.step : bound;
  }

 private:
  struct Level {
    std::vector<Word> features;  // still to cover
    std::vector<Word> sets;      // still to choose from
    std::vector<double> multipliers;
    std::vector<std::pair<double, int32_t>> branches;
  };

  const Word* members(int64_t s) const { return members_ + s * feature_words_; }

  Level& level(int depth) {
    while (static_cast<int>(levels_.size()) <= depth) {
      auto fresh = std::make_unique<Level>();
      fresh->features.resize(static_cast<size_t>(feature_words_));
      fresh->sets.resize(static_cast<size_t>(set_words_));
      levels_.push_back(std::move(fresh));
    }
    return *levels_[static_cast<size_t>(depth)];
  }

  bool expired() {
    if (expired_) return true;
    if (limited_ && Clock::now() >= deadline_) expired_ = true;
    if (limits_.stop && ++asked_ % 256 == 0) {
      const auto now = Clock::now();
      if (now - last_asked_ > std::chrono::milliseconds(20)) {
        last_asked_ = now;
        expired_ = limits_.stop() || expired_;
      }
    }
    return expired_;
  }

  // Whether a bound on all covers below a node rules out a lighter one than the best.
  bool hopeless(double bound) const {
    return steps_.whole ? bound > best_weight_ - steps_.step + 1e-6 * steps_.step
                        : bound >= best_weight_ - 1e-9 * std::max(best_weight_, 1e-300);
  }

  void take(int64_t s, Level* node, double* cost) {
    chosen_.push_back(s);
    *cost += weights_[static_cast<size_t>(s)];
    for (int64_t w = 0; w < feature_words_; ++w) {
      node->features[static_cast<size_t>(w)] &= ~members(s)[w];
    }
    clear_bit(node->sets.data(), s);
  }

  void record(double cost, const std::vector<int64_t>& more) {
    if (cost >= best_weight_) return;
    best_weight_ = cost;
    best_ = chosen_;
    best_.insert(best_.end(), more.begin(), more.end());
  }

  // Takes essential sets and drops dominated sets and features until nothing changes. False: no
  // cover here can be lighter.
  bool reduce(Level* node, double* cost) {
    Word* const features = node->features.data();
    Word* const sets = node->sets.data();
    for (bool changed = true; changed;) {
      changed = false;
      if (hopeless(*cost)) return false;
      // Essential: a feature that one set alone has.
      bool covered = true;
      each_bit(features, feature_words_, [&](int64_t f) {
        if (!has_bit(features, f)) return true;  // covered by a set taken in this walk
        Word* const holders = holders_[f];
        int found = 0;
        int64_t only = -1;
        for (int64_t w = 0; w < set_words_; ++w) {
          holders[w] = owners_[f][w] & sets[w];
          if (holders[w] != 0) {
            found += count_bits(holders[w]);
            only = w * 64 + __builtin_ctzll(holders[w]);
          }
        }
        owner_counts_[static_cast<size_t>(f)] = found;
        if (found == 0) return covered = false;
        if (found == 1) {
          take(only, node, cost);
          changed = true;
        }
        return true;
      });
      if (!covered) return false;
      if (changed) continue;
      if (empty(features, feature_words_)) return true;
      changed = drop_dominated_features(node);
      changed = drop_dominated_sets(node) || changed;
      if (expired()) return true;
    }
    return true;
  }

  // Feature g is needless if every set that has some other feature f has g too. Needs fresh
  // `holders_`.
  bool drop_dominated_features(Level* node) {
    Word* const features = node->features.data();
    each_bit(node->sets.data(), set_words_, [&](int64_t s) {
      int size = 0;
      for (int64_t w = 0; w < feature_words_; ++w) size += count_bits(members(s)[w] & features[w]);
      sizes_[static_cast<size_t>(s)] = size;
      return true;
    });
    bool changed = false;
    each_bit(features, feature_words_, [&](int64_t f) {
      if (!has_bit(features, f)) return true;
      // Only features of any one set that has f can be dominated by f.
      const Word* const holders = holders_[f];
      int64_t smallest = -1;
      int least = std::numeric_limits<int>::max();
      each_bit(holders, set_words_, [&](int64_t s) {
        if (sizes_[static_cast<size_t>(s)] < least) {
          least = sizes_[static_cast<size_t>(s)];
          smallest = s;
        }
        return least > 1;
      });
      if (least <= 1) return true;
      for (int64_t w = 0; w < feature_words_; ++w) {
        for (Word rest = members(smallest)[w] & features[w]; rest != 0; rest &= rest - 1) {
          const int64_t g = w * 64 + __builtin_ctzll(rest);
          if (g != f && subset(holders, holders_[g], set_words_)) {
            clear_bit(features, g);
            changed = true;
          }
        }
      }
      return true;
    });
    return changed;
  }

  // Set s is needless if another, no heavier, has all of its features that count. `owner_counts_`
  // may be too high by the sets dropped since: they only choose where to look.
  bool drop_dominated_sets(Level* node) {
    Word* const features = node->features.data();
    Word* const sets = node->sets.data();
    bool changed = false;
    each_bit(sets, set_words_, [&](int64_t s) {
      Word any = 0;
      for (int64_t w = 0; w < feature_words_; ++w)
        any |= restricted_[s][w] = members(s)[w] & features[w];
      if (any == 0) clear_bit(sets, s);  // no change for the others
      return true;
    });
    each_bit(sets, set_words_, [&](int64_t s) {
      // Another set with all its features has its rarest one.
      int64_t rarest = -1;
      int least = std::numeric_limits<int>::max();
      each_bit(restricted_[s], feature_words_, [&](int64_t f) {
        if (owner_counts_[static_cast<size_t>(f)] < least) {
          least = owner_counts_[static_cast<size_t>(f)];
          rarest = f;
        }
        return least > 1;
      });
      if (least <= 1) return true;
      const double weight = weights_[static_cast<size_t>(s)];
      bool dominated = false;
      for (int64_t w = 0; w < set_words_ && !dominated; ++w) {
        for (Word rest = owners_[rarest][w] & sets[w]; rest != 0; rest &= rest - 1) {
          const int64_t t = w * 64 + __builtin_ctzll(rest);
          const double other = weights_[static_cast<size_t>(t)];
          if (t == s || other > weight || !subset(restricted_[s], restricted_[t], feature_words_))
            continue;
          // Of twins the first stays.
          if (other == weight && s < t && subset(restricted_[t], restricted_[s], feature_words_))
            continue;
          dominated = true;
          break;
        }
      }
      if (dominated) {
        clear_bit(sets, s);
        changed = true;
      }
      return true;
    });
    return changed;
  }

  void compact(const Level& node) {
    Compact& c = compact_;
    c.set_of.clear();
    c.feature_of.clear();
    c.weight.clear();
    c.begin.assign(1, 0);
    c.rows.clear();
    row_of_.resize(static_cast<size_t>(features_));
    each_bit(node.features.data(), feature_words_, [&](int64_t f) {
      row_of_[static_cast<size_t>(f)] = static_cast<int32_t>(c.feature_of.size());
      c.feature_of.push_back(static_cast<int32_t>(f));
      return true;
    });
    c.row_begin.assign(c.feature_of.size() + 1, 0);
    each_bit(node.sets.data(), set_words_, [&](int64_t s) {
      c.set_of.push_back(static_cast<int32_t>(s));
      c.weight.push_back(weights_[static_cast<size_t>(s)]);
      for (int64_t w = 0; w < feature_words_; ++w) {
        for (Word rest = members(s)[w] & node.features[static_cast<size_t>(w)]; rest != 0;
             rest &= rest - 1) {
          const int32_t r = row_of_[static_cast<size_t>(w * 64 + __builtin_ctzll(rest))];
          c.rows.push_back(r);
          ++c.row_begin[static_cast<size_t>(r) + 1];
        }
      }
      c.begin.push_back(static_cast<int32_t>(c.rows.size()));
      return true;
    });
    std::partial_sum(c.row_begin.begin(), c.row_begin.end(), c.row_begin.begin());
    c.columns.resize(c.rows.size());
    cursor_.assign(c.row_begin.begin(), c.row_begin.end() - 1);
    for (size_t column = 0; column < c.set_of.size(); ++column) {
      for (int32_t at = c.begin[column]; at < c.begin[column + 1]; ++at) {
        c.columns[static_cast<size_t>(
            cursor_[static_cast<size_t>(c.rows[static_cast<size_t>(at)])]++)] =
            static_cast<int32_t>(column);
      }
    }
  }

  // A cover of the compact problem that the reduced costs suggest: columns that the relaxation
  // wants, then for each uncovered row the column of least reduced cost; then needless columns go,
  // dearest first.
  void suggest(double cost, const std::vector<double>& reduced) {
    const Compact& c = compact_;
    const size_t columns = c.set_of.size();
    times_.assign(c.feature_of.size(), 0);
    picked_.clear();
    const auto pick = [&](int32_t column) {
      picked_.push_back(column);
      for (int32_t at = c.begin[static_cast<size_t>(column)];
           at < c.begin[static_cast<size_t>(column) + 1]; ++at) {
        ++times_[static_cast<size_t>(c.rows[static_cast<size_t>(at)])];
      }
    };
    for (size_t column = 0; column < columns; ++column) {
      if (reduced[column] < -1e-9) pick(static_cast<int32_t>(column));
    }
    for (size_t r = 0; r < c.feature_of.size(); ++r) {
      if (times_[r] > 0) continue;
      int32_t best = -1;
      double least = kInfinity;
      for (int32_t at = c.row_begin[r]; at < c.row_begin[r + 1]; ++at) {
        const int32_t column = c.columns[static_cast<size_t>(at)];
        int fresh = 0;
        for (int32_t k = c.begin[static_cast<size_t>(column)];
             k < c.begin[static_cast<size_t>(column) + 1]; ++k) {
          fresh += times_[static_cast<size_t>(c.rows[static_cast<size_t>(k)])] == 0;
        }
        const double price = (std::max(reduced[static_cast<size_t>(column)], 0.0) + 1e-3) / fresh;
        if (price < least) {
          least = price;
          best = column;
        }
      }
      pick(best);
    }
    std::sort(picked_.begin(), picked_.end(), [&](int32_t x, int32_t y) {
      const double wx = c.weight[static_cast<size_t>(x)];
      const double wy = c.weight[static_cast<size_t>(y)];
      if (wx != wy) return wx > wy;
      const double rx = reduced[static_cast<size_t>(x)];
      const double ry = reduced[static_cast<size_t>(y)];
      return rx != ry ? rx > ry : x > y;
    });
    suggestion_.clear();
    for (int32_t column : picked_) {
      const int32_t first = c.begin[static_cast<size_t>(column)];
      const int32_t last = c.begin[static_cast<size_t>(column) + 1];
      bool needed = false;
      for (int32_t at = first; at < last && !needed; ++at) {
        needed = times_[static_cast<size_t>(c.rows[static_cast<size_t>(at)])] == 1;
      }
      if (needed) {
        suggestion_.push_back(c.set_of[static_cast<size_t>(column)]);
        cost += c.weight[static_cast<size_t>(column)];
      } else {
        for (int32_t at = first; at < last; ++at) {
          --times_[static_cast<size_t>(c.rows[static_cast<size_t>(at)])];
        }
      }
    }
    record(cost, suggestion_);
  }

  // Lagrangian bound of the compact problem by subgradient steps from the multipliers in
  // `multipliers_` (by feature), which become the best ones found; leaves the reduced costs in
  // `reduced_`. Stops once the node is hopeless.
  double relax(double cost, int iterations) {
    const Compact& c = compact_;
    const size_t rows = c.feature_of.size();
    const size_t columns = c.set_of.size();
    u_.resize(rows);
    trial_.resize(columns);
    slack_.resize(rows);
    reduced_.resize(columns);
    for (size_t r = 0; r < rows; ++r) u_[r] = multipliers_[static_cast<size_t>(c.feature_of[r])];
    double best = -kInfinity;
    double scale = 1.0;
    int stale = 0;
    for (int iteration = 0; iteration < iterations; ++iteration) {
      double value = 0.0;
      for (size_t r = 0; r < rows; ++r) {
        value += u_[r];
        slack_[r] = 1;
      }
      for (size_t column = 0; column < columns; ++column) {
        double reduced = c.weight[column];
        const int32_t first = c.begin[column];
        const int32_t last = c.begin[column + 1];
        for (int32_t at = first; at < last; ++at) {
          reduced -= u_[static_cast<size_t>(c.rows[static_cast<size_t>(at)])];
        }
        trial_[column] = reduced;
        if (reduced < 0.0) {
          value += reduced;
          for (int32_t at = first; at < last; ++at) {
            --slack_[static_cast<size_t>(c.rows[static_cast<size_t>(at)])];
          }
        }
      }
      if (value > best) {
        if (value > best + 1e-4 * (1.0 + std::fabs(best))) stale = 0;
        best = value;
        std::swap(reduced_, trial_);
        trial_.resize(columns);
        for (size_t r = 0; r < rows; ++r)
          multipliers_[static_cast<size_t>(c.feature_of[r])] = u_[r];
        if (iteration % 4 == 0) suggest(cost, reduced_);
        if (hopeless(cost + best)) break;
      }
      if (++stale > 8) {
        stale = 0;
        scale *= 0.6;
        if (scale < 0.01) break;
      }
      double norm = 0.0;
      for (size_t r = 0; r < rows; ++r) {
        // A multiplier at 0 does not move further down.
        if (u_[r] > 0.0 || slack_[r] > 0) norm += static_cast<double>(slack_[r]) * slack_[r];
      }
      if (norm == 0.0) break;
      const double target = best_weight_ - cost;
      const double step = scale * std::max(1.02 * target - value, 1e-3 * target) / norm;
      for (size_t r = 0; r < rows; ++r) u_[r] = std::max(0.0, u_[r] + step * slack_[r]);
      if (iteration % 64 == 63 && expired()) break;
    }
    return best;
  }

  // Explores all covers below a node whose features and sets stand in level(depth), given that none
  // there weighs less than `bound`. Returns a bound for those that were not explored, infinity if
  // all were.
  double explore(int depth, double cost, double bound) {
    const size_t mark = chosen_.size();
    const double open = visit(depth, cost, bound);
    chosen_.resize(mark);
    return open;
  }

  double visit(int depth, double cost, double bound) {
    Level& node = level(depth);
    ++nodes_;
    for (int round = 0;; ++round) {
      if (!reduce(&node, &cost)) return kInfinity;
      if (empty(node.features.data(), feature_words_)) {
        record(cost, {});
        return kInfinity;
      }
      bound = std::max(bound, cost);
      if (expired() || depth >= kDeepest) return bound;
      compact(node);
      if (depth == 0 && round == 0) start_multipliers();
      bound = std::max(bound, cost + relax(cost, patience(depth, round)));
      if (hopeless(bound)) return kInfinity;
      if (expired()) return bound;
      if (!fix_by_reduced_cost(cost, &node) || round >= 3) break;
    }
    compact(node);
    choose_branches(&node);
    node.multipliers = multipliers_;
    for (size_t b = 0; b < node.branches.size(); ++b) {
      if (hopeless(bound)) return kInfinity;  // the best may have improved meanwhile
      const int64_t s = node.branches[b].second;
      Level& child = level(depth + 1);
      std::copy(node.features.begin(), node.features.end(), child.features.begin());
      std::copy(node.sets.begin(), node.sets.end(), child.sets.begin());
      double child_cost = cost;
      const size_t mark = chosen_.size();
      take(s, &child, &child_cost);
      multipliers_ = node.multipliers;
      const double open = explore(depth + 1, child_cost, bound);
      chosen_.resize(mark);
      if (open < kInfinity)
        return bound;  // out of time, and the later branches are no better known than this node
      clear_bit(node.sets.data(), s);
    }
    return kInfinity;
  }

  // Subgradient steps that pay. In a small problem a step costs as much as a few nodes save; in a
  // larger one a good start at the root is what the whole tree lives on, and below it the
  // multipliers need little more.
  int patience(int depth, int round) const {
    const bool root = depth == 0 && round == 0;
    if (compact_.rows.size() < 200) return root ? 10 : 6;
    return root ? 300 : depth == 0 ? 100 : round == 0 ? 24 : 12;
  }

  // The feature that fewest sets have, and these sets by reduced cost.
  void choose_branches(Level* node) {
    const Compact& c = compact_;
    size_t chosen = 0;
    int32_t least = std::numeric_limits<int32_t>::max();
    double dearest = -1.0;
    for (size_t r = 0; r < c.feature_of.size(); ++r) {
      const int32_t size = c.row_begin[r + 1] - c.row_begin[r];
      const double multiplier = multipliers_[static_cast<size_t>(c.feature_of[r])];
      if (size < least || (size == least && multiplier > dearest)) {
        least = size;
        dearest = multiplier;
        chosen = r;
      }
    }
    node->branches.clear();
    for (int32_t at = c.row_begin[chosen]; at < c.row_begin[chosen + 1]; ++at) {
      const auto column = static_cast<size_t>(c.columns[static_cast<size_t>(at)]);
      double reduced = c.weight[column];
      for (int32_t k = c.begin[column]; k < c.begin[column + 1]; ++k) {
        const int32_t f = c.feature_of[static_cast<size_t>(c.rows[static_cast<size_t>(k)])];
        reduced -= multipliers_[static_cast<size_t>(f)];
      }
      node->branches.emplace_back(reduced, c.set_of[column]);
    }
    std::sort(node->branches.begin(), node->branches.end());
  }

  // Every row asks for the least that a covering column charges a row.
  void start_multipliers() {
    const Compact& c = compact_;
    for (size_t r = 0; r < c.feature_of.size(); ++r) {
      double least = kInfinity;
      for (int32_t at = c.row_begin[r]; at < c.row_begin[r + 1]; ++at) {
        const auto column = static_cast<size_t>(c.columns[static_cast<size_t>(at)]);
        least = std::min(least, c.weight[column] / (c.begin[column + 1] - c.begin[column]));
      }
      multipliers_[static_cast<size_t>(c.feature_of[r])] = least;
    }
  }

  // Drops sets that no lighter cover has and takes those that every lighter cover has. True if
  // anything changed.
  bool fix_by_reduced_cost(double& cost, Level* node) {
    const Compact& c = compact_;
    double value = 0.0;
    for (int32_t f : c.feature_of) value += multipliers_[static_cast<size_t>(f)];
    for (double reduced : reduced_) value += std::min(reduced, 0.0);
    bool changed = false;
    const double before = cost;
    for (size_t column = 0; column < c.set_of.size(); ++column) {
      if (!hopeless(before + value + std::fabs(reduced_[column]))) continue;
      const int64_t s = c.set_of[column];
      if (reduced_[column] > 0.0) {
        clear_bit(node->sets.data(), s);
      } else if (reduced_[column] < 0.0) {
        take(s, node, &cost);
      } else {
        continue;
      }
      changed = true;
    }
    return changed;
  }

  const int64_t sets_;
  const int64_t features_;
  const int64_t set_words_;
  const int64_t feature_words_;
  const Word* const members_;
  BitRows owners_;  // the sets of each feature
  std::vector<double> weights_;
  const CoverLimits& limits_;
  const WeightSteps steps_;
  Clock::time_point deadline_;
  Clock::time_point last_asked_ = Clock::now();
  bool limited_ = false;
  bool expired_ = false;
  int64_t asked_ = 0;

  std::vector<std::unique_ptr<Level>> levels_;
  std::vector<int64_t> chosen_;
  std::vector<int64_t> best_;
  double best_weight_ = 0.0;
  int64_t nodes_ = 0;

  // Scratch, valid within one visit.
  std::vector<int> sizes_;         // of the sets, in features still to cover
  std::vector<int> owner_counts_;  // of the features, in sets still to choose from
  BitRows restricted_;
  BitRows holders_;
  Compact compact_;
  std::vector<int32_t> row_of_;
  std::vector<int32_t> cursor_;
  std::vector<int32_t> times_;
  std::vector<int32_t> picked_;
  std::vector<int64_t> suggestion_;
  std::vector<double> multipliers_;
  std::vector<double> u_;
  std::vector<double> trial_;
  std::vector<double> reduced_;
  std::vector<int> slack_;
};

}  // namespace

FoundCover search_cover(const CoverProblem& problem, const CoverLimits& limits,
                        const std::vector<Word>& features, const std::vector<int64_t>& incumbent) {
  Search search(problem, limits);
  FoundCover found;
  const double bound = search.run(features, incumbent);
  found.sets = search.best();
  found.bound = std::max(0.0, search.rounded(bound));
  found.optimal = bound >= search.best_weight();
  found.nodes = search.nodes();
  return found;
}

}  // namespace pytrace
