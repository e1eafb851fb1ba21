# How the CUDA module is built; CMakeLists.txt names its sources.

# The emulated card: the .cu files as C++ for the host.
if(PYTRACE_CUDA_EMULATION)
  set_source_files_properties(${PYTRACE_CUDA_SOURCES} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
  set(PYTRACE_EMULATION_SOURCES tests/cuda_emulation/card.cc tests/cuda_emulation/threads.cc)
  add_library(pytrace_cuda_emulation STATIC ${PYTRACE_EMULATION_SOURCES})
  target_include_directories(pytrace_cuda_emulation BEFORE PUBLIC tests/cuda_emulation)
  target_link_libraries(pytrace_cuda_emulation PUBLIC pytrace_options)
  if(PYTRACE_SANITIZE MATCHES "thread")
    # What all fibers share must not be taken for the kernels' own; see threads.cc.
    set_source_files_properties(${PYTRACE_EMULATION_SOURCES} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
    target_compile_definitions(pytrace_cuda_emulation PRIVATE PYTRACE_EMULATION_TSAN)
  endif()
  add_library(pytrace_cuda STATIC ${PYTRACE_CUDA_SOURCES} ${PYTRACE_CUDA_HOST_SOURCES})
  target_link_libraries(pytrace_cuda PUBLIC pytrace_threads pytrace_cuda_emulation)
  if(PYTRACE_DRIVERS)
    add_executable(faults tests/cuda_emulation/faults.cc)
    target_link_libraries(faults PRIVATE pytrace_cuda)
    foreach(driver cuda_merge cuda_product)
      add_executable(${driver} tests/native/${driver}.cc)
      target_link_libraries(${driver} PRIVATE pytrace_cuda)
    endforeach()
  endif()
  if(PYTRACE_PYTHON)
    pybind11_add_module(_cuda NO_EXTRAS ${PYTRACE_CUDA_BINDINGS})
    target_include_directories(_cuda PRIVATE bindings)
    target_link_libraries(_cuda PRIVATE pytrace_cuda)
    target_compile_definitions(_cuda PRIVATE PYTRACE_CUDA_MODULE=_cuda_emulated)
    set_target_properties(_cuda PROPERTIES OUTPUT_NAME _cuda_emulated)
  endif()
  return()
endif()

string(TOLOWER "${PYTRACE_CUDA}" PYTRACE_CUDA_WANTED)
if(PYTRACE_CUDA_WANTED STREQUAL "off" OR NOT PYTRACE_PYTHON)
  return()
elseif(NOT PYTRACE_CUDA_WANTED MATCHES "^(auto|on)$")
  message(FATAL_ERROR "PYTRACE_CUDA is '${PYTRACE_CUDA}'; it must be auto, on or off")
endif()

# Compiling for all cards takes nine minutes on two cores; where there is no card, nobody is helped by it.
if(PYTRACE_CUDA_WANTED STREQUAL "auto")
  file(GLOB PYTRACE_CARDS /proc/driver/nvidia/gpus/* /dev/nvidia[0-9]*)
  if(NOT PYTRACE_CARDS AND NOT EXISTS /dev/dxg)  # dxg: a card seen from Linux under Windows
    message(STATUS "CUDA: there is no card here, so the module for GPUs is left out; PYTRACE_CUDA=on builds it for all cards")
    return()
  endif()
  if(NOT PYTRACE_CUDA_ARCHITECTURES AND NOT CMAKE_VERSION VERSION_LESS 3.24)  # an older one does not know "native"
    set(PYTRACE_CUDA_ARCHITECTURES native)
  endif()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(PYTRACE_CUDA_WANTED STREQUAL "on")
    message(FATAL_ERROR "PYTRACE_CUDA is on, but no nvcc was found; put it on the PATH or set CUDACXX")
  endif()
  message(STATUS "CUDA: no nvcc was found, so the module for GPUs is left out")
  return()
endif()

# Machine code for what this nvcc knows of the list, and portable code (PTX) of the oldest, for cards between those and
# for what comes later: a driver translates portable code for the same or a newer capability alone.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT PYTRACE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE PYTRACE_CUDA_KNOWN)
  foreach(architecture 80 86 89 90 100 120)
    if(PYTRACE_CUDA_KNOWN MATCHES "sm_${architecture}[^0-9]")
      list(APPEND PYTRACE_CUDA_ARCHITECTURES ${architecture}-real)
      if(NOT PYTRACE_CUDA_OLDEST)
        set(PYTRACE_CUDA_OLDEST ${architecture})
      endif()
    endif()
  endforeach()
  if(NOT PYTRACE_CUDA_OLDEST)
    message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} knows none of the architectures 80 to 120; use CUDA 11.1 or later")
  endif()
  list(APPEND PYTRACE_CUDA_ARCHITECTURES ${PYTRACE_CUDA_OLDEST}-virtual)
endif()
set(CMAKE_CUDA_ARCHITECTURES ${PYTRACE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} for ${PYTRACE_CUDA_ARCHITECTURES}")

add_library(pytrace_cuda STATIC ${PYTRACE_CUDA_SOURCES} ${PYTRACE_CUDA_HOST_SOURCES})
set_target_properties(pytrace_cuda PROPERTIES CUDA_VISIBILITY_PRESET hidden)
target_include_directories(pytrace_cuda PUBLIC csrc)
target_include_directories(pytrace_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
# No products and sums are fused but those that say so (fmaf): scores are then the processor's and the emulated card's,
# to the last bit where no exp, log or pow is involved, and do not depend on what the compiler puts together where.
# Not -Wpedantic and -Wconversion: nvcc hands the host compiler code of its own that they object to. The emulation
# compiles the same sources with them.
target_compile_options(pytrace_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --fmad=false -Xcompiler=-Wall,-Wextra,-Wshadow>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow>)
if(PYTRACE_WERROR)
  target_compile_options(pytrace_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror> $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
target_link_libraries(pytrace_cuda PUBLIC CUDA::cudart_static Threads::Threads)

pybind11_add_module(_cuda NO_EXTRAS ${PYTRACE_CUDA_BINDINGS})
target_include_directories(_cuda PRIVATE bindings)
target_link_libraries(_cuda PRIVATE pytrace_cuda pytrace_threads)
target_compile_definitions(_cuda PRIVATE PYTRACE_CUDA_MODULE=_cuda)
install(TARGETS _cuda LIBRARY DESTINATION pytrace)
