// Compares the product path of top-k on the emulated card with plain loops on the host, bit for
// bit: all types and metrics, and inputs made so that lists overflow, bounds are tight, numbers
// leave the range of 16 bits, or scores are equal. Lists and waves are tiny, so that small inputs
// meet every case. Exits with 1 and a sentence where something differs. Its argument is one of the
// parts below; PYTRACE_EMULATION_SEED decides the random inputs too.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/runtime.h"
#include "cuda/topk_product.h"
#include "cuda_on_card.h"

namespace {

using pytrace::Metric;
using pytrace::cuda::Context;
using pytrace::cuda::DeviceRows;
using pytrace::cuda::Number;
using pytrace::cuda::ProductCounts;
using pytrace::cuda::ProductSizes;

constexpr unsigned long long kNone = ~0ull;

// ---- numbers -----------------------------------------------------------------------------------

float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float size = exponent == 31 ? (fraction != 0 ? std::nanf("") : HUGE_VALF)
                     : exponent == 0
                         ? std::ldexp(static_cast<float>(fraction), -24)
                         : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

// The nearest by search among all sizes, which rise with their bits.
uint16_t to_half(float value) {
  const float size = std::fabs(value);
  int low = 0;
  int high = 0x7c00;
  while (low + 1 < high) {
    const int middle = (low + high) / 2;
    (from_half(static_cast<uint16_t>(middle)) <= size ? low : high) = middle;
  }
  const double down = double{size} - double{from_half(static_cast<uint16_t>(low))};
  const double up = double{from_half(static_cast<uint16_t>(high))} - double{size};
  const int nearest = up < down ? high : low;
  return static_cast<uint16_t>(nearest | (std::signbit(value) ? 0x8000 : 0));
}

float from_bfloat16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t to_bfloat16(float value) {  // cut off; which numbers the tests use does not matter
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  return static_cast<uint16_t>(wide >> 16);
}

size_t bytes_of(Number type) {
  return type == Number::kFloat32 ? 4 : type == Number::kInt8 ? 1 : 2;
}

// Rows as a caller may give them: some values apart, from some byte on.
struct Rows {
  Number type = Number::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  size_t offset = 0;  // bytes
  std::vector<char> bytes;
  std::vector<float> values;  // what the bytes mean, without the scale
  std::vector<float> scale;   // none, one, or one a row

  float at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
};

Rows make_rows(Number type, int64_t rows, int64_t cols, int64_t gap, size_t offset,
               const std::function<float(int64_t, int64_t)>& value) {
  Rows made;
  made.type = type;
  made.rows = rows;
  made.cols = cols;
  made.stride = cols + gap;
  made.offset = offset;
  const size_t size = bytes_of(type);
  // Nothing stands behind the last row's last value, and NaN (or much) between rows.
  const int64_t count = rows == 0 ? 0 : (rows - 1) * made.stride + cols;
  made.bytes.assign(offset + static_cast<size_t>(count) * size, static_cast<char>(0x7f));
  if (type == Number::kFloat32) std::fill(made.bytes.begin(), made.bytes.end(), char(0xff));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      char* to = made.bytes.data() + offset + static_cast<size_t>(row * made.stride + col) * size;
      float wanted = value(row, col);
      if (type == Number::kFloat32) {
        std::memcpy(to, &wanted, sizeof wanted);
      } else if (type == Number::kInt8) {
        const auto whole =
            static_cast<int8_t>(std::lrint(std::fmin(127.0f, std::fmax(-128.0f, wanted))));
        std::memcpy(to, &whole, 1);
        wanted = static_cast<float>(whole);
      } else {
        const bool half = type == Number::kFloat16;
        const uint16_t bits = half ? to_half(wanted) : to_bfloat16(wanted);
        std::memcpy(to, &bits, 2);
        wanted = half ? from_half(bits) : from_bfloat16(bits);
      }
      made.values.push_back(wanted);
    }
  }
  return made;
}

// ---- what is expected --------------------------------------------------------------------------

