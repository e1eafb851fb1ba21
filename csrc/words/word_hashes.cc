#include "words/word_hashes.h"

#include <algorithm>
#include <cstring>

#include "common/parallel.h"
#include "common/spaced_words.h"

namespace pytrace {
namespace {

// Texts that a thread takes at once: some tens of microseconds of work.
constexpr int64_t kTextsAtOnce = 128;

constexpr uint64_t kStart[8] = {0x6a09e667f3bcc908ull, 0xbb67ae8584caa73bull, 0x3c6ef372fe94f82bull,
                                0xa54ff53a5f1d36f1ull, 0x510e527fade682d1ull, 0x9b05688c2b3e6c1full,
                                0x1f83d9abfb41bd6bull, 0x5be0cd19137e2179ull};

// The order of a block's words in each round; the last two rounds are the first two again.
constexpr uint8_t kOrder[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
constexpr int64_t kBlock = 128;
constexpr uint64_t kDigestBytes = 8;

uint64_t rotated(uint64_t value, int bits) { return value >> bits | value << (64 - bits); }

// The bytes of a number in the order that the standard has them in, whatever the machine's own.
uint64_t little_endian(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

void compress(uint64_t state[8], const uint8_t* block, uint64_t bytes_so_far, bool last) {
  uint64_t words[16], v[16];
  for (int i = 0; i < 16; ++i) words[i] = little_endian(block + 8 * i);
  std::copy(state, state + 8, v);
  std::copy(kStart, kStart + 8, v + 8);
  v[12] ^= bytes_so_far;
  if (last) v[14] = ~v[14];
  const auto mix = [&](int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = rotated(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = rotated(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = rotated(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotated(v[b] ^ v[c], 63);
  };
  for (int round = 0; round < 12; ++round) {
    const uint8_t* const order = kOrder[round % 10];
    for (int i = 0; i < 4; ++i) {
      mix(i, 4 + i, 8 + i, 12 + i, words[order[2 * i]], words[order[2 * i + 1]]);
    }
    for (int i = 0; i < 4; ++i) {
      mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[order[8 + 2 * i]],
          words[order[9 + 2 * i]]);
    }
  }
  for (int i = 0; i < 8; ++i) state[i] ^= v[i] ^ v[8 + i];
}

uint64_t hash_bytes(const uint8_t* bytes, int64_t size) {
  uint64_t state[8];
  std::copy(kStart, kStart + 8, state);
  state[0] ^= 0x01010000 ^ kDigestBytes;
  int64_t done = 0;
  for (; size - done > kBlock; done += kBlock) {
    compress(state, bytes + done, static_cast<uint64_t>(done + kBlock), false);
  }
  uint8_t block[kBlock] = {};
  if (size > done) std::memcpy(block, bytes + done, static_cast<size_t>(size - done));
  compress(state, block, static_cast<uint64_t>(size), true);
  return state[0];
}

}  // namespace

void hash_texts(const Strings& texts, int threads, uint64_t* hashes) {
  require_offsets(texts.offsets, texts.bytes.size, "offsets");
  parallel_for(texts.size(), kTextsAtOnce, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t text = begin; text < end; ++text) {
      hashes[text] = hash_bytes(texts.bytes.data + texts.offsets[text],
                                texts.offsets[text + 1] - texts.offsets[text]);
    }
  });
}

HashedWords hash_words(const Strings& texts, int threads) {
  require_offsets(texts.offsets, texts.bytes.size, "offsets");
  const int64_t count = texts.size();
  std::vector<std::vector<uint64_t>> found(
      static_cast<size_t>((count + kTextsAtOnce - 1) / kTextsAtOnce));
  HashedWords words;
  words.offsets.assign(static_cast<size_t>(count) + 1, 0);
  // By chunks of a size of our own, so that each has its list whatever the threads.
  parallel_for(static_cast<int64_t>(found.size()), 1, threads, [&](int64_t from, int64_t to, int) {
    for (int64_t chunk = from; chunk < to; ++chunk) {
      std::vector<uint64_t>& hashes = found[static_cast<size_t>(chunk)];
      const int64_t last = std::min(count, (chunk + 1) * kTextsAtOnce);
      for (int64_t text = chunk * kTextsAtOnce; text < last; ++text) {
        const auto first = static_cast<int64_t>(hashes.size());
        const uint8_t* const bytes = texts.bytes.data;
        const auto add = [&](int64_t begin, int64_t end) {
          const uint64_t hash = hash_bytes(bytes + begin, end - begin);
          if (std::find(hashes.begin() + first, hashes.end(), hash) == hashes.end()) {
            hashes.push_back(hash);
          }
        };
        for_words(bytes, texts.offsets[text], texts.offsets[text + 1], add);
        words.offsets[static_cast<size_t>(text) + 1] = static_cast<int64_t>(hashes.size()) - first;
      }
    }
  });
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) words.offsets[i + 1] += words.offsets[i];
  words.hashes.reserve(static_cast<size_t>(words.offsets.back()));
  for (const auto& hashes : found) {
    words.hashes.insert(words.hashes.end(), hashes.begin(), hashes.end());
  }
  return words;
}

}  // namespace pytrace
