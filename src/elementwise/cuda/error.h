// The error of a CUDA launch, and its message for the user, which says what to do about it.
#pragma once

#include <fstream>
#include <string>

namespace elementwise::cuda {

struct Error {
  // The values of cudaError_t for which `explain` knows a cure, and kInvalid for tensors that a kernel cannot take.
  // start.h checks the numbers.
  enum : int { kNone = 0, kInvalid = 1, kOldDriver = 35, kNoCode = 209, kNewPtx = 222 };

  int code = kNone;
  const char* text = "";
  int compiled_with = 0; // the version of CUDA that compiled the kernels: 12090 for 12.9
  int driver_runs = 0;   // the newest version of CUDA that the driver runs
  int capability = 0;    // the device's compute capability: 86 for 8.6; 0 if the driver is too old to tell

  explicit operator bool() const {
    return code != kNone;
  }
};

// The driver's version, such as "550.54.15", or nothing if the system does not show it.
inline std::string driver_version() {
  std::string version;
  std::ifstream("/sys/module/nvidia/version") >> version;
  return version;
}

// The message. `driver` is the result of driver_version().
inline std::string explain(const Error& error, const std::string& driver) {
  const auto cuda = [](int version) {
    return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  const std::string the_driver =
      "the driver (" + (driver.empty() ? "" : driver + ", ") + "up to " + cuda(error.driver_runs) + ")";
  const std::string arch = error.capability > 0 ? std::to_string(error.capability) : "the GPU's compute capability";
  const std::string compile = "compile the package with -Csetup-args=-Dgpu_archs=" + arch;
  const int major = error.compiled_with / 1000; // a driver runs kernels of every minor version of its major version
  const std::string needed = major == 12 ? "r525" : major == 13 ? "r580" : "one for CUDA " + std::to_string(major);
  std::string cure;
  switch (error.code) {
    case Error::kOldDriver:
      cure = "; " + the_driver + " is too old for kernels compiled with " + cuda(error.compiled_with) +
             ": update it to " + needed + " or newer, or compile the package with an older nvcc";
      break;
    case Error::kNewPtx:
      cure = "; there is no code for this GPU, and " + the_driver + " cannot compile the PTX of " +
             cuda(error.compiled_with) + " for it: update it to one for " + cuda(error.compiled_with) +
             " or newer, or " + compile;
      break;
    case Error::kNoCode:
      cure = "; kernels compiled with " + cuda(error.compiled_with) + " have no code for this GPU: " + compile;
      break;
  }
  return std::string("the CUDA kernel could not be launched: ") + error.text + cure;
}

} // namespace elementwise::cuda
