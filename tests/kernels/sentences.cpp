// Tests the error messages of a failed launch: they name the driver's version, the version of CUDA that compiled the
// kernels, and the remedy.
#include <cstdio>

#include "elementwise/cuda/error.h"

namespace {

using elementwise::cuda::explain;

bool passed = true;

void expect(const std::string& got, const std::string& want) {
  if (got == want) return;
  std::fprintf(stderr, "got   %s\nnot   %s\n", got.c_str(), want.c_str());
  passed = false;
}

} // namespace

int main() {
  const std::string failed = "the CUDA kernel could not be launched: ";
  expect(
      explain({35, "CUDA driver version is insufficient for CUDA runtime version", 13000, 12040, 0}, "550.54.15"),
      failed +
          "CUDA driver version is insufficient for CUDA runtime version; the driver (550.54.15, up to CUDA 12.4) is "
          "too old for kernels compiled with CUDA 13.0: update it to r580 or newer, or compile the package with an "
          "older nvcc");
  expect(
      explain({35, "too old", 12090, 11080, 0}, ""), // the system does not show the driver's version
      failed +
          "too old; the driver (up to CUDA 11.8) is too old for kernels compiled with CUDA 12.9: update it to r525 "
          "or newer, or compile the package with an older nvcc");
  expect(
      explain({222, "the provided PTX was compiled with an unsupported toolchain.", 12090, 12080, 110}, "570.86"),
      failed +
          "the provided PTX was compiled with an unsupported toolchain.; there is no code for this GPU, and the "
          "driver (570.86, up to CUDA 12.8) cannot compile the PTX of CUDA 12.9 for it: update it to one for CUDA 12.9 "
          "or "
          "newer, or compile the package with -Csetup-args=-Dgpu_archs=110");
  expect(
      explain({209, "no kernel image is available for execution on the device", 12090, 12090, 70}, "575.51"),
      failed +
          "no kernel image is available for execution on the device; kernels compiled with CUDA 12.9 have no code "
          "for this GPU: compile the package with -Csetup-args=-Dgpu_archs=70");
  expect(explain({2, "out of memory", 12090, 12090, 90}, "575.51"), failed + "out of memory");
  return passed ? 0 : 1;
}
