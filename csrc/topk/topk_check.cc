#include "topk/topk_check.h"

#include <limits>
#include <string>

namespace pytrace {

void require_same_width(int64_t query_cols, int64_t item_cols) {
  if (query_cols != item_cols) {
    fail("queries have " + to_text(query_cols) + " dimensions, but items have " +
         to_text(item_cols));
  }
}

void check_search(const TopKInput& input, int64_t k) {
  const int64_t queries = input.queries.rows;
  require_same_width(input.queries.cols, input.items.cols);
  if (k < 0) fail("k is " + to_text(k) + "; it must be at least 0");
  if (input.items.rows > int64_t{std::numeric_limits<uint32_t>::max()}) {
    fail("items has " + to_text(input.items.rows) + " rows; one call searches at most 4294967295");
  }
  if (input.item_offsets.size > 0) {
    require_offsets(input.item_offsets, input.items.rows, "offsets");
    const int64_t questions = input.item_offsets.size - 1;
    if (input.query_offsets.size > 0) {
      require_offsets(input.query_offsets, queries, "query_offsets");
      if (input.query_offsets.size != input.item_offsets.size) {
        fail("query_offsets has " + to_text(input.query_offsets.size) +
             " values, but offsets has " + to_text(input.item_offsets.size));
      }
    } else if (questions != queries) {
      fail("offsets has " + to_text(input.item_offsets.size) + " values, but " + to_text(queries) +
           " queries need " + to_text(queries + 1));
    }
  }
  if (input.exclude_offsets.size > 0) {
    if (input.exclude_offsets.size != queries + 1) {
      fail("exclude's offsets have " + to_text(input.exclude_offsets.size) + " values, but " +
           to_text(queries) + " queries need " + to_text(queries + 1));
    }
    require_offsets(input.exclude_offsets, input.excluded.size, "exclude's offsets");
  }
  for (int64_t i = 0; i < input.excluded.size; ++i) {
    if (input.excluded[i] < -1 || input.excluded[i] >= input.items.rows) {
      fail("exclude holds " + to_text(input.excluded[i]) + ", but items has " +
           to_text(input.items.rows) + " rows; only -1 stands for none");
    }
  }
}

void fail_not_finite(const char* name, int64_t row, int64_t col) {
  fail(std::string(name) + "[" + to_text(row) + ", " + to_text(col) +
       "] is NaN or infinite; scores cannot be ordered");
}

void fail_overflow(int64_t query, int64_t item) {
  fail("a score of queries[" + to_text(query) + "] against items[" + to_text(item) +
       "] or one soon after overflows float32; make the vectors shorter");
}

}  // namespace pytrace
