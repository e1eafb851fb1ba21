// What the fuzz targets share: a check that ends the process, and the choice of the instruction
// set.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdio>
#include <cstdlib>

#include "common/dispatch.h"

#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

inline void choose_isa(FuzzedDataProvider* data) {
  static const std::vector<pytrace::Isa> isas = pytrace::available_isas();
  const size_t at = data->ConsumeIntegralInRange<size_t>(0, isas.size() - 1);
  pytrace::set_active_isa(pytrace::isa_name(isas[at]));
}
