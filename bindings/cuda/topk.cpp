#include "topk/topk.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "calls.h"
#include "cuda/module.h"
#include "cuda/operands.h"
#include "cuda/topk_search.h"
#include "topk/topk_check.h"
#include "topk_arguments.h"

namespace pytrace::bindings {
namespace {

bool searched(Element element, bool item) {
  return element == Element::kFloat32 || element == Element::kFloat16 ||
         element == Element::kBfloat16 || (item && element == Element::kInt8);
}

cuda::Number number_of(Element element) {
  if (element == Element::kFloat16) return cuda::Number::kFloat16;
  if (element == Element::kBfloat16) return cuda::Number::kBfloat16;
  return element == Element::kInt8 ? cuda::Number::kInt8 : cuda::Number::kFloat32;
}

// Rows of a type that the kernels read; what else the host has is converted to float32.
Operand rows_operand(py::handle object, const char* name, bool item) {
  Operand operand = operand_of(object, name);
  if (operand.rank() != 1 || item) require_rank(operand, 2);
  if (searched(operand.element, item)) return operand;
  if (operand.on_device) {
    throw py::type_error(std::string(name) + " on a card must hold float32, float16" +
                         (item ? ", bfloat16 or int8" : " or bfloat16") + ", not " +
                         element_name(operand.element));
  }
  return operand_of(convert<float>(py::reinterpret_borrow<py::array>(operand.owner)), name);
}

cuda::PlacedRows placed(const Operand& operand) {
  cuda::PlacedRows out;
  const bool single = operand.rank() == 1;
  out.on_card = operand.on_device;
  out.rows.data = operand.data;
  out.rows.rows = single ? 1 : operand.shape[0];
  out.rows.cols = operand.shape.back();
  out.rows.stride = single ? out.rows.cols : operand.strides[0];
  out.rows.type = number_of(operand.element);
  return out;
}

bool lies_on_card(py::handle object) {
  return !object.is_none() && !py::isinstance<py::array>(object) && !PyLong_Check(object.ptr()) &&
         !py::isinstance<py::sequence>(object) &&
         (py::hasattr(object, "__dlpack_device__") ||
          py::hasattr(object, "__cuda_array_interface__"));
}

// An array on a card, copied to the host.
py::object copied(py::handle object, const char* name) {
  const Operand operand = operand_of(object, name);
  if (!operand.on_device) return operand.owner;
  const auto copy = [&](auto zero) -> py::object {
    using T = decltype(zero);
    const std::vector<T> values = host_values<T>(operand);
    py::array_t<T> array(std::vector<py::ssize_t>(operand.shape.begin(), operand.shape.end()));
    std::copy(values.begin(), values.end(), array.mutable_data());
    return std::move(array);
  };
  const bool fraction = operand.element == Element::kFloat16 ||
                        operand.element == Element::kFloat32 ||
                        operand.element == Element::kFloat64;
  if (fraction) return copy(0.0f);
  return copy(int64_t{0});
}

// Offsets, scales and rows to exclude are checked on the host: arrays of them on a card, also those
// in a tuple or list, are copied there.
py::object on_host(py::handle object, const char* name) {
  if (lies_on_card(object)) return copied(object, name);
  if (!py::isinstance<py::tuple>(object) && !py::isinstance<py::list>(object))
    return py::reinterpret_borrow<py::object>(object);
  py::list parts(py::reinterpret_borrow<py::object>(object));
  bool changed = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const py::object part = parts[i];
    if (!lies_on_card(part)) continue;
    parts[i] = copied(part, name);
    changed = true;
  }
  if (!changed) return py::reinterpret_borrow<py::object>(object);
  if (py::isinstance<py::tuple>(object)) return py::tuple(parts);
  return std::move(parts);
}

// What both functions read, and what must outlive them.
struct Operands {
  Operand queries;
  Operand items;
  py::object scale;
  int device = 0;
  bool stays = false;
  cuda::SearchInput input;
};

Operands operands_of(py::handle queries, py::handle items, py::handle scale, int asked) {
  Operands out;
  out.queries = rows_operand(queries, "queries", false);
  out.items = rows_operand(items, "items", true);
  out.input.queries = placed(out.queries);
  out.input.items = placed(out.items);
  if (!scale.is_none()) {
    if (out.items.element != Element::kInt8) {
      throw py::value_error("scale is for int8 items, but items holds " +
                            std::string(element_name(out.items.element)));
    }
    const py::array factors = scale_of(on_host(scale, "scale"), out.input.items.rows.rows);
    out.input.scale = span_view<float>(factors);
    out.scale = factors;
  }
  out.device = device_of({&out.queries, &out.items}, asked);
  out.stays = any_on_device({&out.queries, &out.items});
  return out;
}

std::vector<int64_t> result_shape(const Operands& operands, int64_t columns) {
  if (operands.queries.rank() == 1) return {columns};
  return {operands.input.queries.rows.rows, columns};
}

template <typename T>
py::array host_result(const std::vector<int64_t>& shape) {
  if (shape.size() == 1) return new_array<T>({shape[0]});
  return new_array<T>({shape[0], shape[1]});
}

py::tuple top_k(py::handle queries, py::handle items, py::handle k, py::handle metric,
                py::handle offsets, py::handle query_offsets, py::handle exclude, py::handle scale,
                int asked) {
  const Metric kind = metric_of(metric);
  const int64_t count = whole_number(k, "k", 0);
  Operands operands = operands_of(queries, items, scale, asked);
  TopKInput shapes;
  shapes.queries.rows = operands.input.queries.rows.rows;
  shapes.queries.cols = operands.input.queries.rows.cols;
  shapes.items.rows = operands.input.items.rows.rows;
  shapes.items.cols = operands.input.items.rows.cols;
  const RaggedArrays arrays =
      read_ragged(on_host(offsets, "offsets"), on_host(query_offsets, "query_offsets"),
                  on_host(exclude, "exclude"), &shapes);
  require_room(count, shapes.queries.rows);
  check_search(shapes, count);
  operands.input.item_offsets = shapes.item_offsets;
  operands.input.query_offsets = shapes.query_offsets;
  operands.input.exclude_offsets = shapes.exclude_offsets;
  std::vector<int64_t> excluded(shapes.excluded.begin(), shapes.excluded.end());
  for (int64_t i = 0; i + 1 < shapes.exclude_offsets.size; ++i) {
    std::sort(excluded.begin() + shapes.exclude_offsets[i],
              excluded.begin() + shapes.exclude_offsets[i + 1]);
  }
  operands.input.excluded = {excluded.data(), static_cast<int64_t>(excluded.size())};

  const std::vector<int64_t> shape = result_shape(operands, count);
  const auto search = [&](float* scores, int64_t* indices) {
    const ReleasedGil released;
    const cuda::Borrowed context(operands.device);
    cuda::top_k(operands.input, count, kind, {scores, indices, operands.stays}, *context);
  };
  if (operands.stays) {
    DeviceArray scores(shape, Element::kFloat32, operands.device);
    DeviceArray indices(shape, Element::kInt64, operands.device);
    search(static_cast<float*>(scores.data()), static_cast<int64_t*>(indices.data()));
    return py::make_tuple(device_result(std::move(scores), true),
                          device_result(std::move(indices), true));
  }
  py::array scores = host_result<float>(shape);
  py::array indices = host_result<int64_t>(shape);
  search(values_of<float>(scores), values_of<int64_t>(indices));
  return py::make_tuple(scores, indices);
}

py::object similarity(py::handle queries, py::handle items, py::handle metric, py::handle scale,
                      int asked) {
  const Metric kind = metric_of(metric);
  const Operands operands = operands_of(queries, items, scale, asked);
  require_same_width(operands.input.queries.rows.cols, operands.input.items.rows.cols);
  const std::vector<int64_t> shape = result_shape(operands, operands.input.items.rows.rows);
  const auto score = [&](float* out) {
    const ReleasedGil released;
    const cuda::Borrowed context(operands.device);
    cuda::similarity(operands.input, kind, out, operands.stays, *context);
  };
  if (operands.stays) {
    DeviceArray out(shape, Element::kFloat32, operands.device);
    score(static_cast<float*>(out.data()));
    return device_result(std::move(out), true);
  }
  py::array out = host_result<float>(shape);
  score(values_of<float>(out));
  return std::move(out);
}

}  // namespace

void register_cuda_topk(py::module_& module) {
  module.def("top_k", &top_k, py::arg("queries"), py::arg("items"), py::arg("k"), py::arg("metric"),
             py::arg("offsets"), py::arg("query_offsets"), py::arg("exclude"), py::arg("scale"),
             py::arg("device"), py::pos_only());
  module.def("similarity", &similarity, py::arg("queries"), py::arg("items"), py::arg("metric"),
             py::arg("scale"), py::arg("device"), py::pos_only());
}

}  // namespace pytrace::bindings
