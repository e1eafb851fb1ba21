// Fuzzy scores beside their definitions, computed by the plain table.
#include "fuzzy/fuzzy.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzzing.h"

namespace {

using pytrace::FuzzyScorer;
using pytrace::Text;
using Characters = std::vector<uint32_t>;

// Characters in memory of exactly their size, so that a read beyond them is seen.
class OwnText {
 public:
  OwnText(const Characters& characters, int kind) : kind_(kind), size_(characters.size()) {
    bytes_.reset(new char[size_ * static_cast<size_t>(kind)]);
    for (size_t i = 0; i < size_; ++i) {
      std::memcpy(bytes_.get() + i * static_cast<size_t>(kind), &characters[i],
                  static_cast<size_t>(kind));
    }
  }

  Text text() const { return {bytes_.get(), static_cast<int64_t>(size_), kind_, false}; }

 private:
  int kind_;
  size_t size_;
  std::unique_ptr<char[]> bytes_;
};

// The narrowest kind that holds the characters, as Python chooses it, or a wider one.
OwnText own(const Characters& characters, bool wider) {
  const uint32_t top =
      characters.empty() ? 0 : *std::max_element(characters.begin(), characters.end());
  int kind = top < 256 ? 1 : top < 65536 ? 2 : 4;
  if (wider && kind < 4) kind *= 2;
  return OwnText(characters, kind);
}

// Few different characters, so that much matches; lone surrogates and the last code point among the
// alphabets.
Characters characters_of(FuzzedDataProvider* data, size_t most) {
  constexpr uint32_t kFirsts[] = {'a', 0, 0xfe, 0xd7ff, 0xdfff, 0xfffe, 0x10fffc, ' '};
  const uint32_t first = data->PickValueInArray(kFirsts);
  const uint32_t letters = data->ConsumeIntegralInRange<uint32_t>(1, 4);
  Characters out(data->ConsumeIntegralInRange<size_t>(0, most));
  for (uint32_t& character : out) {
    const auto byte = data->ConsumeIntegral<uint8_t>();
    character = byte >= 250 ? uint32_t{byte} * 4000 : first + byte % letters;
  }
  return out;
}

int64_t lcs(const uint32_t* a, size_t n, const uint32_t* b, size_t m) {
  std::vector<int64_t> row(m + 1);
  for (size_t i = 0; i < n; ++i) {
    int64_t diagonal = 0;
    for (size_t j = 0; j < m; ++j) {
      const int64_t above = row[j + 1];
      row[j + 1] = a[i] == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row[m];
}

double ratio(const uint32_t* a, size_t n, const uint32_t* b, size_t m) {
  if (n + m == 0) return 100.0;
  const auto total = static_cast<double>(n + m);
  return (1.0 - (total - 2.0 * static_cast<double>(lcs(a, n, b, m))) / total) * 100.0;
}

double windows(const Characters& needle, const Characters& text) {
  const size_t m = needle.size();
  const size_t n = text.size();
  double best = 0.0;
  for (size_t length = 1; length <= m; ++length) {
    for (size_t begin = 0; begin + length <= n; ++begin) {
      if (length < m && begin != 0 && begin + length != n) continue;
      best = std::max(best, ratio(needle.data(), m, text.data() + begin, length));
    }
  }
  return best;
}

double partial_ratio(const Characters& a, const Characters& b) {
  if (a.empty() && b.empty()) return 100.0;
  if (a.empty() || b.empty()) return 0.0;
  if (a.size() == b.size()) return std::max(windows(a, b), windows(b, a));
  return a.size() < b.size() ? windows(a, b) : windows(b, a);
}

bool near(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }

void check_pair(const Characters& a, const Characters& b, bool wider, double cutoff) {
  const OwnText first = own(a, wider);
  const OwnText second = own(b, false);
  const double plain = ratio(a.data(), a.size(), b.data(), b.size());
  const double whole = pytrace::fuzzy_score(FuzzyScorer::kRatio, first.text(), second.text(), 0.0);
  FUZZ_CHECK(near(whole, plain));
  const double cut = pytrace::fuzzy_score(FuzzyScorer::kRatio, first.text(), second.text(), cutoff);
  FUZZ_CHECK(cut == (whole >= cutoff ? whole : 0.0));

  if (a.size() * b.size() * std::min(a.size(), b.size()) < 3'000'000) {
    const double best = partial_ratio(a, b);
    const auto scored = [&](double least) {
      return pytrace::fuzzy_score(FuzzyScorer::kPartialRatio, first.text(), second.text(), least);
    };
    const double found = scored(0.0);
    FUZZ_CHECK(near(found, best));
    FUZZ_CHECK(scored(cutoff) == (found >= cutoff ? found : 0.0));
    const auto place = pytrace::fuzzy_partial_alignment(first.text(), second.text(), cutoff);
    FUZZ_CHECK(place.found == (found >= cutoff));
    if (place.found) {
      FUZZ_CHECK(place.score == found);
      FUZZ_CHECK(0 <= place.a_start && place.a_start <= place.a_end &&
                 place.a_end <= first.text().size);
      FUZZ_CHECK(0 <= place.b_start && place.b_start <= place.b_end &&
                 place.b_end <= second.text().size);
      if (!a.empty() && !b.empty()) {
        FUZZ_CHECK(near(
            found,
            ratio(a.data() + place.a_start, static_cast<size_t>(place.a_end - place.a_start),
                  b.data() + place.b_start, static_cast<size_t>(place.b_end - place.b_start))));
      }
    }
  }

  const double tokens =
      pytrace::fuzzy_score(FuzzyScorer::kTokenSetRatio, first.text(), second.text(), 0.0);
  FUZZ_CHECK(0.0 <= tokens && tokens <= 100.0);
  FUZZ_CHECK(tokens ==
             pytrace::fuzzy_score(FuzzyScorer::kTokenSetRatio, second.text(), first.text(), 0.0));
}

// Every cell of cdist is the score of its pair.
void check_cdist(FuzzedDataProvider* data, double cutoff) {
  std::vector<OwnText> owners;
  std::vector<Text> texts;
  const auto count = data->ConsumeIntegralInRange<size_t>(0, 40);
  for (size_t i = 0; i < count; ++i) owners.push_back(own(characters_of(data, 90), false));
  for (const OwnText& owner : owners) texts.push_back(owner.text());
  if (data->ConsumeBool()) texts.push_back({nullptr, 0, 1, true});
  const size_t rows = std::min<size_t>(texts.size(), 3);
  pytrace::FuzzyCdist how;
  how.scorer = static_cast<FuzzyScorer>(data->ConsumeIntegralInRange<int>(0, 2));
  how.cutoff = cutoff;
  how.missing = -1.0;
  how.threads = 1;
  std::vector<double> out(rows * texts.size());
  const auto columns = static_cast<int64_t>(texts.size());
  pytrace::fuzzy_cdist({texts.data(), static_cast<int64_t>(rows)}, {texts.data(), columns}, how,
                       pytrace::FuzzyType::kFloat64, out.data());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < texts.size(); ++j) {
      const double expected = texts[i].missing || texts[j].missing
                                  ? -1.0
                                  : pytrace::fuzzy_score(how.scorer, texts[i], texts[j], cutoff);
      FUZZ_CHECK(out[i * texts.size() + j] == expected);
    }
  }
}

// Every score of cpdist is that of its pair, whatever stands in the pairs beside it.
void check_cpdist(FuzzedDataProvider* data, double cutoff) {
  std::vector<OwnText> owners;
  const auto count = data->ConsumeIntegralInRange<size_t>(1, 8);
  for (size_t i = 0; i < count; ++i) owners.push_back(own(characters_of(data, 90), false));
  std::vector<Text> sides[2];
  const auto text = [&]() -> Text {
    const auto which = data->ConsumeIntegralInRange<size_t>(0, count);
    return which == count ? Text{nullptr, 0, 1, true} : owners[which].text();
  };
  while (sides[0].size() < 60 && data->remaining_bytes() > 0) {
    const size_t side = data->ConsumeBool() ? 1 : 0;
    const Text shared = text();
    for (auto pairs = data->ConsumeIntegralInRange<int>(1, 8); pairs > 0; --pairs) {
      sides[side].push_back(shared);
      sides[1 - side].push_back(text());
    }
  }
  pytrace::FuzzyCdist how;
  how.scorer = static_cast<FuzzyScorer>(data->ConsumeIntegralInRange<int>(0, 2));
  how.cutoff = cutoff;
  how.missing = -1.0;
  how.threads = 1;
  const auto size = static_cast<int64_t>(sides[0].size());
  std::vector<double> out(sides[0].size());
  pytrace::fuzzy_cpdist({sides[0].data(), size}, {sides[1].data(), size}, how,
                        pytrace::FuzzyType::kFloat64, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const Text& a = sides[0][i];
    const Text& b = sides[1][i];
    const double expected =
        a.missing || b.missing ? -1.0 : pytrace::fuzzy_score(how.scorer, a, b, cutoff);
    FUZZ_CHECK(out[i] == expected);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  choose_isa(&data);
  constexpr double kCutoffs[] = {0.0, 50.0, 80.0, 99.9, 100.0, 101.0, 0.5, -1.0};
  const double cutoff = data.PickValueInArray(kCutoffs);
  const bool wider = data.ConsumeBool();
  if (data.ConsumeBool()) {
    data.ConsumeBool() ? check_cpdist(&data, cutoff) : check_cdist(&data, cutoff);
    return 0;
  }
  Characters a = characters_of(&data, 140);
  const Characters b = characters_of(&data, 200);
  // More than 64 blocks of 64 characters.
  if (data.ConsumeIntegral<uint8_t>() == 7 && !a.empty()) {
    while (a.size() < 4200)
      a.insert(a.end(), a.begin(),
               a.begin() + static_cast<int64_t>(std::min<size_t>(a.size(), 900)));
  }
  check_pair(a, b, wider, cutoff);
  return 0;
}
