// Kernels that are wrong on purpose: the emulated card must find each fault, and must be content
// with its right twin.
//
//   faults NAME wrong    ends with 0 and prints what was found; 1 if nothing was
//   faults NAME right    ends with 0 if nothing was found, and the result is true
//   faults sanitizer     prints which one it was built with: none, address or thread
//
// The sanitizers end the process themselves, or its status, with what they found on stderr.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/device.cuh"

namespace pytrace::cuda {
namespace {

constexpr int kThreads = 96;

// ---- kernels: `wrong` picks the faulty twin ---------------------------------------------------

// Every thread reads its neighbour's value from shared memory.
__global__ void missing_barrier(bool wrong, int* out) {
  SharedArrays shared;
  int* values = shared.take<int>(kThreads);
  const auto own = static_cast<int>(threadIdx.x);
  values[own] = own;
  if (!wrong) __syncthreads();
  out[own] = values[(own + 1) % kThreads];
}

// The same within a warp, where __syncwarp is enough and a shuffle is not.
__global__ void missing_warp_barrier(bool wrong, int* out) {
  SharedArrays shared;
  int* values = shared.take<int>(kThreads);
  const auto own = static_cast<int>(threadIdx.x);
  values[own] = own;
  if (wrong) {
    __shfl_xor_sync(kWholeWarp, own, 1);
  } else {
    __syncwarp();
  }
  out[own] = values[own ^ 1] ^ 1;
}

__global__ void different_barriers(bool wrong, int* out) {
  if (wrong && threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = static_cast<int>(threadIdx.x);
}

__global__ void barrier_and_collective(bool wrong, int* out) {
  const auto own = static_cast<int>(threadIdx.x);
  if (wrong && own == 7) {
    __syncthreads();
  } else {
    __ballot_sync(kWholeWarp, true);
  }
  if (!wrong) __syncthreads();
  out[own] = own;
}

__global__ void lane_left(bool wrong, int* out) {
  const auto own = static_cast<int>(threadIdx.x);
  out[own] = own;
  if (wrong && own == 5) return;
  out[own] = __shfl_sync(kWholeWarp, own, own % kWarp);
}

__global__ void lane_not_in_mask(bool wrong, int* out) {
  const auto own = static_cast<int>(threadIdx.x);
  out[own] = own;
  const bool low = own % kWarp < 16;
  const int source = wrong ? own % kWarp ^ 16 : own % kWarp;
  out[own] = __shfl_sync(low ? 0xffffu : 0xffff0000u, own, source);
}

__global__ void masks_disagree(bool wrong, int* out) {
  const auto own = static_cast<int>(threadIdx.x);
  const unsigned mask = wrong && own % kWarp == 3 ? 0xffu : kWholeWarp;
  out[own] = own + (__any_sync(mask, own < 0) ? 1 : 0);
}

__global__ void too_much_shared(bool wrong, int* out) {
  SharedArrays shared;
  int* values = shared.take<int>(wrong ? kThreads + 4 : kThreads);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void past_shared(bool wrong, int* out) {
  SharedArrays shared;
  int* values = shared.take<int>(kThreads / 2);
  int* others = shared.take<int>(kThreads / 2);
  const auto own = static_cast<int>(threadIdx.x);
  if (own < kThreads / 2) {
    values[wrong ? own + 1 : own] = own;
  } else {
    others[own - kThreads / 2] = own;
  }
  __syncthreads();
  out[own] = own < kThreads / 2 ? own : others[own - kThreads / 2];
}

__global__ void copy_not_awaited(bool wrong, const int* from, int* out) {
  SharedArrays shared;
  int* values = shared.take<int>(kThreads);
  const auto own = static_cast<int>(threadIdx.x);
  if (own < kThreads / 4) copy_async(values + own * 4, from + own * 4);
  commit_copies();
  if (!wrong) wait_copies<0>();
  __syncthreads();
  out[own] = values[own];
}

__global__ void misaligned(bool wrong, const int* from, int* out) {
  const auto own = static_cast<int>(threadIdx.x);
  const Pack<int> four = load_pack(from + own / 4 * 4 + (wrong ? 1 : 0));
  out[own] = four.values[own % 4];
}

// Blocks add to one number.
__global__ void lost_additions(bool wrong, int* out) {
  if (wrong) {
    out[0] = out[0] + 1;
  } else {
    atomicAdd(out, 1);
  }
}

__global__ void past_workspace(bool wrong, int* piece, int* out) {
  const auto own = static_cast<int>(threadIdx.x);
  piece[wrong ? own + 1 : own] = own;
  out[own] = own;
}

__global__ void not_initialised(bool wrong, int* out) {
  if (!wrong) out[threadIdx.x] = 0;
  out[threadIdx.x] += static_cast<int>(threadIdx.x);
}

__global__ void count_up(int* out) {
  for (int i = 0; i < kThreads; ++i) out[i] = i;
}

// ---- what runs them ----------------------------------------------------------------------------

struct Bench {
  Context context{0};
  Workspace workspace;
  Workspace::Piece<int> out, numbers, piece;
  std::vector<int> counted = std::vector<int>(kThreads + 4);

  Bench() {
    out = workspace.take<int>(kThreads);
    numbers = workspace.take<int>(kThreads + 4);
    piece = workspace.take<int>(kThreads);
    context.lay_out(workspace);
    for (int i = 0; i < kThreads + 4; ++i) counted[static_cast<size_t>(i)] = i;
    require(cudaMemcpyAsync(numbers.data(), counted.data(), counted.size() * sizeof(int),
                            cudaMemcpyHostToDevice, context.stream()),
            "copying");
  }

  std::vector<int> result() {
    std::vector<int> values(kThreads);
    require(cudaMemcpyAsync(values.data(), out.data(), values.size() * sizeof(int),
                            cudaMemcpyDeviceToHost, context.stream()),
            "copying");
    context.finish();
    return values;
  }

  template <typename... Parameters, typename... Arguments>
  void run(size_t shared_bytes, void (*kernel)(Parameters...), Arguments... arguments) {
    launch(context.stream(), dim3(1), dim3(kThreads), shared_bytes, kernel, arguments...);
  }
};

bool counts_up(const std::vector<int>& values, int plus = 0) {
  for (int i = 0; i < kThreads; ++i) {
    if (values[static_cast<size_t>(i)] != (i + plus) % kThreads) return false;
  }
  return true;
}

// Whether the result is true. A name that is not known leaves garbage, which is not.
bool try_case(const std::string& name, bool wrong) {
  Bench bench;
  int* out = bench.out.data();
  const size_t ints = kThreads * sizeof(int);
  if (name == "missing_barrier") {
    bench.run(ints, missing_barrier, wrong, out);
    return counts_up(bench.result(), 1);
  }
  if (name == "missing_warp_barrier") bench.run(ints, missing_warp_barrier, wrong, out);
  if (name == "different_barriers") bench.run(0, different_barriers, wrong, out);
  if (name == "barrier_and_collective") bench.run(0, barrier_and_collective, wrong, out);
  if (name == "lane_left") {
    bench.run(0, lane_left, wrong, out);
    std::vector<int> values = bench.result();
    for (int& value : values) value = value % kWarp;
    return values[40] == 8;
  }
  if (name == "lane_not_in_mask") bench.run(0, lane_not_in_mask, wrong, out);
  if (name == "masks_disagree") bench.run(0, masks_disagree, wrong, out);
  if (name == "too_much_shared") bench.run(ints, too_much_shared, wrong, out);
  if (name == "past_shared") bench.run(ints, past_shared, wrong, out);
  if (name == "copy_not_awaited") {
    bench.run(ints, copy_not_awaited, wrong, bench.numbers.data(), out);
  }
  if (name == "misaligned") bench.run(0, misaligned, wrong, bench.numbers.data(), out);
  if (name == "past_workspace") bench.run(0, past_workspace, wrong, bench.piece.data(), out);
  if (name == "not_initialised") bench.run(0, not_initialised, wrong, out);
  if (name == "too_many_threads") {
    launch(bench.context.stream(), dim3(1), dim3(wrong ? 1056 : 1), 0, count_up, out);
  }
  if (name == "lost_additions") {
    require(cudaMemsetAsync(out, 0, sizeof(int), bench.context.stream()), "clearing");
    launch(bench.context.stream(), dim3(4), dim3(32), 0, lost_additions, wrong, out);
    return bench.result()[0] == 128;
  }
  if (name == "event_not_awaited") {
    Event counted;
    launch(bench.context.stream(), dim3(1), dim3(1), 0, count_up, out);
    counted.record(bench.context.stream());
    if (!wrong) counted.hold(bench.context.copy_stream());
    HostMemory pinned(ints);
    require(cudaMemcpyAsync(pinned.data(), out, ints, cudaMemcpyDeviceToHost,
                            bench.context.copy_stream()),
            "copying");
    bench.context.finish();
    const int* values = static_cast<const int*>(pinned.data());
    return counts_up(std::vector<int>(values, values + kThreads));
  }
  if (name == "host_pointer_as_device") {
    int host = 0;
    require(cudaMemcpyAsync(wrong ? &host : out, bench.counted.data(), sizeof(int),
                            cudaMemcpyHostToDevice, bench.context.stream()),
            "copying");
    launch(bench.context.stream(), dim3(1), dim3(1), 0, count_up, out);
  }
  return counts_up(bench.result());
}

}  // namespace
}  // namespace pytrace::cuda

int main(int count, char** arguments) {
#if defined(__SANITIZE_ADDRESS__)
  const char* sanitizer = "address";
#elif defined(__SANITIZE_THREAD__)
  const char* sanitizer = "thread";
#else
  const char* sanitizer = "none";
#endif
  if (count == 2 && std::strcmp(arguments[1], "sanitizer") == 0) {
    std::printf("%s\n", sanitizer);
    return 0;
  }
  if (count != 3) {
    std::fprintf(stderr, "usage: faults NAME right|wrong\n");
    return 2;
  }
  const bool wrong = std::strcmp(arguments[2], "wrong") == 0;
  // A random order may be the right one by chance.
  std::string found;
  for (int round = 0; round < 20 && found.empty(); ++round) {
    try {
      if (!pytrace::cuda::try_case(arguments[1], wrong)) found = "the result is not true";
    } catch (const std::exception& error) {
      found = error.what();
    }
  }
  std::printf("%s\n", found.empty() ? "nothing found" : found.c_str());
  return found.empty() == wrong ? 1 : 0;
}
