#include <pybind11/stl.h>

#include <limits>
#include <utility>

#include "calls.h"
#include "cuda/module.h"
#include "cuda/operands.h"

namespace pytrace::bindings {
namespace {

// DLPack's structures (version 0.8, which every library still exchanges), as its specification lays
// them out.
struct DlDevice {
  int32_t type;
  int32_t id;
};
struct DlType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlType type;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};

constexpr int32_t kDlCuda = 2;
constexpr int32_t kDlCudaManaged = 13;
constexpr uint8_t kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4, kDlBool = 6;

struct Kind {
  Element element;
  const char* name;
  const char* type_string;  // as __cuda_array_interface__ has it; null: it has none
  DlType type;
};

constexpr Kind kKinds[] = {
    {Element::kBool, "bool", "|b1", {kDlBool, 8, 1}},
    {Element::kInt8, "int8", "|i1", {kDlInt, 8, 1}},
    {Element::kUint8, "uint8", "|u1", {kDlUint, 8, 1}},
    {Element::kInt16, "int16", "<i2", {kDlInt, 16, 1}},
    {Element::kUint16, "uint16", "<u2", {kDlUint, 16, 1}},
    {Element::kInt32, "int32", "<i4", {kDlInt, 32, 1}},
    {Element::kUint32, "uint32", "<u4", {kDlUint, 32, 1}},
    {Element::kInt64, "int64", "<i8", {kDlInt, 64, 1}},
    {Element::kUint64, "uint64", "<u8", {kDlUint, 64, 1}},
    {Element::kFloat16, "float16", "<f2", {kDlFloat, 16, 1}},
    {Element::kBfloat16, "bfloat16", nullptr, {kDlBfloat, 16, 1}},
    {Element::kFloat32, "float32", "<f4", {kDlFloat, 32, 1}},
    {Element::kFloat64, "float64", "<f8", {kDlFloat, 64, 1}},
};

const Kind& kind_of(Element element) {
  for (const Kind& kind : kKinds) {
    if (kind.element == element) return kind;
  }
  throw std::logic_error("an element without a kind");
}

template <typename Matches>
Element find_kind(const std::string& name, const std::string& what, const Matches& matches) {
  for (const Kind& kind : kKinds) {
    if (matches(kind)) return kind.element;
  }
  throw py::type_error(name + " holds " + what + "; it must hold real numbers");
}

void set_contiguous(Operand& operand) {
  operand.strides.assign(operand.shape.size(), 1);
  for (size_t axis = operand.shape.size(); axis-- > 1;) {
    operand.strides[axis - 1] = operand.strides[axis] * std::max<int64_t>(operand.shape[axis], 1);
  }
}

// What kernels need of another library's array.
void require_readable(const Operand& operand) {
  if (operand.size() > 0 &&
      reinterpret_cast<uintptr_t>(operand.data) % element_bytes(operand.element) != 0) {
    throw py::value_error(operand.name + " begins amid an element: its address is no multiple of " +
                          std::to_string(element_bytes(operand.element)) + " bytes; copy it first");
  }
  if (operand.shape.empty()) return;
  if (operand.shape.back() > 1 && operand.strides.back() != 1) {
    throw py::value_error(operand.name +
                          " has steps within its rows; on the card make it contiguous first");
  }
}

Operand from_interface(py::handle object, const char* name, const py::dict& interface) {
  Operand operand;
  operand.name = name;
  operand.on_device = true;
  operand.owner = py::reinterpret_borrow<py::object>(object);
  if (interface.contains("mask") && !interface["mask"].is_none()) {
    throw py::value_error(std::string(name) + " is masked; masks are not read");
  }
  const auto type_string = interface["typestr"].cast<std::string>();
  operand.element = find_kind(name, type_string, [&](const Kind& kind) {
    return kind.type_string != nullptr && type_string == kind.type_string;
  });
  operand.shape = interface["shape"].cast<std::vector<int64_t>>();
  operand.data =
      reinterpret_cast<const void*>(interface["data"].cast<py::tuple>()[0].cast<uintptr_t>());
  if (interface.contains("strides") && !interface["strides"].is_none()) {
    operand.strides = interface["strides"].cast<std::vector<int64_t>>();
    if (operand.strides.size() != operand.shape.size()) {
      throw py::value_error(std::string(name) + " has " + std::to_string(operand.shape.size()) +
                            " dimensions but " + std::to_string(operand.strides.size()) +
                            " strides");
    }
    for (int64_t& stride : operand.strides) {
      if (stride % element_bytes(operand.element) != 0) {
        throw py::value_error(std::string(name) + " has strides that are no whole elements");
      }
      stride /= element_bytes(operand.element);
    }
  } else {
    set_contiguous(operand);
  }
  if (operand.size() > 0) {
    cudaPointerAttributes attributes{};
    cuda::require(cudaPointerGetAttributes(&attributes, operand.data), "asking where an array is");
    if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
      throw py::value_error(std::string(name) +
                            " says that it is on a card, but its memory is not there");
    }
    operand.device = attributes.device;
  }
  // Those that name no stream (PyTorch's) may be filled by the default one, which the streams of
  // this module do not wait for.
  uintptr_t handle = 0;
  if (interface.contains("stream") && !interface["stream"].is_none())
    handle = interface["stream"].cast<uintptr_t>();
  const cuda::OnDevice on_device(operand.device);
  const ReleasedGil released;
  cuda::require(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(handle)),
                "what fills an array");
  return operand;
}

