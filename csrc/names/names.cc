#include "names/names.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/parallel.h"
#include "common/spaced_words.h"

namespace pytrace {
namespace {

// Texts that a thread takes at once: some hundred microseconds of work.
constexpr int64_t kTextsAtOnce = 64;

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

uint64_t word_hash(const uint8_t* word, int64_t size) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int64_t i = 0; i < size; ++i) hash = (hash ^ word[i]) * 0x100000001b3ull;
  return mixed(hash);
}

uint64_t followed_by(uint64_t hash, uint64_t word) {
  return mixed(hash * 0x9e3779b97f4a7c15ull + word);
}

struct Word {
  uint64_t hash;
  int64_t begin;
  int64_t end;
};

void split(const uint8_t* bytes, int64_t begin, int64_t end, std::vector<Word>& words) {
  words.clear();
  for_words(bytes, begin, end, [&](int64_t first, int64_t last) {
    words.push_back({word_hash(bytes + first, last - first), first, last});
  });
}

// Where each of some sorted hashes stands first, by open addressing.
class HashIndex {
 public:
  explicit HashIndex(Span<const uint64_t> hashes) : hashes_(hashes) {
    size_t size = 16;
    while (size < 2 * static_cast<size_t>(hashes.size)) size *= 2;
    mask_ = size - 1;
    places_.assign(size, -1);
    for (int64_t i = 0; i < hashes.size; ++i) {
      if (i > 0 && hashes[i] == hashes[i - 1]) continue;
      size_t slot = hashes[i] & mask_;
      while (places_[slot] >= 0) slot = (slot + 1) & mask_;
      places_[slot] = i;
    }
  }

  int64_t find(uint64_t hash) const {
    for (size_t slot = hash & mask_; places_[slot] >= 0; slot = (slot + 1) & mask_) {
      if (hashes_[places_[slot]] == hash) return places_[slot];
    }
    return -1;
  }

 private:
  Span<const uint64_t> hashes_;
  size_t mask_ = 0;
  std::vector<int64_t> places_;
};

// The same by binary search.
class SortedIndex {
 public:
  explicit SortedIndex(Span<const uint64_t> hashes) : hashes_(hashes) {}

  int64_t find(uint64_t hash) const {
    const uint64_t* at = std::lower_bound(hashes_.begin(), hashes_.end(), hash);
    return at != hashes_.end() && *at == hash ? at - hashes_.begin() : -1;
  }

 private:
  Span<const uint64_t> hashes_;
};

struct Hit {
  int64_t name;
  int64_t start;
  int64_t end;
};

template <typename Index>
class Finder {
 public:
  explicit Finder(const NameTable& table)
      : table_(table), names_(table.hashes), firsts_(table.firsts) {}

  void find(const Strings& texts, int64_t text, std::vector<Word>& words,
            std::vector<Hit>& hits) const {
    split(texts.bytes.data, texts.offsets[text], texts.offsets[text + 1], words);
    const auto count = static_cast<int64_t>(words.size());
    uint64_t folded[kLongestName];
    for (int64_t start = 0; start < count;) {
      const int64_t first = firsts_.find(words[static_cast<size_t>(start)].hash);
      uint64_t lengths = first < 0 ? 0 : table_.lengths[first];
      if (count - start < kLongestName) lengths &= (uint64_t{1} << (count - start)) - 1;
      int64_t length = 0;
      if (lengths != 0) {
        const int longest = 64 - __builtin_clzll(lengths);
        folded[0] = words[static_cast<size_t>(start)].hash;
        for (int i = 1; i < longest; ++i) {
          folded[i] = followed_by(folded[i - 1], words[static_cast<size_t>(start + i)].hash);
        }
        for (int size = longest; size > 0 && length == 0; --size) {
          if ((lengths >> (size - 1) & 1) == 0) continue;
          const int64_t name = verified(folded[size - 1], texts.bytes.data,
                                        &words[static_cast<size_t>(start)], size);
          if (name < 0) continue;
          hits.push_back({name, start, start + size});
          length = size;
        }
      }
      start += std::max<int64_t>(length, 1);
    }
  }

 private:
  // The name of this hash whose words these are, -1 if there is none.
  int64_t verified(uint64_t hash, const uint8_t* text, const Word* words, int count) const {
    int64_t name = names_.find(hash);
    if (name < 0) return -1;
    for (; name < table_.hashes.size && table_.hashes[name] == hash; ++name) {
      const int64_t begin = table_.names.offsets[name], end = table_.names.offsets[name + 1];
      if (begin < 0 || end < begin || end > table_.names.bytes.size) {
        fail("name " + to_text(name) + " lies at bytes " + to_text(begin) + " to " + to_text(end) +
             " of " + to_text(table_.names.bytes.size));
      }
      if (same(table_.names.bytes.data + begin, end - begin, text, words, count)) return name;
    }
    return -1;
  }

  // A text may have more than one space between words.
  static bool same(const uint8_t* name, int64_t size, const uint8_t* text, const Word* words,
                   int count) {
    int64_t at = 0;
    for (int i = 0; i < count; ++i) {
      if (i > 0) {
        if (at == size || name[at] != ' ') return false;
        ++at;
      }
      const int64_t length = words[i].end - words[i].begin;
      if (size - at < length) return false;
      if (std::memcmp(name + at, text + words[i].begin, static_cast<size_t>(length)) != 0) {
        return false;
      }
      at += length;
    }
    return at == size;
  }

