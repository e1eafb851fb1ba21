#include "cuda/fuzzy_texts.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "common/parallel.h"
#include "fuzzy/fuzzy_text.h"

namespace pytrace::cuda {
namespace {

constexpr int64_t kAligned = 16;
constexpr int64_t kGrain = 256;  // texts of a few hundred characters: some 20 us

}  // namespace

FuzzySource::FuzzySource(Span<const Text> texts, bool words) : texts_(texts), has_words_(words) {
  if (!words) return;
  sets_.resize(static_cast<size_t>(texts.size));
  numbers_.resize(static_cast<size_t>(texts.size));
  parallel_for(texts.size, kGrain, 0, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (!texts[i].missing) sets_[static_cast<size_t>(i)].assign(texts[i]);
    }
  });
}

void FuzzySource::number(FuzzySource* first, FuzzySource* second) {
  std::unordered_map<std::u32string_view, uint32_t> known;
  for (FuzzySource* source : {first, second}) {
    for (size_t i = 0; i < source->sets_.size(); ++i) {
      const WordSet& set = source->sets_[i];
      source->numbers_[i].reserve(static_cast<size_t>(set.size()));
      for (int64_t k = 0; k < set.size(); ++k) {
        const WordSet::Word& word = set.word(k);
        const std::u32string_view view(reinterpret_cast<const char32_t*>(set.characters(word)),
                                       static_cast<size_t>(word.size()));
        const auto number = static_cast<uint32_t>(known.size());
        source->numbers_[i].push_back(known.emplace(view, number).first->second);
      }
    }
  }
}

int64_t FuzzySource::characters(int64_t index) const {
  if (texts_[index].missing) return 0;
  return has_words_ ? sets_[static_cast<size_t>(index)].joined_size() : texts_[index].size;
}

int64_t FuzzySource::bytes(int64_t index) const {
  const int64_t words =
      has_words_ ? sets_[static_cast<size_t>(index)].size() * int64_t{sizeof(FuzzyWord)} : 0;
  return 4 * characters(index) + words;
}

int64_t FuzzyPack::room(int64_t texts, int64_t bytes) {
  // Two begins, a place in the order, a mark; six parts, each brought to a multiple of 16.
  return bytes + (2 * 8 + 4 + 1) * texts + 16 + 6 * kAligned;
}

int64_t FuzzyPack::reserve(int64_t bytes) {
  const auto at = static_cast<int64_t>(memory_.size());
  memory_.resize(static_cast<size_t>(at + (bytes + kAligned - 1) / kAligned * kAligned));
  return at;
}

FuzzyPack::FuzzyPack(const FuzzySource& source, int64_t begin, int64_t end,
                     std::vector<int32_t> order) {
  const int64_t count = end - begin;
  std::vector<int64_t> begins(static_cast<size_t>(count + 1), 0);
  std::vector<int64_t> word_begins(static_cast<size_t>(count + 1), 0);
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t size = source.characters(begin + i);
    longest_ = std::max(longest_, size);
    begins[k + 1] = begins[k] + size;
    const int64_t words =
        source.has_words_ ? source.sets_[static_cast<size_t>(begin + i)].size() : 0;
    word_begins[k + 1] = word_begins[k] + words;
  }
  memory_.reserve(static_cast<size_t>(
      room(count, 4 * begins.back() + int64_t{sizeof(FuzzyWord)} * word_begins.back())));
  begins_ = reserve(8 * (count + 1));
  word_begins_ = reserve(8 * (count + 1));
  characters_ = reserve(4 * begins.back());
  words_ = reserve(int64_t{sizeof(FuzzyWord)} * word_begins.back());
  order_ = reserve(4 * static_cast<int64_t>(order.size()));
  missing_ = reserve(count);
  char* base = memory_.data();
  std::copy(begins.begin(), begins.end(), reinterpret_cast<int64_t*>(base + begins_));
  std::copy(word_begins.begin(), word_begins.end(),
            reinterpret_cast<int64_t*>(base + word_begins_));
  std::copy(order.begin(), order.end(), reinterpret_cast<int32_t*>(base + order_));
  auto* characters = reinterpret_cast<uint32_t*>(base + characters_);
  auto* words = reinterpret_cast<FuzzyWord*>(base + words_);
  parallel_for(count, kGrain, 0, [&](int64_t first, int64_t last, int) {
    std::vector<uint32_t> joined;
    for (int64_t i = first; i < last; ++i) {
      const auto k = static_cast<size_t>(i);
      const Text& text = source.texts_[begin + i];
      base[missing_ + i] = text.missing ? 1 : 0;
      if (text.missing) continue;
      uint32_t* out = characters + begins[k];
      if (!source.has_words_) {
        with_characters(text, [&](const auto* from) { std::copy(from, from + text.size, out); });
        continue;
      }
      const auto at = static_cast<size_t>(begin + i);
      const WordSet& set = source.sets_[at];
      set.join(nullptr, &joined);
      std::copy(joined.begin(), joined.end(), out);
      int32_t place = 0;
      for (int64_t w = 0; w < set.size(); ++w) {
        const auto size = static_cast<int32_t>(set.word(w).size());
        words[word_begins[k] + w] = {source.numbers_[at][static_cast<size_t>(w)], place, size};
        place += size + 1;
      }
    }
  });
}

FuzzyTexts FuzzyPack::texts(const char* base) const {
  return {reinterpret_cast<const uint32_t*>(base + characters_),
          reinterpret_cast<const int64_t*>(base + begins_),
          reinterpret_cast<const uint8_t*>(base + missing_),
          reinterpret_cast<const FuzzyWord*>(base + words_),
          reinterpret_cast<const int64_t*>(base + word_begins_)};
}

}  // namespace pytrace::cuda