Operand from_dlpack(py::handle object, int device, const char* name) {
  cuda::require_device(device);
  const cuda::OnDevice on_device(device);
  // The producer makes the array ready for the default stream of its card, and that is waited for.
  const py::object capsule = object.attr("__dlpack__")(py::arg("stream") = 1);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") == 0) {
    throw py::value_error(std::string(name) +
                          ".__dlpack__ gave no \"dltensor\", or one that was taken already");
  }
  auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  Operand operand;
  operand.name = name;
  operand.on_device = true;
  operand.owner = py::capsule(managed, [](void* taken) {
    auto* tensor = static_cast<DlManagedTensor*>(taken);
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
  const DlTensor& tensor = managed->tensor;
  operand.device = tensor.device.id;
  operand.data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  operand.element = find_kind(name,
                              "DLPack's type " + std::to_string(tensor.type.code) + " of " +
                                  std::to_string(tensor.type.bits) + " bits",
                              [&](const Kind& kind) {
                                return kind.type.code == tensor.type.code &&
                                       kind.type.bits == tensor.type.bits && tensor.type.lanes == 1;
                              });
  operand.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  if (tensor.strides != nullptr) {
    operand.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  } else {
    set_contiguous(operand);
  }
  {
    const ReleasedGil released;
    cuda::require(cudaStreamSynchronize(nullptr), "what fills an array");
  }
  return operand;
}

Operand from_numpy(py::handle object, const char* name) {
  py::array array = py::isinstance<py::array>(object) ? py::reinterpret_borrow<py::array>(object)
                                                      : py::array::ensure(object);
  if (!array) {
    PyErr_Clear();
    throw py::value_error(std::string(name) +
                          " is no array of numbers: its rows may differ in length");
  }
  Operand operand;
  operand.name = name;
  const auto type_name = std::string(py::str(array.dtype().attr("name")));
  // An empty list has no type of its own.
  if (array.size() == 0 && array.dtype().kind() == 'O') array = py::array_t<float>(array);
  operand.element = find_kind(name, std::string(py::str(array.dtype())), [&](const Kind& kind) {
    return std::string(py::str(array.dtype().attr("name"))) == kind.name;
  });
  const py::ssize_t last = array.ndim() - 1;
  const bool rows =
      array.ndim() == 0 || array.shape(last) <= 1 || array.strides(last) == array.itemsize();
  bool whole = true;
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    whole = whole && array.strides(axis) % array.itemsize() == 0;
  }
  const char order = array.dtype().byteorder();
  const bool aligned =
      (py::detail::array_proxy(array.ptr())->flags & py::detail::npy_api::NPY_ARRAY_ALIGNED_) != 0;
  if (!rows || !whole || !aligned || (order != '=' && order != '|')) {
    array = py::module_::import("numpy").attr("require")(
        array, array.dtype().attr("newbyteorder")("="), "CA");
  }
  operand.data = array.data();
  operand.shape.assign(array.shape(), array.shape() + array.ndim());
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    operand.strides.push_back(array.strides(axis) / array.itemsize());
  }
  operand.owner = std::move(array);
  return operand;
}

