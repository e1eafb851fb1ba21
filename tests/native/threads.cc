// Runs every kernel that uses threads with several of them and compares each result with one
// thread's own, bit for bit. Built with -fsanitize=thread it also finds races; with --race it makes
// one, to prove that they are found.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "align/align.h"
#include "bags/bags.h"
#include "beam/beam.h"
#include "common/dispatch.h"
#include "common/parallel.h"
#include "cover/cover.h"
#include "fuzzy/fuzzy.h"
#include "late_interaction/max_sim.h"
#include "names/names.h"
#include "pairs/pairs.h"
#include "spans/spans.h"
#include "topk/topk.h"
#include "topk/topk_rows.h"
#include "walk/walk.h"
#include "words/word_hashes.h"
#include "words/word_lists.h"
#include "words/words.h"

namespace {

using pytrace::Span;

template <typename T>
Span<const T> view(const std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

using Bytes = std::string;

template <typename T>
void append(Bytes* to, const std::vector<T>& values) {
  to->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::mt19937_64& dice() {
  static std::mt19937_64 state(20261122);
  return state;
}

template <typename T>
std::vector<T> integers(size_t count, int64_t end) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(dice()() % static_cast<uint64_t>(end));
  return values;
}

std::vector<float> reals(size_t count) {
  std::vector<float> values(count);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(dice());
  return values;
}

// Offsets of `parts` parts of equal size.
std::vector<int64_t> offsets(int64_t parts, int64_t size) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i <= parts; ++i) values.push_back(i * size);
  return values;
}

// Large enough that each kernel hands work to its threads.
struct Inputs {
  static constexpr int64_t kQueries = 40;
  static constexpr int64_t kItems = 6000;
  static constexpr int64_t kDim = 48;
  std::vector<float> queries = reals(kQueries * kDim);
  std::vector<float> items = reals(kItems * kDim);
  std::vector<int64_t> item_offsets = offsets(kQueries, kItems / kQueries);
  std::vector<int64_t> excluded = integers<int64_t>(3 * kQueries, kItems);
  std::vector<int64_t> exclude_offsets = offsets(kQueries, 3);

  std::vector<std::vector<uint16_t>> characters;
  std::vector<pytrace::Text> texts;

  static constexpr int64_t kPaths = 400;
  std::vector<int32_t> candidates = integers<int32_t>(4 * kPaths, 6);
  std::vector<int32_t> references = integers<int32_t>(40 * kPaths, 6);
  std::vector<int64_t> candidate_offsets = offsets(kPaths, 4);
  std::vector<int64_t> reference_offsets = offsets(2 * kPaths, 20);
  std::vector<int64_t> groups = offsets(kPaths, 2);

  static constexpr int64_t kChains = 1200;
  static constexpr int64_t kOptions = 31;
  std::vector<float> logits = reals(kChains * kOptions);
  std::vector<double> chain_scores = std::vector<double>(kChains, -1.0);
  std::vector<int64_t> question_offsets = offsets(kChains / 5, 5);

  Inputs() {
    for (size_t i = 0; i < 80; ++i) characters.push_back(integers<uint16_t>(1 + i * 3, 300));
    for (const auto& text : characters) {
      texts.push_back({text.data(), static_cast<int64_t>(text.size()), 2, false});
    }
  }
};

pytrace::Matrix<const float> rows_of(const std::vector<float>& values) {
  return {values.data(), static_cast<int64_t>(values.size()) / Inputs::kDim, Inputs::kDim,
          Inputs::kDim};
}

pytrace::Items items_of(const Inputs& in) {
  return {in.items.data(), Inputs::kItems, Inputs::kDim, Inputs::kDim, pytrace::ItemType::kFloat32,
          nullptr};
}

Bytes top_k(const Inputs& in, int threads, bool ragged) {
  pytrace::TopKInput input;
  input.queries = rows_of(in.queries);
  input.items = items_of(in);
  input.excluded = view(in.excluded);
  input.exclude_offsets = view(in.exclude_offsets);
  if (ragged) input.item_offsets = view(in.item_offsets);
  std::vector<float> scores(Inputs::kQueries * 10);
  std::vector<int64_t> indices(Inputs::kQueries * 10);
  pytrace::top_k(input, 10, pytrace::Metric::kInnerProduct, threads, scores.data(), indices.data());
  Bytes out;
  append(&out, scores);
  append(&out, indices);
  return out;
}