// The order of sums that scores.cuh lays down: lane j takes packs j, j + 8, ...; then a tree.
template <typename Add>
float sum_in_order(int64_t dim, int64_t pack, const Add& add) {
  float sums[8] = {};
  for (int64_t col = 0; col < dim; ++col) {
    float& sum = sums[col / pack % 8];
    sum = add(col, sum);
  }
  for (int apart = 4; apart > 0; apart /= 2) {
    for (int lane = 0; lane < apart; ++lane) sums[lane] += sums[lane + apart];
  }
  return sums[0];
}

float length_of(const Rows& rows, int64_t row, int64_t pack) {
  return std::sqrt(sum_in_order(rows.cols, pack, [&](int64_t col, float sum) {
    return std::fmaf(rows.at(row, col), rows.at(row, col), sum);
  }));
}

float score(const Rows& queries, int64_t query, const Rows& items, int64_t item, Metric metric) {
  const auto pack = static_cast<int64_t>(16 / bytes_of(items.type));
  const float scale = items.scale.empty()
                          ? 1.0f
                          : items.scale[items.scale.size() == 1 ? 0 : static_cast<size_t>(item)];
  const float sum = sum_in_order(items.cols, pack, [&](int64_t col, float before) {
    const float a = queries.at(query, col);
    const float b = items.at(item, col);
    if (metric != Metric::kEuclidean) return std::fmaf(a, b, before);
    const float difference = std::fmaf(-scale, b, a);
    return std::fmaf(difference, difference, before);
  });
  if (metric == Metric::kInnerProduct) return sum * scale + 0.0f;
  if (metric == Metric::kEuclidean) return 0.0f - std::sqrt(sum);
  const float lengths = length_of(items, item, pack) * length_of(queries, query, 4);
  if (!std::isfinite(lengths)) return std::nanf("");
  const float cosine = lengths > 0.0f ? sum / lengths : 0.0f;
  if (std::isnan(cosine)) return cosine;
  return std::fmin(1.0f, std::fmax(-1.0f, cosine)) + 0.0f;
}

struct Case {
  std::string name;
  Rows queries;
  Rows items;
  Metric metric = Metric::kInnerProduct;
  int64_t k = 5;
  int64_t first_index = 0;
  std::vector<std::vector<int64_t>> excluded;
  ProductSizes sizes;
};

struct Result {
  std::vector<unsigned long long> keys;
  unsigned long long not_finite = kNone;
  ProductCounts counts;
};

unsigned long long key_of(float value, int64_t index) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value == 0.0f) bits = 0;
  bits = value < 0.0f ? ~bits : bits + 0x80000000u;
  return static_cast<unsigned long long>(bits) << 32 | (0xffffffffu - static_cast<uint32_t>(index));
}

Result expected(const Case& test) {
  Result result;
  for (int64_t query = 0; query < test.queries.rows; ++query) {
    std::vector<unsigned long long> keys;
    for (int64_t item = 0; item < test.items.rows; ++item) {
      const float value = score(test.queries, query, test.items, item, test.metric);
      const int64_t index = test.first_index + item;
      if (!std::isfinite(value)) {
        result.not_finite =
            std::min(result.not_finite, static_cast<unsigned long long>(query) << 32 |
                                            static_cast<unsigned long long>(index));
        continue;
      }
      if (!test.excluded.empty()) {
        const auto& hidden = test.excluded[static_cast<size_t>(query)];
        if (std::count(hidden.begin(), hidden.end(), index) > 0) continue;
      }
      keys.push_back(key_of(value, index));
    }
    std::sort(keys.begin(), keys.end(), std::greater<>());
    keys.resize(static_cast<size_t>(test.k), 0);
    result.keys.insert(result.keys.end(), keys.begin(), keys.end());
  }
  return result;
}

// ---- what is found -----------------------------------------------------------------------------

DeviceRows view(const Rows& rows, const OnCard& data, const OnCard& scale) {
  DeviceRows seen;
  seen.data = data.at<void>();
  seen.rows = rows.rows;
  seen.cols = rows.cols;
  seen.stride = rows.stride;
  seen.type = rows.type;
  seen.scale = rows.scale.empty() ? nullptr : scale.at<float>();
  seen.one_scale = rows.scale.size() == 1;
  return seen;
}