py::array to_numpy(const DeviceArray& array) {
  std::vector<py::ssize_t> shape(array.shape().begin(), array.shape().end());
  const char* name =
      array.element() == Element::kBfloat16 ? "uint16" : element_name(array.element());
  py::array out(py::dtype(name), shape);
  const cuda::OnDevice on_device(array.device());
  void* to = out.mutable_data();
  const ReleasedGil released;
  copy_to_host(array.data(), to, static_cast<size_t>(array.bytes()));
  return out;
}

py::dict interface_of(const DeviceArray& array) {
  const Kind& kind = kind_of(array.element());
  if (kind.type_string == nullptr) {
    throw py::attribute_error("__cuda_array_interface__ has no bfloat16; use __dlpack__");
  }
  py::dict out;
  out["shape"] = py::tuple(py::cast(array.shape()));
  out["typestr"] = kind.type_string;
  out["data"] = py::make_tuple(
      array.size() == 0 ? uintptr_t{0} : reinterpret_cast<uintptr_t>(array.data()), false);
  out["version"] = 3;
  out["strides"] = py::none();
  out["stream"] = py::none();  // whoever has the array has it after its values
  return out;
}

// Keeps an array alive while another library reads it.
struct Exported {
  DlManagedTensor managed;
  std::shared_ptr<cuda::DeviceMemory> memory;
  std::vector<int64_t> shape;
};

py::capsule to_dlpack(const DeviceArray& array, const py::object&, const py::object&,
                      const py::object& device, const py::object& copy) {
  if (!device.is_none() &&
      !device.equal(py::make_tuple(static_cast<int>(kDlCuda), array.device()))) {
    throw py::buffer_error("the array is on card " + std::to_string(array.device()) +
                           " and is handed over there alone; numpy() copies it to the host");
  }
  if (!copy.is_none() && copy.cast<bool>()) {
    throw py::buffer_error("the array is handed over without a copy; copy it afterwards");
  }
  auto exported = std::make_unique<Exported>();
  exported->memory = array.memory();
  exported->shape = array.shape();
  DlTensor& tensor = exported->managed.tensor;
  tensor.data = array.size() == 0 ? nullptr : array.data();
  tensor.device = {kDlCuda, array.device()};
  tensor.rank = static_cast<int32_t>(exported->shape.size());
  tensor.type = kind_of(array.element()).type;
  tensor.shape = exported->shape.data();
  tensor.strides = nullptr;
  tensor.byte_offset = 0;
  exported->managed.context = exported.get();
  exported->managed.deleter = [](DlManagedTensor* managed) {
    delete static_cast<Exported*>(managed->context);
  };
  PyObject* capsule = PyCapsule_New(&exported->managed, "dltensor", [](PyObject* object) {
    if (PyCapsule_IsValid(object, "dltensor") == 0) return;  // somebody took it
    auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(object, "dltensor"));
    managed->deleter(managed);
  });
  if (capsule == nullptr) throw py::error_already_set();
  exported.release();
  return py::reinterpret_steal<py::capsule>(capsule);
}