// One query against all items, which are dealt out.
Bytes one_query(const Inputs& in, int threads) {
  const std::vector<float> many = [&] {
    std::vector<float> values;
    for (int copy = 0; copy < 8; ++copy) {
      values.insert(values.end(), in.items.begin(), in.items.end());
    }
    return values;
  }();
  pytrace::TopKInput input;
  input.queries = {in.queries.data(), 1, Inputs::kDim, Inputs::kDim};
  input.items = items_of(in);
  input.items.data = many.data();
  input.items.rows = 8 * Inputs::kItems;
  std::vector<float> scores(20);
  std::vector<int64_t> indices(20);
  pytrace::top_k(input, 20, pytrace::Metric::kEuclidean, threads, scores.data(), indices.data());
  Bytes out;
  append(&out, scores);
  append(&out, indices);
  return out;
}

// Questions of five vectors and documents of ten; with candidates each question sees eight.
Bytes max_sim(const Inputs& in, int threads, bool candidates) {
  constexpr int64_t kQuestions = Inputs::kQueries / 5, kDocuments = Inputs::kItems / 10;
  const auto query_offsets = offsets(kQuestions, 5), document_offsets = offsets(kDocuments, 10);
  const auto candidate_offsets = offsets(kQuestions, 8);
  std::vector<int64_t> listed(8 * kQuestions);
  for (size_t i = 0; i < listed.size(); ++i) listed[i] = static_cast<int64_t>(i * 7) % kDocuments;
  pytrace::MaxSimInput input;
  input.queries = rows_of(in.queries);
  input.documents = items_of(in);
  input.query_offsets = view(query_offsets);
  input.document_offsets = view(document_offsets);
  std::vector<float> scores(kQuestions * kDocuments), best(kQuestions * 10);
  std::vector<int64_t> indices(kQuestions * 10);
  if (candidates) {
    input.candidates = view(listed);
    input.candidate_offsets = view(candidate_offsets);
  }
  pytrace::check_max_sim(input);
  pytrace::max_sim(input, threads, scores.data());
  pytrace::max_sim_top_k(input, 10, threads, best.data(), indices.data());
  Bytes out;
  append(&out, scores);
  append(&out, best);
  append(&out, indices);
  return out;
}

Bytes embedding_bag(const Inputs& in, int threads) {
  constexpr int64_t kBags = 4000;
  std::vector<int32_t> tokens(kBags * 9);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>((i * 7919) % Inputs::kItems);
  const auto ends = offsets(kBags, 9);
  pytrace::Bags bags;
  bags.table = items_of(in);
  bags.offsets = view(ends);
  std::vector<float> out(kBags * Inputs::kDim);
  pytrace::embedding_bag(bags, view(tokens), true, threads, out.data());
  Bytes bytes;
  append(&bytes, out);
  return bytes;
}

// Windows of three passages with separators between them.
Bytes top_spans(const Inputs& in, int threads) {
  constexpr int64_t kWindows = 24, kTokens = 96, kWidth = 8, kTop = 10;
  std::vector<int32_t> owners(kWindows * kTokens), places(2 * kWindows * kTokens);
  for (size_t i = 0; i < owners.size(); ++i) {
    const auto token = static_cast<int32_t>(i % kTokens);
    owners[i] = token % 32 == 0 ? -1 : token / 32;
    places[2 * i] = 4 * token;
    places[2 * i + 1] = 4 * token + 3;
  }
  const float* const values = in.items.data();
  const pytrace::SpanWindows windows{kWindows,    kTokens, kWidth,        values,
                                     values + 99, values,  owners.data(), places.data()};
  std::vector<float> scores(kWindows * kTop);
  std::vector<int32_t> first(scores.size()), last(scores.size());
  pytrace::top_spans(windows, {kTop, 30, 300}, threads, scores.data(), first.data(), last.data());
  Bytes out;
  append(&out, scores);
  append(&out, first);
  append(&out, last);
  return out;
}

Bytes similarity(const Inputs& in, int threads) {
  std::vector<float> out(Inputs::kQueries * Inputs::kItems);
  pytrace::similarity(rows_of(in.queries), items_of(in), pytrace::Metric::kCosine, threads,
                      out.data());
  Bytes bytes;
  append(&bytes, out);
  return bytes;
}

