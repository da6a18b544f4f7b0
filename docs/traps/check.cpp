// STD_TORCH_CHECK puts function, file and line before the sentence that the user should read.
//
// $ g++ -std=c++20 check.cpp -isystem $TORCH/include -o check
// $ ./check
// main, check.cpp:12, a must be float32
#include <torch/headeronly/util/Exception.h>

#include <cstdio>

int main() {
  try {
    STD_TORCH_CHECK(false, "a must be float32");
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
}
