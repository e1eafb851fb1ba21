// Exact top-k and the full similarity matrix on a card, whole calls: what lies on the host is
// brought to the card, in tiles where it is larger than the call may take (memory_to_use), and
// copied while kernels run on the tile before.
#pragma once

#include <cstdint>

#include "common/views.h"
#include "cuda/runtime.h"
#include "cuda/topk.h"

namespace pytrace::cuda {

// Rows in the host's memory or on the card.
struct PlacedRows {
  DeviceRows rows;  // without a scale
  bool on_card = false;
};

struct SearchInput {
  PlacedRows queries;  // float32, float16 or bfloat16
  PlacedRows items;
  Span<const float> scale;  // on the host: none, one, or one a row of items
  // On the host, checked (topk_check.h): see TopKInput. Each query's excluded rows rise.
  Span<const int64_t> item_offsets;
  Span<const int64_t> query_offsets;
  Span<const int64_t> excluded;
  Span<const int64_t> exclude_offsets;
};

// Where results go: on the card (contiguous) or the host.
struct SearchResults {
  float* scores = nullptr;
  int64_t* indices = nullptr;
  bool on_card = false;
};

// As top_k of the processor; scores as scores.cuh adds them. The results are there on return.
// Throws std::invalid_argument if a score is not finite. Up to kMostScannedK (topk_scan.h) best
// lists are kept in shared memory while items stream by; beyond, scores are sorted.
void top_k(const SearchInput& input, int64_t k, Metric metric, const SearchResults& results,
           Context& context);

// out [queries, items]: the same scores, bit for bit; distances are positive.
void similarity(const SearchInput& input, Metric metric, float* out, bool on_card,
                Context& context);

}  // namespace pytrace::cuda
