// What stands between Python and a kernel on every call: kept thin, because a search among a
// hundred items takes two microseconds and pybind11's own dispatch takes a third of one.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <new>
#include <stdexcept>

namespace pytrace::bindings {

// Lets other Python threads run while a kernel does. (pybind11's gil_scoped_release also looks its
// internals up in two dictionaries.)
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() { PyEval_RestoreThread(state_); }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

// Turns the exception in flight into Python's, as pybind11 would.
inline void raise_in_python() {
  try {
    throw;
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::length_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

// A function of kArguments positional arguments as CPython's fastest calling convention has it.
// `function` takes the array of them and returns a new reference.
template <PyObject* (*function)(PyObject* const*), Py_ssize_t kArguments>
PyObject* called_fast(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != kArguments) {
    return PyErr_Format(PyExc_TypeError, "the function takes %zd arguments, but %zd were given",
                        kArguments, count);
  }
  try {
    return function(arguments);
  } catch (...) {
    raise_in_python();
    return nullptr;
  }
}

// Adds such a function to the module; `signature` is its name and parameters as Python writes them,
// which inspect.signature reads: "name(a, b, /)\n--\n\n".
template <PyObject* (*function)(PyObject* const*), Py_ssize_t kArguments>
void define_fast(pybind11::module_& module, const char* name, const char* signature) {
  static PyMethodDef definition{};
  definition.ml_name = name;
  definition.ml_meth = reinterpret_cast<PyCFunction>(
      reinterpret_cast<void (*)()>(&called_fast<function, kArguments>));
  definition.ml_flags = METH_FASTCALL;
  definition.ml_doc = signature;
  const auto module_name = pybind11::str(module.attr("__name__"));
  auto made = pybind11::reinterpret_steal<pybind11::object>(
      PyCFunction_NewEx(&definition, nullptr, module_name.ptr()));
  if (!made) throw pybind11::error_already_set();
  module.add_object(name, made);
}

}  // namespace pytrace::bindings
