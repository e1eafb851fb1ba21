#include "bags/bags.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bags/bags_vector.h"
#include "common/dispatch.h"
#include "common/parallel.h"

namespace pytrace {
namespace {

// Values that a thread adds up at least, some 30 us.
constexpr int64_t kLeastWork = 1 << 18;

// Bags whose rows are looked up before they are averaged, so that rows of the next bag can be asked
// for in time.
constexpr int64_t kBagsAtOnce = 64;

// The rows of some bags, one bag behind another, without tokens that do not count.
struct Gathered {
  std::vector<int64_t> rows;
  std::vector<float> factors;  // empty where all are 1
  std::vector<int64_t> ends{0};

  void clear() {
    rows.clear();
    factors.clear();
    ends.resize(1);
  }

  void add(const Bags& bags, int64_t vocabulary, int64_t at, int64_t token) {
    if (token < 0 || token >= vocabulary) {
      fail("tokens[" + to_text(at) + "] is " + to_text(token) + ", but there are " +
           to_text(vocabulary) + " tokens");
    }
    const Items& table = bags.table;
    const int64_t row = bags.mapping != nullptr ? (*bags.mapping)[token] : token;
    if (row == -1) return;
    if (row < 0 || row >= table.rows) {
      fail("mapping[" + to_text(token) + "] is " + to_text(row) + ", but the table has " +
           to_text(table.rows) + " rows; only -1 stands for none");
    }
    rows.push_back(row);
    if (bags.weights == nullptr && table.scale == nullptr) return;
    const float weight = bags.weights == nullptr ? 1.0f : (*bags.weights)[token];
    factors.push_back(table.scale == nullptr ? weight : weight * table.scale[row]);
  }
};

void divide_by_length(float* vector, int64_t dim) {
  double squares[8] = {};
  for (int64_t d = 0; d < dim; ++d) squares[d % 8] += double{vector[d]} * double{vector[d]};
  double total = 0;
  for (const double square : squares) total += square;
  if (total == 0) return;
  const double length = std::sqrt(total);
  for (int64_t d = 0; d < dim; ++d) vector[d] = static_cast<float>(double{vector[d]} / length);
}

}  // namespace

template <typename Token>
void embedding_bag(const Bags& bags, Span<const Token> tokens, bool normalize, int threads,
                   float* out) {
  const Items& table = bags.table;
  require_offsets(bags.offsets, tokens.size, "offsets");
  const int64_t vocabulary = bags.mapping != nullptr ? bags.mapping->size : table.rows;
  if (bags.weights != nullptr && bags.weights->size != vocabulary) {
    fail("weights has " + to_text(bags.weights->size) + " values, but there are " +
         to_text(vocabulary) + " tokens");
  }
  const BagKernels& kernels = *PYTRACE_SELECT_ISA(kBagKernels);
  const int64_t count = bags.offsets.size - 1;
  const double work = static_cast<double>(tokens.size + count) * static_cast<double>(table.cols);
  const double each = std::max(1.0, work / static_cast<double>(std::max<int64_t>(1, count)));
  const int64_t chunk = 1 + static_cast<int64_t>(kLeastWork / each);
  parallel_for(count, chunk, threads, [&](int64_t begin, int64_t end, int) {
    Gathered gathered;
    for (int64_t first = begin; first < end; first += kBagsAtOnce) {
      const int64_t last = std::min(end, first + kBagsAtOnce);
      gathered.clear();
      for (int64_t bag = first; bag < last; ++bag) {
        for (int64_t at = bags.offsets[bag]; at < bags.offsets[bag + 1]; ++at)
          gathered.add(bags, vocabulary, at, int64_t{tokens[at]});
        gathered.ends.push_back(static_cast<int64_t>(gathered.rows.size()));
      }
      for (int64_t bag = first; bag < last; ++bag) {
        const auto at = static_cast<size_t>(bag - first);
        const int64_t from = gathered.ends[at], size = gathered.ends[at + 1] - from;
        float* const vector = out + bag * table.cols;
        if (size == 0) {
          std::fill_n(vector, table.cols, 0.0f);
          continue;
        }
        const float* const factors =
            gathered.factors.empty() ? nullptr : gathered.factors.data() + from;
        kernels.mean(table, gathered.rows.data() + from, factors, size, gathered.ends.back() - from,
                     vector);
        if (normalize) divide_by_length(vector, table.cols);
      }
    }
  });
}

template void embedding_bag(const Bags&, Span<const int32_t>, bool, int, float*);
template void embedding_bag(const Bags&, Span<const int64_t>, bool, int, float*);

}  // namespace pytrace
