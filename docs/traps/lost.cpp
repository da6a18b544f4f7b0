// What registers itself is lost from a static library: nothing asks for it by name.
//
// $ g++ -DKERNEL -c lost.cpp -o kernel.o
// $ ar rc libkernel.a kernel.o
// $ g++ lost.cpp -L. -lkernel -o lost
// $ ./lost
// 0 registered
// $ g++ lost.cpp -L. -Wl,--whole-archive -lkernel -Wl,--no-whole-archive -o kept
// $ ./kept
// 1 registered
#include <cstdio>

extern int registered;

#ifdef KERNEL
static const int at_load = ++registered; // as the STABLE_TORCH_LIBRARY blocks do
#else
int registered = 0;

int main() {
  std::printf("%d registered\n", registered);
}
#endif