Result found(const Case& test, Context& context) {
  const OnCard queries(test.queries.bytes.data(), test.queries.bytes.size(), test.queries.offset);
  const OnCard items(test.items.bytes.data(), test.items.bytes.size(), test.items.offset);
  const OnCard scale = on_card(test.items.scale);
  std::vector<int64_t> rows;
  std::vector<int64_t> offsets{0};
  for (const auto& hidden : test.excluded) {
    rows.insert(rows.end(), hidden.begin(), hidden.end());
    offsets.push_back(static_cast<int64_t>(rows.size()));
  }
  const OnCard hidden_rows = on_card(rows);
  const OnCard hidden_offsets = on_card(offsets);
  Result result;
  result.keys.assign(static_cast<size_t>(test.queries.rows * test.k), 1);
  const OnCard keys = on_card(result.keys);
  const OnCard not_finite(&result.not_finite, sizeof result.not_finite);

  pytrace::cuda::ProductInput input;
  input.queries = view(test.queries, queries, scale);
  input.queries.scale = nullptr;
  input.items = view(test.items, items, scale);
  input.first_index = test.first_index;
  if (!test.excluded.empty())
    input.excluded = {hidden_rows.at<int64_t>(), hidden_offsets.at<int64_t>()};
  input.k = test.k;
  input.metric = test.metric;
  pytrace::cuda::Workspace workspace;
  const auto pieces = pytrace::cuda::product_workspace(workspace, test.queries.rows, input.items,
                                                       test.k, test.sizes);
  context.lay_out(workspace);
  result.counts = pytrace::cuda::product_top_k(input, pieces, keys.at<unsigned long long>(),
                                               not_finite.at<unsigned long long>(), context);
  const auto copy = [](void* to, const void* from, size_t bytes) {
    pytrace::cuda::require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, nullptr),
                           "the test's copy");
  };
  copy(result.keys.data(), keys.at<void>(), result.keys.size() * 8);
  copy(&result.not_finite, not_finite.at<void>(), 8);
  return result;
}

int checked = 0;
int failures = 0;

void complain(const Case& test, const std::string& what) {
  std::printf("%s: %s\n", test.name.c_str(), what.c_str());
  ++failures;
}

Result check(const Case& test, Context& context) {
  ++checked;
  Result got;
  try {
    got = found(test, context);
  } catch (const std::exception& error) {
    complain(test, error.what());
    return got;
  }
  const Result wanted = expected(test);
  if ((got.not_finite == kNone) != (wanted.not_finite == kNone)) {
    complain(test, wanted.not_finite == kNone ? "finite scores were refused"
                                              : "a score that is not finite was not found");
    return got;
  }
  if (wanted.not_finite != kNone) {
    const auto query = static_cast<int64_t>(got.not_finite >> 32);
    const int64_t item = static_cast<int64_t>(got.not_finite & 0xffffffffu) - test.first_index;
    if (query >= test.queries.rows || item < 0 || item >= test.items.rows ||
        std::isfinite(score(test.queries, query, test.items, item, test.metric))) {
      complain(test, "a pair was refused whose score is finite");
    }
    return got;
  }
  for (size_t i = 0; i < wanted.keys.size(); ++i) {
    if (got.keys[i] == wanted.keys[i]) continue;
    char text[160];
    std::snprintf(text, sizeof text, "query %zu, place %zu: key %016llx instead of %016llx",
                  i / static_cast<size_t>(test.k), i % static_cast<size_t>(test.k), got.keys[i],
                  wanted.keys[i]);
    complain(test, text);
    break;
  }
  return got;
}

// ---- the inputs --------------------------------------------------------------------------------

std::mt19937& dice() {
  static const char* const seed = std::getenv("PYTRACE_EMULATION_SEED");
  static std::mt19937 engine(20261123 +
                             (seed == nullptr ? 0u : static_cast<unsigned>(std::atoi(seed))));
  return engine;
}

float normal() {
  static std::normal_distribution<float> distribution;
  return distribution(dice());
}

int64_t below(int64_t count) {
  return static_cast<int64_t>(dice()() % static_cast<uint64_t>(count));
}

