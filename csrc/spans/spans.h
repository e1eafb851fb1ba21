// The best answer spans of many windows of tokens, from the logits of a network that reads.
//
// A span is a first and a last token of one passage. Its score, in nats above "no answer here", is
//
//   starts[first] + log P(last | first) - starts[0],
//
// where P is a softmax over the tokens at or after `first` in the same passage, of
// ends[t] + <start vector of first, end vector of t> / sqrt(width): each end is scored given its
// start (for why, see M. Fajcik et al., "Rethinking the Objectives of Extractive Question
// Answering", MRQA 2021). The 4 * top best starts are tried, each with its `top` best ends. Ties:
// the lower first token, then the lower last token.
//
// A window takes O(4 * top * passage * width) multiply-adds. Starts are tried from the best on, and
// no end adds to a start's logit, so the search ends with the first start that is below the worst
// of `top` spans. Products add up in float32, in 16 lanes whatever the instruction set; all else
// is float64. Each window is computed by one thread and does not depend on the others.
//
// Logits that are not finite, products included, count as minus infinity: such a token begins or
// ends no span. A window whose starts[0] is not finite has no spans.
#pragma once

#include <cstdint>

namespace pytrace {

// Contiguous arrays, rows-major.
struct SpanWindows {
  int64_t windows = 0;
  int64_t tokens = 0;  // per window
  int64_t width = 0;   // of a token's vector as a start, and of its vector as an end

  const float* starts = nullptr;     // [windows, tokens]
  const float* ends = nullptr;       // [windows, tokens]
  const float* pairs = nullptr;      // [windows, tokens, 2 * width], the vector as a start first
  const int32_t* owners = nullptr;   // [windows, tokens], a token's passage; below 0: none
  const int32_t* offsets = nullptr;  // [windows, tokens, 2], a token's characters in its passage
};

struct SpanLimits {
  int64_t top = 0;             // spans per window, at least 0
  int64_t max_tokens = 0;      // per span, at least 1
  int64_t max_characters = 0;  // per span, at least 0
};

// Fills scores, first and last, [windows, top], the best span first; the rest is -inf, -1 and -1.
// Throws std::invalid_argument for more tokens per window than int32 counts.
void top_spans(const SpanWindows& input, const SpanLimits& limits, int threads, float* scores,
               int32_t* first, int32_t* last);

}  // namespace pytrace