Bytes normalize(const Inputs& in, int threads) {
  std::vector<float> out(in.items.size());
  pytrace::normalize(rows_of(in.items), threads, out.data());
  Bytes bytes;
  append(&bytes, out);
  return bytes;
}

Bytes cdist(const Inputs& in, int threads, pytrace::FuzzyScorer scorer) {
  std::vector<double> out(in.texts.size() * in.texts.size());
  pytrace::FuzzyCdist how;
  how.scorer = scorer;
  how.threads = threads;
  pytrace::fuzzy_cdist(view(in.texts), view(in.texts), how, pytrace::FuzzyType::kFloat64,
                       out.data());
  Bytes bytes;
  append(&bytes, out);
  return bytes;
}

// Each text beside the next 20, so that it is made ready once for all of them.
Bytes cpdist(const Inputs& in, int threads, pytrace::FuzzyScorer scorer) {
  std::vector<pytrace::Text> queries;
  std::vector<pytrace::Text> choices;
  for (size_t i = 0; i < in.texts.size(); ++i) {
    for (size_t j = 1; j <= 20; ++j) {
      queries.push_back(in.texts[i]);
      choices.push_back(in.texts[(i + j) % in.texts.size()]);
    }
  }
  std::vector<double> out(queries.size());
  pytrace::FuzzyCdist how;
  how.scorer = scorer;
  how.threads = threads;
  pytrace::fuzzy_cpdist(view(queries), view(choices), how, pytrace::FuzzyType::kFloat64,
                        out.data());
  Bytes bytes;
  append(&bytes, out);
  return bytes;
}

Bytes align(const Inputs& in, int threads, double gap_open) {
  const size_t count = Inputs::kPaths;
  std::vector<int64_t> best(count);
  std::vector<double> scores(count);
  std::vector<int64_t> matches(count);
  std::vector<int64_t> lengths(count);
  std::vector<std::vector<pytrace::Step>> steps(count);
  const pytrace::BatchAlignment out{{best.data(), Inputs::kPaths},
                                    {scores.data(), Inputs::kPaths},
                                    {matches.data(), Inputs::kPaths},
                                    {lengths.data(), Inputs::kPaths},
                                    &steps};
  pytrace::Scoring scoring;
  scoring.gap_open = gap_open;
  pytrace::align_batch({view(in.candidates), view(in.candidate_offsets)},
                       {view(in.references), view(in.reference_offsets)}, view(in.groups), scoring,
                       threads, out);
  Bytes bytes;
  append(&bytes, best);
  append(&bytes, scores);
  append(&bytes, matches);
  append(&bytes, lengths);
  for (const auto& path : steps) append(&bytes, path);
  return bytes;
}

Bytes expand(const Inputs& in, int threads) {
  const std::vector<char> none(Inputs::kChains);
  pytrace::BeamInput input;
  input.scores = view(in.chain_scores);
  input.finished = {reinterpret_cast<const uint8_t*>(none.data()), Inputs::kChains};
  input.question_offsets = view(in.question_offsets);
  pytrace::Options<float> options;
  options.matrix = {in.logits.data(), Inputs::kChains, Inputs::kOptions, Inputs::kOptions};
  pytrace::BeamOptions how;
  how.beams = 5;
  how.chains = 5;
  const pytrace::BeamResult found = pytrace::expand(input, options, how, threads);
  Bytes bytes;
  append(&bytes, found.offsets);
  for (const pytrace::Extension& one : found.extensions) {
    append(&bytes, std::vector<int64_t>{one.parent, one.option, one.finished, one.stuck});
    append(&bytes, std::vector<double>{one.score, one.step});
  }
  return bytes;
}