DeviceArray to_device(py::handle object, int device) {
  const Operand operand = operand_of(object, "array");
  if (operand.on_device && operand.device != device) {
    throw py::value_error("array is on card " + std::to_string(operand.device) + ", not on " +
                          std::to_string(device));
  }
  const cuda::OnDevice on_device(device);
  DeviceArray out(operand.shape, operand.element, device);
  py::object packed = operand.owner;
  const void* from = operand.data;
  if (!operand.contiguous()) {
    if (operand.on_device) {
      throw py::value_error("array is not contiguous; make it so on the card first");
    }
    packed = py::module_::import("numpy").attr("ascontiguousarray")(operand.owner);
    from = py::reinterpret_borrow<py::array>(packed).data();
  }
  const auto bytes = static_cast<size_t>(out.bytes());
  const ReleasedGil released;
  if (operand.on_device) {
    cuda::require(cudaMemcpyAsync(out.data(), from, bytes, cudaMemcpyDeviceToDevice, nullptr),
                  "copying on the card");
    cuda::require(cudaStreamSynchronize(nullptr), "copying on the card");
  } else {
    copy_to_device(from, out.data(), bytes);
  }
  return out;
}

// Copies into an array that is there already: what a bench measures the card's own memory with.
void copy_into(const DeviceArray& from, DeviceArray& to) {
  if (from.shape() != to.shape() || from.element() != to.element()) {
    throw py::value_error("the arrays differ in shape or dtype");
  }
  if (from.device() != to.device()) {
    throw py::value_error("source is on card " + std::to_string(from.device()) +
                          ", but target on card " + std::to_string(to.device()));
  }
  const cuda::OnDevice on_device(from.device());
  const ReleasedGil released;
  cuda::require(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(from.bytes()),
                                cudaMemcpyDeviceToDevice, nullptr),
                "copying on the card");
  cuda::require(cudaStreamSynchronize(nullptr), "copying on the card");
}

}  // namespace

int64_t element_bytes(Element element) { return kind_of(element).type.bits / 8; }
const char* element_name(Element element) { return kind_of(element).name; }

DeviceArray::DeviceArray(std::vector<int64_t> shape, Element element, int device)
    : shape_(std::move(shape)), element_(element), device_(device) {
  int64_t count = element_bytes(element);
  for (const int64_t length : shape_) {
    if (length > 0 && count > std::numeric_limits<int64_t>::max() / length) {
      throw std::invalid_argument("an array of so many values has no room in memory");
    }
    count *= length;
  }
  const cuda::OnDevice on_device(device);
  memory_ = std::make_shared<cuda::DeviceMemory>(static_cast<size_t>(count));
}

int64_t DeviceArray::size() const {
  int64_t count = 1;
  for (const int64_t length : shape_) count *= length;
  return count;
}

int64_t Operand::size() const {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

bool Operand::contiguous() const {
  int64_t expected = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] > 1 && strides[axis] != expected) return false;
    expected *= std::max<int64_t>(shape[axis], 1);
  }
  return true;
}

Operand operand_of(py::handle object, const char* name) {
  if (py::isinstance<DeviceArray>(object)) {
    const auto& array = object.cast<const DeviceArray&>();
    Operand operand;
    operand.name = name;
    operand.data = array.data();
    operand.on_device = true;
    operand.device = array.device();
    operand.element = array.element();
    operand.shape = array.shape();
    set_contiguous(operand);
    operand.owner = py::reinterpret_borrow<py::object>(object);
    return operand;
  }
  if (!py::isinstance<py::array>(object)) {
    if (py::hasattr(object, "__dlpack_device__")) {
      const auto place = object.attr("__dlpack_device__")().cast<py::tuple>();
      const auto type = place[0].attr("__int__")().cast<int32_t>();
      if (type == kDlCuda || type == kDlCudaManaged) {
        const auto device = place[1].attr("__int__")().cast<int32_t>();
        Operand operand = from_dlpack(object, device, name);
        require_readable(operand);
        return operand;
      }
    }
    if (py::hasattr(object, "__cuda_array_interface__")) {
      Operand operand =
          from_interface(object, name, object.attr("__cuda_array_interface__").cast<py::dict>());
      require_readable(operand);
      return operand;
    }
  }
  return from_numpy(object, name);
}

void require_rank(const Operand& operand, int64_t rank) {
  if (operand.rank() != rank) {
    throw py::value_error(operand.name + " has " + std::to_string(operand.rank()) +
                          " dimensions; it must have " + std::to_string(rank));
  }
}