ProductSizes tiny() {
  ProductSizes sizes;
  sizes.capacity = 64;
  sizes.first = 40;
  sizes.growth = 4;
  return sizes;
}

const char* name_of(Number type) {
  switch (type) {
    case Number::kFloat32:
      return "float32";
    case Number::kFloat16:
      return "float16";
    case Number::kBfloat16:
      return "bfloat16";
    case Number::kInt8:
      break;
  }
  return "int8";
}

const char* name_of(Metric metric) {
  return metric == Metric::kInnerProduct ? "ip" : metric == Metric::kCosine ? "cosine" : "l2";
}

constexpr Number kTypes[] = {Number::kFloat32, Number::kFloat16, Number::kBfloat16, Number::kInt8};
constexpr Metric kMetrics[] = {Metric::kInnerProduct, Metric::kCosine, Metric::kEuclidean};

struct Shape {
  int64_t queries;
  int64_t items;
  int64_t dim;
};

Case random_case(Number type, Metric metric, const Shape& shape) {
  Case test;
  test.name = std::string("random ") + name_of(type) + " " + name_of(metric) + " " +
              std::to_string(shape.queries) + " x " + std::to_string(shape.items) + " x " +
              std::to_string(shape.dim);
  const float size = type == Number::kInt8 ? 40.0f : 1.0f;
  // Queries take each of their types, and rows any place.
  test.queries = make_rows(kTypes[below(3)], shape.queries, shape.dim, below(3), 0,
                           [](int64_t, int64_t) { return normal(); });
  const size_t offset = bytes_of(type) * static_cast<size_t>(below(2) == 0 ? 0 : below(8));
  test.items = make_rows(type, shape.items, shape.dim, below(2) == 0 ? 0 : below(9), offset,
                         [&](int64_t, int64_t) { return size * normal(); });
  if (type == Number::kInt8 && below(3) > 0) {
    test.items.scale.resize(below(2) == 0 ? 1 : static_cast<size_t>(shape.items));
    for (float& scale : test.items.scale) scale = 0.01f * static_cast<float>(1 + below(5));
  }
  test.metric = metric;
  test.k = 1 + below(12);
  test.first_index = below(2) * 1000;
  test.sizes = tiny();
  if (below(2) == 0) {
    for (int64_t query = 0; query < shape.queries; ++query) {
      std::vector<int64_t> hidden;
      for (int64_t item = 0; item < shape.items; ++item) {
        if (below(10) == 0) hidden.push_back(test.first_index + item);
      }
      test.excluded.push_back(hidden);
    }
  }
  return test;
}

// Items that rows of a matrix give: float32 unless said otherwise.
Case made_case(const std::string& name, Metric metric, const Shape& shape, Number type,
               const std::function<float(int64_t, int64_t)>& query,
               const std::function<float(int64_t, int64_t)>& item) {
  Case test;
  test.name = name + " " + name_of(type) + " " + name_of(metric);
  test.queries = make_rows(Number::kFloat32, shape.queries, shape.dim, 0, 0, query);
  test.items = make_rows(type, shape.items, shape.dim, 0, 0, item);
  test.metric = metric;
  test.sizes = tiny();
  return test;
}

