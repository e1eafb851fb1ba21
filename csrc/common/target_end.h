// Closes what target_begin.h opened.
#if defined(PYTRACE_TARGET_STRING)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
