#include "cuda/rows.h"

#include <limits>

#include "calls.h"
#include "cuda/module.h"
#include "cuda/operands.h"
#include "cuda/transfers.h"

namespace pytrace::bindings {
namespace {

py::object normalize(py::handle vectors, int asked) {
  Operand rows = operand_of(vectors, "vectors");
  if (rows.rank() != 1) require_rank(rows, 2);
  if (!rows.on_device && rows.element != Element::kFloat32) {
    rows = operand_of(py::array_t<float>(py::reinterpret_borrow<py::array>(rows.owner)), "vectors");
  }
  if (rows.element != Element::kFloat32) {
    throw py::type_error(std::string("vectors on a card must hold float32, not ") +
                         element_name(rows.element));
  }
  const int device = device_of({&rows}, asked);
  const int64_t dim = rows.shape.back();
  const int64_t count = rows.rank() == 1 ? 1 : rows.shape[0];
  const int64_t stride = rows.rank() == 1 ? dim : rows.strides[0];
  DeviceArray out(rows.shape, Element::kFloat32, device);
  int64_t bad = std::numeric_limits<int64_t>::max();
  {
    const ReleasedGil released;
    const cuda::Borrowed context(device);
    cuda::Workspace workspace;
    const auto first_bad = workspace.take<int64_t>(1);
    const auto values = workspace.take<float>(rows.on_device ? 0 : count * dim);
    context->lay_out(workspace);
    cuda::require(cudaMemcpyAsync(first_bad.data(), &bad, sizeof bad, cudaMemcpyHostToDevice,
                                  context->stream()),
                  "copying to the card");
    const auto* from = static_cast<const float*>(rows.data);
    if (!rows.on_device) {
      cuda::Uploader uploader(*context);
      uploader.send({rows.data, stride * 4, dim * 4, count}, values.data());
      cuda::Event sent;
      sent.record(context->copy_stream());
      sent.hold(context->stream());
      from = values.data();
    }
    cuda::normalize(from, count, dim, rows.on_device ? stride : dim,
                    static_cast<float*>(out.data()), first_bad.data(), context->stream());
    cuda::require(cudaMemcpyAsync(&bad, first_bad.data(), sizeof bad, cudaMemcpyDeviceToHost,
                                  context->stream()),
                  "copying from the card");
    context->finish();
  }
  if (bad != std::numeric_limits<int64_t>::max()) {
    throw py::value_error("vectors[" + std::to_string(bad / dim) + ", " +
                          std::to_string(bad % dim) + "] is NaN or infinite; it has no direction");
  }
  return device_result(std::move(out), rows.on_device);
}

}  // namespace

void register_cuda_rows(py::module_& module) {
  module.def("normalize", &normalize, py::arg("vectors"), py::arg("device"), py::pos_only());
}

}  // namespace pytrace::bindings