std::vector<Case> structured_cases() {
  std::vector<Case> cases;
  const Shape shape{4, 500, 16};
  const auto any = [](int64_t, int64_t) { return normal(); };
  const auto add = [&](Case test) { cases.push_back(std::move(test)); };
  for (Metric metric : kMetrics) {
    for (Number type : {Number::kFloat32, Number::kFloat16}) {
      add(made_case("all equal", metric, shape, type, any,
                    [](int64_t, int64_t col) { return static_cast<float>(col % 3) - 0.75f; }));
      add(made_case("zero items", metric, shape, type, any, [](int64_t, int64_t) { return 0.0f; }));
      add(made_case("some zeros", metric, shape, type, any,
                    [](int64_t row, int64_t) { return row % 3 == 0 ? normal() : 0.0f; }));
      // The first visited are hidden, so that what comes later has lower indices and equal scores.
      Case zero = made_case(
          "zero queries", metric, shape, type,
          [](int64_t row, int64_t) { return row % 2 == 0 ? 0.0f : normal(); }, any);
      zero.excluded.assign(4, std::vector<int64_t>(90));
      for (auto& hidden : zero.excluded) std::iota(hidden.begin(), hidden.end(), 0);
      add(std::move(zero));
      add(made_case("duplicates", metric, shape, type, any, [](int64_t row, int64_t col) {
        return std::sin(static_cast<float>(row % 7 * 31 + col * 5));
      }));
      // Scores that rise from item to item, by less than 16 bits can tell apart.
      add(made_case(
          "hardly rising", metric, shape, type,
          [](int64_t, int64_t col) { return col == 0 ? 1.0f : 0.01f; },
          [](int64_t row, int64_t col) {
            return col == 0 ? 1.0f + 1e-6f * static_cast<float>(row) : 0.5f;
          }));
    }
    for (float size : {1e-18f, 3e-15f, 1e-9f, 6e-8f, 1e4f, 65504.0f, 1e9f, 3e14f, 1e17f}) {
      char name[32];
      std::snprintf(name, sizeof name, "size %g", double{size});
      const auto sized = [=](int64_t, int64_t) { return size * normal(); };
      add(made_case(name, metric, {3, 250, 9}, Number::kFloat32, any, sized));
      add(made_case(std::string("query ") + name, metric, {3, 250, 9}, Number::kFloat16, sized,
                    any));
    }
    add(made_case("subnormal halves", metric, {4, 400, 8}, Number::kFloat16, any,
                  [](int64_t, int64_t) { return 3e-5f * normal(); }));
    add(made_case("largest halves", metric, {4, 400, 8}, Number::kFloat16, any,
                  [](int64_t, int64_t) { return below(2) == 0 ? 65504.0f : -60000.0f; }));
    for (Number type : {Number::kFloat32, Number::kBfloat16}) {
      add(made_case(
          "wide range", metric, shape, type,
          [](int64_t, int64_t) { return normal() * std::pow(10.0f, 3.0f * normal()); },
          [](int64_t, int64_t) { return normal() * std::pow(10.0f, 4.0f * normal()); }));
    }
    // Sums in which large parts cancel.
    add(made_case(
        "cancelling", metric, {4, 500, 40}, Number::kFloat32,
        [](int64_t, int64_t col) { return col % 2 == 0 ? 1000.0f : 1000.0f; },
        [](int64_t row, int64_t col) {
          const float sign = col % 2 == 0 ? 1.0f : -1.0f;
          return sign * (100.0f + static_cast<float>(row % 13)) + 1e-3f * normal();
        }));
    // All but a few items hidden.
    Case hidden = made_case("nearly all excluded", metric, {3, 400, 8}, Number::kFloat16, any, any);
    for (int64_t query = 0; query < 3; ++query) {
      std::vector<int64_t> rows;
      for (int64_t item = 0; item < 400; ++item) {
        if (item % 100 != 7 * query) rows.push_back(item);
      }
      hidden.excluded.push_back(rows);
    }
    add(std::move(hidden));
    Case groups = made_case("groups of queries, short waves", metric, {150, 300, 8}, Number::kInt8,
                            any, [](int64_t, int64_t) { return 50.0f * normal(); });
    groups.sizes.group = 140;
    groups.sizes.wave = 100;
    add(std::move(groups));
    add(made_case("384 columns", metric, {5, 300, 384}, Number::kFloat16, any, any));
    add(made_case("no columns", metric, {2, 70, 0}, Number::kFloat32, any, any));
    Case many = made_case("many of few", metric, {3, 400, 24}, Number::kBfloat16, any, any);
    many.k = 500;
    many.sizes = {};
    add(std::move(many));
    many = made_case("a long sort", metric, {3, 900, 24}, Number::kFloat16, any, any);
    many.k = 300;
    many.sizes.first = 512;
    many.sizes.capacity = 600;
    add(std::move(many));
    for (float bad : {std::nanf(""), HUGE_VALF, 3e38f}) {
      add(made_case("an item of " + std::to_string(bad), metric, {3, 400, 16}, Number::kFloat32,
                    any, [=](int64_t row, int64_t) { return row == 333 ? bad : normal(); }));
      add(made_case(
          "a query of " + std::to_string(bad), metric, {3, 200, 16}, Number::kFloat16,
          [=](int64_t row, int64_t) { return row == 2 ? bad : normal(); }, any));
    }
  }
  return cases;
}

