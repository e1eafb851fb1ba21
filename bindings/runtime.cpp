#include <pybind11/stl.h>

#include "common/dispatch.h"
#include "common/ending.h"
#include "common/parallel.h"
#include "module.h"

namespace py = pybind11;

namespace pytrace::bindings {

void register_runtime(py::module_& module) {
  module.def("num_threads", &num_threads);
  module.def("set_num_threads", &set_num_threads, py::arg("threads"), py::pos_only());
  module.def("available_isas", [] {
    std::vector<std::string> names;
    for (Isa isa : available_isas()) names.emplace_back(isa_name(isa));
    return names;
  });
  module.def("active_isa", [] { return std::string(isa_name(active_isa())); });
  module.def("set_active_isa", &set_active_isa, py::arg("name"), py::pos_only());
  module.def("active_isa_error", &active_isa_error);
  module.def("end_on_signals", &end_on_signals, py::arg("descriptor"), py::arg("seconds"),
             py::pos_only());
  module.def("set_last_words", &set_last_words, py::arg("words"), py::pos_only());
  module.def("end_now", &end_now, py::arg("signal"), py::pos_only(),
             py::call_guard<py::gil_scoped_release>());
  module.def("end_quietly_on_signal", &end_quietly_on_signal, py::arg("signal"), py::pos_only());
}

}  // namespace pytrace::bindings
