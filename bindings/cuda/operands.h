// Arrays that a CUDA call reads and returns: NumPy's on the host; on a card its own, or anybody's
// that DLPack or __cuda_array_interface__ describes, where they lie.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cuda/runtime.h"

namespace pytrace::bindings {

namespace py = pybind11;

enum class Element {
  kBool,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};

int64_t element_bytes(Element element);
const char* element_name(Element element);

template <typename T>
constexpr Element element_of();
template <>
constexpr Element element_of<float>() {
  return Element::kFloat32;
}
template <>
constexpr Element element_of<double>() {
  return Element::kFloat64;
}
template <>
constexpr Element element_of<int64_t>() {
  return Element::kInt64;
}
template <>
constexpr Element element_of<int32_t>() {
  return Element::kInt32;
}
template <>
constexpr Element element_of<bool>() {
  return Element::kBool;
}

// An array on a card that this module made: contiguous, owned by whoever holds it.
class DeviceArray {
 public:
  DeviceArray(std::vector<int64_t> shape, Element element, int device);

  void* data() const { return memory_->data(); }
  const std::vector<int64_t>& shape() const { return shape_; }
  Element element() const { return element_; }
  int device() const { return device_; }
  int64_t size() const;
  int64_t bytes() const { return size() * element_bytes(element_); }
  const std::shared_ptr<cuda::DeviceMemory>& memory() const { return memory_; }

 private:
  std::vector<int64_t> shape_;
  Element element_;
  int device_;
  std::shared_ptr<cuda::DeviceMemory> memory_;
};

// An array to read, wherever it lies.
struct Operand {
  std::string name;
  const void* data = nullptr;
  bool on_device = false;
  int device = 0;
  Element element = Element::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements
  py::object owner;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const;
  bool contiguous() const;
};

// Reads an array of real numbers: one on a card in place; anything else through NumPy, with its
// rows contiguous (a copy if they are not). bfloat16 is known by its name (ml_dtypes). On a card,
// what is not contiguous within its rows is refused.
Operand operand_of(py::handle object, const char* name);

void require_rank(const Operand& operand, int64_t rank);

// The device of a call: that of the operands on cards, which must agree with each other and with
// `asked` (-1: not said); device 0 if there are none.
int device_of(std::initializer_list<const Operand*> operands, int asked);

// Whether results are to stay on the card: one of the operands lies there.
bool any_on_device(std::initializer_list<const Operand*> operands);

// Contiguous host values of T, converted if needed; brought from the card if they lie there. For
// what the host must look at: offsets, rows to exclude.
template <typename T>
std::vector<T> host_values(const Operand& operand);

// Copies `bytes` between the host and the card, and waits.
void copy_to_device(const void* from, void* to, size_t bytes);
void copy_to_host(const void* from, void* to, size_t bytes);

// The array as a Python object: a DeviceArray if it stays on the card, else a NumPy array.
py::object device_result(DeviceArray array, bool stays);

}  // namespace pytrace::bindings