Bytes word_scores(int threads) {
  static const auto rows = integers<uint16_t>(400'000, 50'000);
  static const auto counts = integers<uint8_t>(400'000, 9);
  static const std::vector<float> norms(50'000, 0.9F), weights(40, 1.5F);
  const auto ends = offsets(40, 10'000);
  const auto questions = offsets(8, 5);
  const pytrace::Postings<uint8_t> postings{view(rows), counts.data()};
  const pytrace::WordQueries queries{
      view(questions), {ends.data(), 40}, {ends.data() + 1, 40}, view(weights)};
  std::vector<float> scores(8 * norms.size());
  pytrace::word_scores(postings, view(norms), queries, threads, scores.data());
  constexpr int64_t kBest = 50;
  std::vector<float> best(8 * kBest);
  std::vector<int64_t> best_rows(8 * kBest, -1);
  pytrace::word_top(postings, view(norms), queries, {}, 7,
                    {{best.data(), 8, kBest, kBest}, {best_rows.data(), 8, kBest, kBest}}, threads);
  Bytes bytes;
  append(&bytes, scores);
  append(&bytes, best);
  append(&bytes, best_rows);
  return bytes;
}

// 60 questions with 20 candidates each, every one beside every other.
Bytes pairs(int threads) {
  constexpr int64_t kQuestions = 60, kEach = 20, kDim = 24, kWords = 40, kKnown = 500;
  constexpr int64_t kAll = kQuestions * kEach, kPairs = kQuestions * kEach * kEach;
  std::mt19937_64 own(9);
  const auto numbers = [&](int64_t count, int64_t end) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (int32_t& value : values) value = static_cast<int32_t>(own() % static_cast<uint64_t>(end));
    return values;
  };
  const auto rising = [&](int64_t lists, int64_t size) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < lists; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        values.push_back(
            static_cast<int32_t>(j * (kKnown / size) + static_cast<int64_t>(own() % 5)));
      }
    }
    return values;
  };
  std::normal_distribution<float> normal;
  const auto drawn = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(own);
    return values;
  };
  const auto frequencies = numbers(kKnown, 90);
  const auto asked = rising(kQuestions, 8), held = rising(kAll, kWords), named = rising(kAll, 3);
  const auto forth = drawn(kPairs), back = drawn(kPairs);
  const auto questions = drawn(kQuestions * kDim), vectors = drawn(kAll * kDim);
  const std::vector<double> totals(kQuestions, 9.0), scores(4 * kAll, 0.5);
  const auto ends = offsets(kQuestions, kEach);
  const auto asked_offsets = offsets(kQuestions, 8), held_offsets = offsets(kAll, kWords);
  const auto names = offsets(kAll, 1), name_offsets = offsets(kAll, 3);
  const auto pair_offsets = offsets(kQuestions, kEach * kEach);
  std::vector<int64_t> firsts(kPairs), seconds(kPairs);
  for (size_t i = 0; i < firsts.size(); ++i) {
    firsts[i] = static_cast<int64_t>(i) / kEach % kEach;
    seconds[i] = static_cast<int64_t>(i) % kEach;
  }
  const pytrace::PairCorpus corpus{view(frequencies), 900};
  const pytrace::PairQuestions asking{{questions.data(), kQuestions, kDim, kDim},
                                      {view(asked_offsets), view(asked)},
                                      view(totals),
                                      view(ends)};
  const pytrace::PairCandidates candidates{{vectors.data(), kAll, kDim, kDim},
                                           {scores.data(), kAll, 4, 4},
                                           {view(held_offsets), view(held)},
                                           view(names),
                                           {view(name_offsets), view(named)}};
  std::vector<double> features(kPairs * pytrace::kPairFeatures);
  pytrace::pair_features(corpus, asking, candidates,
                         {view(pair_offsets), view(firsts), view(seconds), view(forth), view(back)},
                         threads, features.data());
  Bytes bytes;
  append(&bytes, features);
  return bytes;
}

// Strings of `words` words of one letter each.
struct DrawnStrings {
  DrawnStrings(int64_t count, int64_t words, int seed) {
    std::mt19937_64 own(static_cast<uint64_t>(seed));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t w = 0; w < words; ++w) {
        if (w > 0) bytes.push_back(' ');
        bytes.push_back(static_cast<uint8_t>('a' + own() % 20));
      }
      ends.push_back(static_cast<int64_t>(bytes.size()));
    }
  }
  pytrace::Strings strings() const { return {view(bytes), view(ends)}; }
  std::vector<uint8_t> bytes;
  std::vector<int64_t> ends{0};
};

Bytes names(int threads, bool index) {
  static const DrawnStrings given(300, 2, 11), texts(400, 500, 12);
  const pytrace::BuiltNames built = pytrace::build_names(given.strings(), threads);
  const pytrace::NameTable table{view(built.hashes),
                                 {view(built.bytes), view(built.offsets)},
                                 view(built.firsts),
                                 view(built.lengths)};
  const pytrace::NameHits hits = pytrace::find_names(table, texts.strings(), index, threads);
  Bytes out;
  append(&out, built.hashes);
  append(&out, built.rows);
  append(&out, hits.offsets);
  append(&out, hits.names);
  append(&out, hits.starts);
  append(&out, hits.ends);
  return out;
}

