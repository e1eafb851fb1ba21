#include "cuda/topk_scan.cuh"

namespace pytrace::cuda {

template void launch_scan<Bfloat16>(const ScanArguments&, const ScanShape&, int, cudaStream_t);

}  // namespace pytrace::cuda
