#include "cuda/runtime.h"

#include "calls.h"
#include "cuda/module.h"

namespace pytrace::bindings {
namespace {

namespace py = pybind11;

// Raises the class of pytrace.errors; the module itself can be loaded without it.
void raise_device_unavailable(const char* message) {
  const py::object error = py::module_::import("pytrace.errors").attr("DeviceUnavailableError");
  PyErr_SetString(error.ptr(), message);
}

void translate(std::exception_ptr failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const cuda::DeviceUnavailable& error) {
    raise_device_unavailable(error.what());
  } catch (const cuda::OutOfDeviceMemory& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  }
}

// (driver, runtime, problem, [(number, name, major, minor, multiprocessors, bytes)])
py::tuple installation() {
  cuda::Installation found;
  {
    const ReleasedGil released;
    found = cuda::installation();
  }
  py::list devices;
  for (const cuda::DeviceInfo& device : found.devices) {
    devices.append(py::make_tuple(device.number, device.name, device.major, device.minor,
                                  device.multiprocessors, device.memory));
  }
  return py::make_tuple(found.driver, found.runtime, found.problem, devices);
}

}  // namespace

void register_cuda_runtime(py::module_& module) {
  py::register_local_exception_translator(&translate);
  module.def("installation", &installation);
  module.def(
      "require_device", [](int device) { cuda::require_device(device); }, py::arg("device"),
      py::pos_only());
  module.def("empty_cache", [] {
    const ReleasedGil released;
    cuda::empty_cache();
  });
#if defined(PYTRACE_CUDA_EMULATION)
  module.attr("emulated") = true;
#else
  module.attr("emulated") = false;
#endif
}

}  // namespace pytrace::bindings