// Words of texts by their hashes, and those of rows of two segments.
Bytes word_lists(int threads) {
  static const DrawnStrings texts(2000, 6, 13);
  std::vector<uint64_t> hashes(2000);
  pytrace::hash_texts(texts.strings(), threads, hashes.data());
  const pytrace::HashedWords words = pytrace::hash_words(texts.strings(), threads);
  constexpr int64_t kRows = 900, kTerms = 12;
  std::mt19937_64 own(14);
  std::vector<uint16_t> steps(kRows * kTerms);
  for (uint16_t& step : steps) step = static_cast<uint16_t>(1 + own() % 50);
  std::vector<uint32_t> starts;
  for (int64_t row = 0; row <= kRows; ++row) starts.push_back(static_cast<uint32_t>(row * kTerms));
  std::vector<int32_t> numbers(50 * kTerms + 1);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(3 * i);
  const pytrace::RowTermsPart part{view(steps), view(starts), view(numbers)};
  std::vector<int64_t> owners(5000), rows(5000);
  for (size_t i = 0; i < rows.size(); ++i) {
    owners[i] = static_cast<int64_t>(own() % 2);
    rows[i] = static_cast<int64_t>(own() % kRows);
  }
  const auto terms = pytrace::terms_of_rows({part, part}, view(owners), view(rows), 65535, threads);
  Bytes bytes;
  append(&bytes, hashes);
  append(&bytes, words.hashes);
  append(&bytes, terms.offsets);
  append(&bytes, terms.terms);
  return bytes;
}

// Rows of bytes with scales.
Bytes scaled_rows(int threads) {
  constexpr int64_t kRows = 400, kDim = 33, kTaken = 3000;
  std::mt19937_64 own(15);
  std::vector<int8_t> items(kRows * kDim);
  for (int8_t& item : items) item = static_cast<int8_t>(own() % 255 - 127);
  std::vector<float> scales(kRows), out(kTaken * kDim);
  for (float& scale : scales) scale = static_cast<float>(own() % 100) / 7.0F;
  std::vector<int64_t> owners(kTaken, 0), rows(kTaken);
  for (int64_t& row : rows) row = static_cast<int64_t>(own() % kRows);
  pytrace::scaled_rows({{{items.data(), kRows, kDim, kDim}, view(scales)}}, view(owners),
                       view(rows), {out.data(), kTaken, kDim, kDim}, threads);
  Bytes bytes;
  append(&bytes, out);
  return bytes;
}

// Covers are dealt out by the binding, with parallel_for; so they are here.
Bytes covers(int threads, bool exact) {
  constexpr int64_t kProblems = 60;
  std::mt19937_64 own(7);
  std::vector<uint64_t> bits(kProblems * 20);
  for (uint64_t& word : bits) word = own() & own() & 0xffff;
  std::vector<pytrace::CoverResult> results(kProblems);
  pytrace::parallel_for(kProblems, 1, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const pytrace::CoverProblem problem{bits.data() + 20 * i, 20, 16, 1, nullptr};
      results[static_cast<size_t>(i)] =
          exact ? pytrace::minimum_cover(problem, pytrace::CoverLimits{})
                : pytrace::greedy_cover(problem);
    }
  });
  Bytes bytes;
  for (const auto& result : results) append(&bytes, result.sets);
  return bytes;
}

// Links from every node to ten others, 40 questions of three seeds.
Bytes walk(int threads, double tolerance) {
  constexpr int64_t kNodes = 3000, kQuestions = 40;
  std::mt19937_64 own(8);
  std::vector<int32_t> targets(10 * kNodes);
  for (int32_t& target : targets) target = static_cast<int32_t>(own() % kNodes);
  std::vector<int64_t> nodes(3 * kQuestions);
  for (int64_t& node : nodes) node = static_cast<int64_t>(own() % kNodes);
  const std::vector<int64_t> rows = offsets(kNodes, 10), questions = offsets(kQuestions, 3);
  const pytrace::Links<int32_t> links{view(rows), view(targets), {}};
  const pytrace::Seeds seeds{view(questions), view(nodes), {}};
  pytrace::WalkOptions how;
  how.tolerance = tolerance;
  const auto found = pytrace::personalised_pagerank(links, seeds, how, threads);
  const auto reached = pytrace::expand_links(links, seeds, pytrace::ExpandOptions{}, threads);
  Bytes bytes;
  append(&bytes, found.nodes);
  append(&bytes, found.scores);
  append(&bytes, found.left);
  append(&bytes, reached.nodes);
  append(&bytes, reached.parents);
  return bytes;
}

