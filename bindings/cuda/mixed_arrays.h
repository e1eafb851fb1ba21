// Arguments of which some may lie on a card and some on the host, which are then read as the
// processor's bindings read them, and results that lie where the arguments do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "common/views.h"
#include "cuda/operands.h"

namespace pytrace::bindings {

// An array that the card may read where it lies, as T; on the host converted as the processor's
// binding does.
template <typename T>
Operand rows_operand(py::handle object, const char* name) {
  if (!py::isinstance<py::array>(object)) {
    Operand operand = operand_of(object, name);
    if (operand.on_device) {
      if (operand.element != element_of<T>()) {
        throw py::type_error(std::string(name) + " on a card must hold " +
                             element_name(element_of<T>()) + ", not " +
                             element_name(operand.element));
      }
      return operand;
    }
  }
  return operand_of(rows_of<T>(real_array(object, name)), name);
}

// Whether the array says that it lies on a card.
inline bool on_card(py::handle object) {
  return !py::isinstance<py::array>(object) && !py::isinstance<py::list>(object) &&
         operand_of(object, "array").on_device;
}

// Whole numbers, wherever they lie, as a vector of the host that nobody else can change.
inline std::vector<int64_t> whole_vector(py::handle object, const char* name) {
  if (on_card(object)) {
    const Operand operand = operand_of(object, name);
    require_rank(operand, 1);
    return host_values<int64_t>(operand);
  }
  const py::array values = int64_vector(object, name);
  const auto* data = static_cast<const int64_t*>(values.data());
  return {data, data + values.size()};
}

// The arrays of a result, one after the other: on the card if an operand lies there, else on the
// host.
class ResultArrays {
 public:
  ResultArrays(std::initializer_list<const Operand*> operands, int asked)
      : on_card_(any_on_device(operands)), device_(device_of(operands, asked)) {}

  bool on_card() const { return on_card_; }
  int device() const { return device_; }

  // With the GIL.
  template <typename T>
  T* add(int64_t count) {
    if (on_card_) {
      DeviceArray array(std::vector<int64_t>{count}, element_of<T>(), device_);
      auto* data = static_cast<T*>(array.data());
      arrays_.push_back(py::cast(std::move(array)));
      return data;
    }
    py::array array(py::dtype(element_name(element_of<T>())), std::vector<py::ssize_t>{count});
    auto* data = static_cast<T*>(array.mutable_data());
    arrays_.push_back(std::move(array));
    return data;
  }

  py::tuple tuple() const {
    py::tuple out(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) out[i] = arrays_[i];
    return out;
  }

 private:
  bool on_card_;
  int device_;
  std::vector<py::object> arrays_;
};

inline Span<const int64_t> span(const std::vector<int64_t>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

}  // namespace pytrace::bindings