int device_of(std::initializer_list<const Operand*> operands, int asked) {
  const Operand* first = nullptr;
  for (const Operand* operand : operands) {
    if (!operand->on_device) continue;
    if (asked >= 0 && operand->device != asked) {
      throw py::value_error(operand->name + " is on card " + std::to_string(operand->device) +
                            ", but device asks for card " + std::to_string(asked));
    }
    if (first != nullptr && operand->device != first->device) {
      throw py::value_error(first->name + " is on card " + std::to_string(first->device) +
                            ", but " + operand->name + " on card " +
                            std::to_string(operand->device));
    }
    if (first == nullptr) first = operand;
  }
  const int device = first != nullptr ? first->device : asked >= 0 ? asked : 0;
  cuda::require_device(device);
  return device;
}

bool any_on_device(std::initializer_list<const Operand*> operands) {
  for (const Operand* operand : operands) {
    if (operand->on_device) return true;
  }
  return false;
}

void copy_to_device(const void* from, void* to, size_t bytes) {
  cuda::require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, nullptr),
                "copying to the card");
  cuda::require(cudaStreamSynchronize(nullptr), "copying to the card");
}

void copy_to_host(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return;
  cuda::require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, nullptr),
                "copying from the card");
  cuda::require(cudaStreamSynchronize(nullptr), "copying from the card");
}

template <typename T>
std::vector<T> host_values(const Operand& operand) {
  py::array array;
  if (operand.on_device) {
    if (!operand.contiguous()) {
      throw py::value_error(operand.name + " is not contiguous; make it so on the card first");
    }
    array = py::array(py::dtype(element_name(operand.element)),
                      std::vector<py::ssize_t>(operand.shape.begin(), operand.shape.end()));
    const cuda::OnDevice on_device(operand.device);
    copy_to_host(operand.data, array.mutable_data(), static_cast<size_t>(array.nbytes()));
  } else {
    array = py::reinterpret_borrow<py::array>(operand.owner);
  }
  const char kind = array.dtype().kind();
  if (std::is_integral_v<T> && array.size() > 0 && kind != 'i' && kind != 'u') {
    throw py::type_error(operand.name + " holds " + std::string(py::str(array.dtype())) +
                         "; it must hold whole numbers");
  }
  const py::array_t<T, py::array::c_style | py::array::forcecast> converted(array);
  return std::vector<T>(converted.data(), converted.data() + converted.size());
}

template std::vector<int64_t> host_values<int64_t>(const Operand&);
template std::vector<int32_t> host_values<int32_t>(const Operand&);
template std::vector<double> host_values<double>(const Operand&);
template std::vector<float> host_values<float>(const Operand&);

py::object device_result(DeviceArray array, bool stays) {
  if (stays) return py::cast(std::move(array));
  return to_numpy(array);
}

void register_cuda_arrays(py::module_& module) {
  // The emulated card's is local, because a process may hold the module of real ones too.
#if defined(PYTRACE_CUDA_EMULATION)
  const py::module_local local(true);
#else
  const py::module_local local(false);
#endif
  py::class_<DeviceArray>(module, "Array", local)
      .def_property_readonly(
          "shape", [](const DeviceArray& array) { return py::tuple(py::cast(array.shape())); })
      .def_property_readonly("dtype",
                             [](const DeviceArray& array) { return element_name(array.element()); })
      .def_property_readonly("device", &DeviceArray::device)
      .def_property_readonly("nbytes", &DeviceArray::bytes)
      .def("numpy", &to_numpy)
      .def("__len__",
           [](const DeviceArray& array) {
             if (array.shape().empty())
               throw py::type_error("len() of an array without dimensions");
             return array.shape()[0];
           })
      .def_property_readonly("__cuda_array_interface__", &interface_of)
      .def("__dlpack__", &to_dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
           py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const DeviceArray& array) {
        return py::make_tuple(static_cast<int>(kDlCuda), array.device());
      });
  module.def("to_device", &to_device, py::arg("array"), py::arg("device"), py::pos_only());
  module.def("copy_into", &copy_into, py::arg("source"), py::arg("target"), py::pos_only());
}

}  // namespace pytrace::bindings