template <typename Call>
bool agrees(const char* name, const Call& call) {
  const Bytes expected = call(1);
  bool good = true;
  for (int threads : {2, 3, 8}) {
    if (call(threads) != expected) {
      std::printf("%s: %d threads give another result than one\n", name, threads);
      good = false;
    }
  }
  // Several callers at once, as Python threads are, and one more that changes the default
  // meanwhile.
  std::vector<Bytes> found(3);
  std::vector<std::thread> callers;
  for (Bytes& bytes : found) callers.emplace_back([&bytes, &call] { bytes = call(2); });
  callers.emplace_back([] {
    for (int i = 1; i < 50; ++i) pytrace::set_num_threads(i % 3 + 1);
  });
  for (std::thread& caller : callers) caller.join();
  for (const Bytes& bytes : found) {
    if (bytes != expected) {
      std::printf("%s: a caller beside others got another result\n", name);
      good = false;
    }
  }
  return good;
}

// Bodies sleep, so that more than one thread gets a chunk even on one processor.
int make_a_race() {
  int64_t shared = 0;
  pytrace::parallel_for(100, 1, 4, [&](int64_t begin, int64_t end, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int64_t i = begin; i < end; ++i) shared = shared + i;
  });
  std::printf("the race ended with %lld\n", static_cast<long long>(shared));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--race") == 0) return make_a_race();
  const Inputs in;
  bool good = true;
  for (pytrace::Isa isa : pytrace::available_isas()) {
    pytrace::set_active_isa(pytrace::isa_name(isa));
    const auto run = [&](const char* name, const auto& call) { good = agrees(name, call) && good; };
    run("top_k", [&](int threads) { return top_k(in, threads, false); });
    run("top_k, ragged", [&](int threads) { return top_k(in, threads, true); });
    run("top_k, one query", [&](int threads) { return one_query(in, threads); });
    run("max_sim", [&](int threads) { return max_sim(in, threads, false); });
    run("max_sim, candidates", [&](int threads) { return max_sim(in, threads, true); });
    run("embedding_bag", [&](int threads) { return embedding_bag(in, threads); });
    run("top_spans", [&](int threads) { return top_spans(in, threads); });
    run("similarity", [&](int threads) { return similarity(in, threads); });
    run("normalize", [&](int threads) { return normalize(in, threads); });
    for (int number = 0; number < pytrace::kFuzzyScorers; ++number) {
      const auto scorer = static_cast<pytrace::FuzzyScorer>(number);
      run("cdist", [&](int threads) { return cdist(in, threads, scorer); });
      run("cpdist", [&](int threads) { return cpdist(in, threads, scorer); });
    }
    run("align_batch", [&](int threads) { return align(in, threads, -1.0); });
    run("align_batch, affine", [&](int threads) { return align(in, threads, -2.5); });
    run("expand", [&](int threads) { return expand(in, threads); });
    run("word_scores", [&](int threads) { return word_scores(threads); });
    run("word_lists", [&](int threads) { return word_lists(threads); });
    run("scaled_rows", [&](int threads) { return scaled_rows(threads); });
    run("pair_features", [&](int threads) { return pairs(threads); });
    run("find_names", [&](int threads) { return names(threads, false); });
    run("find_names, indexed", [&](int threads) { return names(threads, true); });
    run("greedy_cover", [&](int threads) { return covers(threads, false); });
    run("minimum_cover", [&](int threads) { return covers(threads, true); });
    run("walk, one by one", [&](int threads) { return walk(threads, 1e-3); });
    run("walk, side by side", [&](int threads) { return walk(threads, 1e-5); });
    run("walk, all nodes", [&](int threads) { return walk(threads, 1e-6); });
    run("walk, all nodes in float64", [&](int threads) { return walk(threads, 1e-9); });
    std::printf("%s: done\n", pytrace::isa_name(isa));
  }
  return good ? 0 : 1;
}