// Items sorted by their score, so that the best come last, in chunks that visits spread: every
// query's lists overflow where the order defeats the spreading.
Case defeating_case(Number type, Metric metric) {
  constexpr int64_t kItems = 640;
  const pytrace::cuda::Visits visits(kItems);
  std::vector<int64_t> position(kItems);
  for (int64_t at = 0; at < kItems; ++at) position[static_cast<size_t>(visits.row(at))] = at;
  Case test = made_case(
      "rising in the order of visits", metric, {6, kItems, 8}, type,
      [](int64_t row, int64_t) { return 1.0f + 0.1f * static_cast<float>(row); },
      [&](int64_t row, int64_t col) {
        const auto at = static_cast<float>(position[static_cast<size_t>(row)]);
        if (metric == Metric::kCosine) return col < 4 ? 1.0f : at / kItems;
        return (at + 1.0f) / kItems;
      });
  test.k = 7;
  return test;
}

// The filter must filter: hits are about those that a wave is expected to have.
void check_hits(Metric metric, Number type, Context& context) {
  Case test = made_case(
      "hits", metric, {100, 6000, 32}, type, [](int64_t, int64_t) { return normal(); },
      [](int64_t, int64_t) { return normal(); });
  test.k = 10;
  test.sizes = {};
  test.sizes.first = 200;
  test.sizes.growth = 5;
  const Result got = check(test, context);
  double wanted = 200.0;
  for (double seen = 200.0; seen < 6000.0; seen *= 5.0)
    wanted += 10.0 * (std::fmin(5.0 * seen, 6000.0) / seen - 1.0);
  const double hits = static_cast<double>(got.counts.hits) / 100.0;
  if (hits < 0.85 * wanted || hits > 1.15 * wanted || got.counts.passes != 1) {
    char text[120];
    std::snprintf(text, sizeof text, "%.1f hits a query in %d passes; %.1f and 1 were expected",
                  hits, static_cast<int>(got.counts.passes), wanted);
    complain(test, text);
  }
}

// Where all scores are equal and known to be, indices decide, and no list overflows.
void check_zeros(Metric metric, Context& context) {
  Case test = made_case(
      "zero queries and items", metric, {3, 500, 8}, Number::kFloat16,
      [](int64_t, int64_t) { return 0.0f; }, [](int64_t, int64_t) { return 0.0f; });
  const Result got = check(test, context);
  if (got.counts.hits != 3 * test.sizes.first) complain(test, "more than the first items hit");
}

void check_passes(Context& context) {
  int64_t most = 0;
  for (Number type : kTypes) {
    for (Metric metric : kMetrics) {
      const Result got = check(defeating_case(type, metric), context);
      most = std::max(most, got.counts.passes);
    }
  }
  if (most < 2) {
    std::printf("no input made a list overflow: nothing was shown\n");
    ++failures;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string part = count == 2 ? arguments[1] : "";
  Context context(0);
  const Shape shapes[] = {{1, 1, 1},     {2, 33, 7},   {3, 257, 70}, {17, 300, 8},
                          {130, 90, 31}, {5, 600, 33}, {1, 520, 64}};
  if (part == "random") {
    for (Number type : kTypes) {
      for (Metric metric : kMetrics) {
        for (const Shape& shape : shapes) check(random_case(type, metric, shape), context);
      }
    }
  } else if (part == "structured") {
    for (const Case& test : structured_cases()) check(test, context);
  } else if (part == "passes") {
    check_passes(context);
  } else if (part == "hits") {
    for (Metric metric : kMetrics) {
      check_zeros(metric, context);
      check_hits(metric, Number::kFloat16, context);
      check_hits(metric, Number::kFloat32, context);
    }
  } else {
    std::printf("which part: random, structured, passes or hits?\n");
    return 1;
  }
  std::printf("%d cases, %d faults\n", checked, failures);
  return failures == 0 ? 0 : 1;
}
