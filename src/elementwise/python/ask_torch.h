// What a small call asks torch, from C: whether anything observes it, and what an object of Python is as a tensor.
//
// Python takes 30 to 110 ns to answer a question, and a call has a dozen of them. So torch's own C++ is asked, outside
// of its stable ABI, on those torches that the tests ran on (_layer/torch_private.py); and Python on every other.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "../contract.h"
#include "../kernels_of_library.h"
#include "../system.h"
#include "../tensor.h"

namespace elementwise::python {

// What Python knows of torch. Set at the import, and kept as long as the process runs.
struct Torch {
  // A function, or a dictionary and a key; and the answer where nothing observes, which is False, 0 or -1: there is one
  // object of each.
  struct Question {
    PyObject *of, *key, *quiet;
  };
  // A thread's changes to what it dispatches to: {0, 0} if there is none.
  struct DispatchKeys {
    uint64_t included, excluded;
    bool operator==(const DispatchKeys&) const = default;
  };
  // Functions of torch, each of which may be null.
  struct {
    bool (*requires_grad)(const void* implementation); // of a tensor
    int64_t (*function_modes)();                       // how many
    bool (*has_callbacks)();                           // of a profiler
    void (*bump_version)(AtenTensorHandle tensor);
    void (*set_data)(AtenTensorHandle tensor, AtenTensorHandle value); // as `tensor.data = value` does
    PyObject* (*wrap)(AtenTensorHandle tensor);                        // moves from it
    // Of the dispatcher's entry for an operator: whether a kernel is registered for a key, and the one that is called.
    bool (*has_kernel)(const void* entry, uint16_t key);
    const void* (*kernel)(const void* entry, uint16_t key);
    // Of the stable ABI from torch 2.14 on. Objects and types are PyObject*.
    AOTITorchError (*from_object)(void* object, AtenTensorHandle* tensor);
    AOTITorchError (*to_object)(AtenTensorHandle tensor, void* type, void** object);
  } in_c;
  std::string dispatch_keys;   // the symbol of the thread's own, or nothing
  DispatchKeys inference_mode; // what they are in it
  size_t implementation;       // where in an object the address of its tensor's implementation is, or 0
  size_t keys;                 // where in an implementation its dispatch keys are, or 0
  std::vector<Question> of_keys, others;
  PyObject *Tensor, *Parameter;
  PyObject *autocasts, *is_inference_mode_enabled, *keys_of_tensor, *dispatch; // functions
};

inline Torch& torch() {
  static Torch of_process{};
  return of_process;
}

// Python has set an error.
struct ErrorInPython : std::exception {};

// An owned reference.
class Object {
 public:
  explicit Object(PyObject* object) : object_(object) {
    if (!object) throw ErrorInPython();
  }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ~Object() {
    Py_XDECREF(object_);
  }
  PyObject* get() const {
    return object_;
  }
  PyObject* release() {
    return std::exchange(object_, nullptr);
  }

 private:
  PyObject* object_;
};

// Where torch has a function or variable, or null. Not by weak symbols, from which a tool that audits the module would
// take torch 2.14 for the oldest that it runs on.
inline void* find_symbol(const char* symbol) {
  // It needs torch's other libraries, which are therefore looked into, too.
  static void* const torch_python = [] {
    system::Handle found;
    system::for_each_object([&found](const char* path) {
      if (std::strstr(path, "/libtorch_python.")) found = system::opened(path);
      return found != nullptr;
    });
    return found.release();
  }();
  return torch_python ? dlsym(torch_python, symbol) : nullptr;
}

// Where they are known.
inline Torch::DispatchKeys dispatch_keys() {
  thread_local const void* const of_thread = find_symbol(torch().dispatch_keys.c_str());
  return *static_cast<const Torch::DispatchKeys*>(of_thread);
}

// Is there no transform, mode of dispatch, tracing or autocast? False where that is not known.
inline bool is_at_rest() {
  if (torch().dispatch_keys.empty()) return false;
  const Torch::DispatchKeys keys = dispatch_keys();
  return keys == Torch::DispatchKeys{} || keys == torch().inference_mode;
}

inline bool is_quiet(const std::vector<Torch::Question>& questions) {
  for (const auto& [of, key, quiet] : questions)
    if ((key ? PyDict_GetItemWithError(of, key) : Object(PyObject_CallNoArgs(of)).get()) != quiet) return false;
  return true;
}

// Does anything see which operators are called?
inline bool is_observed() {
  const auto& in_c = torch().in_c;
  return (in_c.function_modes && in_c.function_modes() > 0) || (in_c.has_callbacks && in_c.has_callbacks()) ||
         !is_quiet(torch().others) || !(is_at_rest() || is_quiet(torch().of_keys));
}

// On any device.
inline bool autocasts() {
  return !is_at_rest() && Object(PyObject_CallNoArgs(torch().autocasts)).get() != Py_False;
}

// Is nothing recorded, whatever requires grad? Inference mode excludes the keys of autograd, and grad mode may be on.
inline bool is_below_autograd() {
  if (!torch().dispatch_keys.empty()) return (dispatch_keys().excluded & torch().inference_mode.excluded) != 0;
  return Object(PyObject_CallNoArgs(torch().is_inference_mode_enabled)).get() != Py_False;
}

// See Tensor::bump_version. Torch's function counts below autograd's keys, too, where ATen's operators do not.
inline bool bump_version(AtenTensorHandle tensor) try {
  if (torch().dispatch_keys.empty() || dispatch_keys() != Torch::DispatchKeys{}) return false;
  torch().in_c.bump_version(tensor);
  return true;
} catch (const std::exception&) {
  return false; // it may not be written to
}

inline bool is_tensor(PyObject* x) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(x));
  return type == torch().Tensor || type == torch().Parameter;
}

