#include "cuda/topk_scan.cuh"

namespace pytrace::cuda {

template void launch_scan<int8_t>(const ScanArguments&, const ScanShape&, int, cudaStream_t);

}  // namespace pytrace::cuda
