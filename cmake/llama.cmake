# How the Makefile builds llama.cpp out of llama-cpp-python's source: a quarter of the time, and all that pytrace uses.
# Read by CMake after llama-cpp-python's project() line (CMAKE_PROJECT_llama_cpp_INCLUDE).

# llama-cpp-python switches the common library on in the cache; a variable of the same name wins (policy CMP0126).
set(LLAMA_BUILD_COMMON OFF)
# Every model architecture is a small file under one large header; 16 files at once parse that header once.
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL set_property TARGET llama PROPERTY UNITY_BUILD ON)
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL set_property TARGET llama PROPERTY UNITY_BUILD_BATCH_SIZE 16)