// A handle points to the address of a tensor's implementation. An object holds that address, too: where it does is
// a handle. On a torch of which that is not known, the handle is `own`.
inline Tensor tensor_of(PyObject* object, OwnTensor& own) {
  if (torch().implementation)
    return Tensor(reinterpret_cast<AtenTensorHandle>(reinterpret_cast<char*>(object) + torch().implementation));
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(torch().in_c.from_object(object, &handle));
  own = OwnTensor(handle);
  return own;
}

inline Object object_of(OwnTensor tensor) {
  if (torch().in_c.wrap) return Object(torch().in_c.wrap(tensor.get()));
  void* object;
  TORCH_ERROR_CODE_CHECK(torch().in_c.to_object(tensor.get(), nullptr, &object));
  return Object(static_cast<PyObject*>(object));
}

// Does what `object.data = value` does. Where torch's function throws, Python finds torch's words for it.
inline void set_data(PyObject* object, OwnTensor value) {
  if (torch().in_c.set_data) try {
      OwnTensor own;
      return torch().in_c.set_data(tensor_of(object, own).get(), value.get());
    } catch (const std::exception&) {
    }
  if (PyObject_SetAttrString(object, "data", object_of(std::move(value)).get())) throw ErrorInPython();
}

inline bool requires_grad(PyObject* object, Tensor tensor) {
  if (torch().in_c.requires_grad) return torch().in_c.requires_grad(*reinterpret_cast<void* const*>(tensor.get()));
  return Object(PyObject_GetAttrString(object, "requires_grad")).get() != Py_False;
}

// What a call on a tensor dispatches to, as a set of bits.
inline uint64_t keys_of(PyObject* object, Tensor tensor) {
  if (torch().keys) return *reinterpret_cast<const uint64_t*>(*reinterpret_cast<char**>(tensor.get()) + torch().keys);
  const Object keys(PyObject_CallFunctionObjArgs(torch().keys_of_tensor, object, nullptr));
  return PyLong_AsUnsignedLongLong(Object(PyObject_CallMethod(keys.get(), "raw_repr", nullptr)).get());
}

inline PyObject* kept(nanobind::handle object) {
  return object.is_none() ? nullptr : object.inc_ref().ptr();
}

// Where, in bytes, a value is among so many words; or 0.
inline size_t find(uint64_t value, const void* words, size_t count) {
  const auto* const begin = static_cast<const uint64_t*>(words);
  const auto* const found = std::find(begin, begin + count, value);
  return found == begin + count ? 0 : (found - begin) * sizeof(value);
}

