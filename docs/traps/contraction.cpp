// GCC fuses a product and a sum wherever the processor can: the same source, different bits.
//
// $ g++ -O2 -march=x86-64-v3 contraction.cpp -o fused
// $ ./fused
// 5.96046e-08
// $ g++ -O2 -march=x86-64-v3 -ffp-contract=off contraction.cpp -o not_fused
// $ ./not_fused
// 0
#include <cstdio>

int main() {
  volatile float input = 1 + 0x1p-12f;
  const float a = input;
  std::printf("%g\n", a * a - (1 + 0x1p-11f));
}
