// The list of the kernels in this copy of the library, for calls that bypass the dispatcher.
#pragma once

#include <torch/csrc/stable/stableivalue_conversions.h>

#include <cstdint>
#include <vector>

#include "operator.h"

namespace elementwise {

struct KernelOfLibrary {
  const Signature& signature;
  unsigned form;
  int results;
  int32_t device_type; // torch's ordinal
  bool broadcasts;
  // Replaces the arguments on the stack by the results. The caller owns both.
  void (*call)(StableIValue* stack);
};

// Static initializers fill it when the library is opened.
inline std::vector<KernelOfLibrary>& kernels_of_library() {
  static std::vector<KernelOfLibrary> all;
  return all;
}

} // namespace elementwise