// A kernel of this library, and when it is what torch's dispatcher would call in the end, and nothing before it that
// matters: for tensors that are nothing but memory, as long as no one registers another kernel of the operator.
class PlainKernel {
 public:
  explicit PlainKernel(const KernelOfLibrary& kernel) : kernel(kernel), name_(kernel.signature.qualified(kernel.form)) {
    namespace nb = nanobind;
    std::string device = contract::device_name({{}, 0, nullptr, nullptr, 0, 0, kernel.device_type, -1});
    for (char& letter : device) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    const nb::object found = nb::borrow(torch().dispatch)(name_, device);
    if (found.is_none()) return;
    most_ = nb::cast<uint64_t>(found[0]);
    least_ = nb::cast<uint64_t>(found[1]);
    const nb::dict keys = found[3];
    for (size_t i = 0; i < keys_.size(); i++) {
      keys_[i].name = nb::cast<std::string>(keys.keys()[i]);
      keys_[i].key = nb::cast<uint16_t>(keys.values()[i]);
    }
    if (!torch().in_c.has_kernel || !torch().in_c.kernel) return;
    // pybind11 has the address of a c10::OperatorHandle after what each object begins with; that has that of the entry.
    const nb::handle object(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
    const auto* const handle =
        reinterpret_cast<const char*>(nb::object(found[2]).ptr()) + nb::cast<size_t>(object.attr("__basicsize__"));
    entry_ = **reinterpret_cast<const void* const* const*>(handle);
    note(device);
  }

  const KernelOfLibrary& kernel;

  // Whether it is for tensors which have these keys together, and those in common. Tensors that were made in inference
  // mode lack those of autograd.
  bool takes(uint64_t together, uint64_t common) const {
    return !(together & ~most_) && (common & least_) == least_;
  }
  // Whether there is a tensor among them which autograd sees.
  bool is_differentiable(uint64_t together) const {
    return together != least_;
  }

  // The kernel that the dispatcher has now for a key is this library's.
  void note(const std::string& key) {
    for (Key& one : keys_)
      if (entry_ && one.name == key && torch().in_c.has_kernel(entry_, one.key))
        one.kernel = torch().in_c.kernel(entry_, one.key);
  }

  bool is_registered() const {
    if (!entry_) return true; // not known
    for (const Key& one : keys_)
      if (one.kernel ? torch().in_c.kernel(entry_, one.key) != one.kernel : torch().in_c.has_kernel(entry_, one.key))
        return false;
    return true;
  }

  bool is_of(const std::string& name) const {
    return name_ == name;
  }

 private:
  struct Key {
    std::string name;
    uint16_t key = 0;
    const void* kernel = nullptr; // this library's, or null if it has none
  };

  std::string name_;
  uint64_t most_ = 0, least_ = 1; // no tensor
  const void* entry_ = nullptr;
  std::array<Key, 5> keys_;
};

// In the order of kernels_of_library().
inline std::vector<PlainKernel>& plain_kernels() {
  static std::vector<PlainKernel> all;
  return all;
}

inline void define_questions(nanobind::module_& m) {
  namespace nb = nanobind;
  // `known` is the module _layer/torch_private.py. Returns whether tensors are reached. A second call, when Python
  // reloads its modules, changes nothing.
  m.def("set_up", [](const nb::handle known, const nb::handle tensor, const nb::handle parameter) {
    Torch& set = torch();
    const auto are_reached = [&set] {
      return (set.implementation || set.in_c.from_object) && (set.in_c.wrap || set.in_c.to_object);
    };
    if (set.Tensor) return are_reached();
    const auto address = [&known](auto& of, const char* name) {
      of = reinterpret_cast<std::remove_reference_t<decltype(of)>>(nb::cast<uintptr_t>(known.attr(name)));
    };
    address(set.in_c.requires_grad, "requires_grad");
    address(set.in_c.function_modes, "function_modes");
    address(set.in_c.has_callbacks, "has_callbacks");
    address(set.in_c.bump_version, "bump_version");
    address(set.in_c.set_data, "set_data");
    address(set.in_c.wrap, "wrap");
    address(set.in_c.from_object, "from_object");
    address(set.in_c.to_object, "to_object");
    address(set.in_c.has_kernel, "has_kernel");
    address(set.in_c.kernel, "kernel");
    if (set.in_c.bump_version) bumps_version = bump_version;
    set.dispatch_keys = nb::cast<std::string>(known.attr("dispatch_keys"));
    if (const nb::object example = known.attr("example"); !example.is_none()) {
      const auto address = nb::cast<uintptr_t>(example.attr("_cdata"));
      const auto size = nb::cast<size_t>(example.type().attr("__basicsize__"));
      set.implementation = find(address, example.ptr(), size / sizeof(address));
      constexpr size_t kWords = 24; // an implementation has more
      set.keys =
          find(nb::cast<uint64_t>(known.attr("keys_of_example")), reinterpret_cast<const void*>(address), kWords);
    }
    const auto ask = [&known](std::vector<Torch::Question>& questions, const char* name) {
      for (const nb::handle question : known.attr(name)) {
        const nb::object object = question[0], key = question[1];
        const nb::object of = key.is_none() ? object : nb::getattr(object, "__dict__");
        questions.push_back({kept(of), kept(key), kept(question[2])});
      }
    };
    ask(set.of_keys, "QUIET_KEYS");
    ask(set.others, "QUIET");
    set.Tensor = kept(tensor);
    set.Parameter = kept(parameter);
    set.autocasts = kept(known.attr("autocasts"));
    set.is_inference_mode_enabled = kept(known.attr("is_inference_mode_enabled"));
    set.keys_of_tensor = kept(known.attr("dispatch_keys_of"));
    set.dispatch = kept(known.attr("dispatch"));
    for (const KernelOfLibrary& kernel : kernels_of_library()) plain_kernels().emplace_back(kernel);
    return are_reached();
  });
  // The kernel that was registered last for an operator and a dispatch key is this library's.
  m.def("note_kernel", [](const std::string& op, const std::string& key) {
    for (PlainKernel& kernel : plain_kernels())
      if (kernel.is_of(op)) kernel.note(key);
  });
  // Called before inference mode, and in it: notes what that changes, whatever else is on. Later calls change nothing.
  m.def("note_inference_mode", [] {
    static int calls = 0;
    if (torch().dispatch_keys.empty() || calls++ >= 2) return;
    const Torch::DispatchKeys keys = dispatch_keys();
    torch().inference_mode.included ^= keys.included;
    torch().inference_mode.excluded ^= keys.excluded;
  });
  m.def("address", [](const char* symbol) { return reinterpret_cast<uintptr_t>(find_symbol(symbol)); });
}

} // namespace elementwise::python
