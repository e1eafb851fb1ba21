// Exact top-k of many queries on a card, by its tensor cores.
//
// Filter and refine. Tensor cores bound the scores of all pairs from products of 16-bit numbers
// (topk_bounds.h, topk_filter.cuh); what could be among a query's k best is scored exactly
// (scores.cuh) and cut to k (topk_refine.cuh). The results are therefore those of a plain scan, bit
// for bit, whatever the batch: by falling scores, equal ones by rising index.
//
// Items are visited in waves, in an order that is spread over all of them. The first few are scored
// outright; each later wave is some times as large as all before it, so that it is expected to hit
// no more than a few hundred items a query. Kernels follow each other without the host until all
// waves are through. Where more items hit than a query's list holds, what the list did hold has
// raised the floor; such queries alone are taken through all items again, and then in smaller
// waves, in the end no larger than a list: four passes at most. So only what floors cannot tell
// apart (thousands of items whose scores are equal to about 2^-12 of the two lengths, or values far
// outside of the range of embeddings) costs much more than the product: O(queries * items * dim)
// without tensor cores.
//
// Work O(queries * items * dim) on tensor cores; items are read about twice a group of up to 2,048
// queries, and converted in slices where tensor cores cannot read them in place.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/runtime.h"
#include "cuda/topk.h"
#include "cuda/topk_bounds.h"

namespace pytrace::cuda {

// The largest k of this path: what is sorted (k and a list of hits) lies in shared memory.
inline constexpr int64_t kMostProductK = 1024;

// Whether this path is expected to be faster than a scan that reads items once for a few queries.
bool product_is_better(int64_t queries, const DeviceRows& items, int64_t k);

struct ProductInput {
  DeviceRows queries;  // float32, float16 or bfloat16
  DeviceRows items;
  int64_t first_index = 0;  // the index of items' first row; the last one's is below 2^32 - 1
  int64_t first_query = 0;  // the number of queries' first row, in `excluded` and `not_finite`
  DeviceExcluded excluded;  // indices, not rows
  int64_t k = 0;            // 1 to kMostProductK
  Metric metric = Metric::kInnerProduct;
};

// How the work is cut up; 0: as is best. Tests choose, so that small inputs meet every case.
struct ProductSizes {
  int64_t capacity = 0;  // hits of a query that a wave may leave; at least k and 32
  int64_t first = 0;     // items scored outright, at most `capacity`
  int64_t growth = 0;    // all items seen after a wave: so many times those before, at least 2
  int64_t wave = 0;      // the most items of a wave
  int64_t group = 0;     // the most queries at a time
};

struct ProductWorkspace {
  ProductSizes sizes;
  int64_t padded = 0;       // values of a query's row
  int64_t item_stride = 0;  // values of a converted item's row; 0: items are read in place
  Workspace::Piece<float> exact_queries;
  Workspace::Piece<uint16_t> rounded_queries;
  Workspace::Piece<QueryBound> query_bounds;
  Workspace::Piece<QueryLength> query_lengths;
  Workspace::Piece<uint16_t> rounded_items;
  Workspace::Piece<ItemBound> item_bounds;
  Workspace::Piece<uint32_t> hits;
  Workspace::Piece<unsigned> counts;
  Workspace::Piece<unsigned> held;
  Workspace::Piece<unsigned> overflowed;
  Workspace::Piece<uint32_t> orders;  // two of a group's length
  Workspace::Piece<unsigned long long> totals;
};

// Takes what product_top_k needs for up to so many queries and any items like these, of as many
// rows at most: up to some 32 MB for lists, 16 MB for bounds, 64 MB for queries and, for items that
// are converted, 32 MB for a slice of them.
ProductWorkspace product_workspace(Workspace& workspace, int64_t queries, const DeviceRows& items,
                                   int64_t k, const ProductSizes& sizes = {});

// What a call did, for tests and benches.
struct ProductCounts {
  int64_t hits = 0;    // pairs that were scored exactly
  int64_t passes = 0;  // over all items, of all groups of queries
  int64_t waves = 0;
};

// keys[query * k + i] becomes the key (scores.cuh) of the query's i-th best item; 0 where there are
// no more. *not_finite becomes the least of itself and query << 32 | index of the pairs, excluded
// ones among them, whose score was found to be NaN or infinite; if there is any, at least one is
// found, and the keys mean nothing. It must be all ones before. Queued on the context's stream,
// which has been waited for on return.
ProductCounts product_top_k(const ProductInput& input, const ProductWorkspace& workspace,
                            unsigned long long* keys, unsigned long long* not_finite,
                            Context& context);

}  // namespace pytrace::cuda
