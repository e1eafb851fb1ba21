#include "cuda/topk_scan.cuh"

namespace pytrace::cuda {

template void launch_scan<float>(const ScanArguments&, const ScanShape&, int, cudaStream_t);

}  // namespace pytrace::cuda
