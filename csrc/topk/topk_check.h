// What a search must satisfy before any kernel sees it, on the processor and on cards alike.
#pragma once

#include <cstdint>

#include "topk/topk.h"

namespace pytrace {

// Throws std::invalid_argument with the numbers unless queries and items are of one width.
void require_same_width(int64_t query_cols, int64_t item_cols);

// The same for k, the offsets and the rows to exclude; of queries and items the shapes alone are
// looked at.
void check_search(const TopKInput& input, int64_t k);

// The sentences for a score that has no place in an order: a value that is NaN or infinite, or an
// overflow.
[[noreturn]] void fail_not_finite(const char* name, int64_t row, int64_t col);
[[noreturn]] void fail_overflow(int64_t query, int64_t item);

}  // namespace pytrace