  const NameTable& table_;
  Index names_;
  Index firsts_;
};

template <typename Index>
NameHits find_all(const NameTable& table, const Strings& texts, int threads) {
  const Finder<Index> finder(table);
  const int64_t count = texts.size();
  std::vector<std::vector<Hit>> hits(static_cast<size_t>(count));
  parallel_for(count, kTextsAtOnce, threads, [&](int64_t begin, int64_t end, int) {
    std::vector<Word> words;
    for (int64_t text = begin; text < end; ++text) {
      finder.find(texts, text, words, hits[static_cast<size_t>(text)]);
    }
  });
  NameHits result;
  result.offsets.push_back(0);
  for (const auto& list : hits) {
    for (const Hit& hit : list) {
      result.names.push_back(hit.name);
      result.starts.push_back(hit.start);
      result.ends.push_back(hit.end);
    }
    result.offsets.push_back(static_cast<int64_t>(result.names.size()));
  }
  return result;
}

}  // namespace

BuiltNames build_names(const Strings& names, int threads) {
  require_offsets(names.offsets, names.bytes.size, "offsets");
  const auto count = static_cast<size_t>(names.size());
  struct Entry {
    const uint8_t* begin;
    size_t size;
    uint64_t first;
    uint64_t length;
  };
  struct Place {
    uint64_t hash;
    size_t name;
  };
  std::vector<Entry> entries(count);
  std::vector<Place> order(count);
  // A copy, which nobody writes to while it is sorted by.
  std::vector<uint8_t> text(static_cast<size_t>(names.bytes.size));
  parallel_for(names.size(), kTextsAtOnce, threads, [&](int64_t begin, int64_t end, int) {
    std::vector<Word> words;
    for (int64_t name = begin; name < end; ++name) {
      split(names.bytes.data, names.offsets[name], names.offsets[name + 1], words);
      if (words.empty() || words.size() > kLongestName) {
        fail("name " + to_text(name) + " has " + to_text(static_cast<int64_t>(words.size())) +
             " words; a name has from 1 to " + to_text(kLongestName));
      }
      uint64_t hash = words[0].hash;
      uint8_t* const start = text.data() + names.offsets[name];
      uint8_t* out = start;
      for (size_t i = 0; i < words.size(); ++i) {
        if (i > 0) {
          hash = followed_by(hash, words[i].hash);
          *out++ = ' ';
        }
        out = std::copy(names.bytes.data + words[i].begin, names.bytes.data + words[i].end, out);
      }
      const auto place = static_cast<size_t>(name);
      entries[place] = {start, static_cast<size_t>(out - start), words[0].hash,
                        uint64_t{1} << (words.size() - 1)};
      order[place] = {hash, place};
    }
  });
  const auto compared = [&](const Place& a, const Place& b) {
    const Entry &one = entries[a.name], &other = entries[b.name];
    const int bytes = std::memcmp(one.begin, other.begin, std::min(one.size, other.size));
    return bytes != 0 ? bytes : static_cast<int>(one.size > other.size) - (one.size < other.size);
  };
  std::sort(order.begin(), order.end(), [&](const Place& a, const Place& b) {
    return a.hash != b.hash ? a.hash < b.hash : compared(a, b) < 0;
  });
  BuiltNames built;
  built.rows.resize(count);
  built.offsets.push_back(0);
  std::vector<std::pair<uint64_t, uint64_t>> begun;
  for (size_t i = 0; i < count; ++i) {
    const Place& place = order[i];
    if (i == 0 || place.hash != order[i - 1].hash || compared(place, order[i - 1]) != 0) {
      const Entry& entry = entries[place.name];
      built.hashes.push_back(place.hash);
      built.bytes.insert(built.bytes.end(), entry.begin, entry.begin + entry.size);
      built.offsets.push_back(static_cast<int64_t>(built.bytes.size()));
      begun.emplace_back(entry.first, entry.length);
    }
    built.rows[place.name] = static_cast<int64_t>(built.hashes.size()) - 1;
  }
  std::sort(begun.begin(), begun.end());
  for (const auto& [first, length] : begun) {
    if (built.firsts.empty() || built.firsts.back() != first) {
      built.firsts.push_back(first);
      built.lengths.push_back(0);
    }
    built.lengths.back() |= length;
  }
  return built;
}

NameHits find_names(const NameTable& table, const Strings& texts, bool index, int threads) {
  require_offsets(texts.offsets, texts.bytes.size, "text_offsets");
  if (table.names.size() != table.hashes.size) {
    fail("there are " + to_text(table.hashes.size) + " hashes, but " + to_text(table.names.size()) +
         " names");
  }
  if (table.firsts.size != table.lengths.size) {
    fail("there are " + to_text(table.firsts.size) + " first words, but lengths of " +
         to_text(table.lengths.size));
  }
  return index ? find_all<HashIndex>(table, texts, threads)
               : find_all<SortedIndex>(table, texts, threads);
}

}  // namespace pytrace
