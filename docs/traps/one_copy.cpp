// Compiled for two instruction sets, an inline function is still one function: the linker keeps one copy.
//
// $ g++ -DLEVEL=512 -c one_copy.cpp -o avx512.o
// $ g++ -DLEVEL=0 -c one_copy.cpp -o baseline.o
// $ g++ one_copy.cpp avx512.o baseline.o -o one_copy
// $ ./one_copy
// baseline runs 512
#include <cstdio>

template <int level>
int kernel();

#ifdef LEVEL
inline int instructions() { // in an unnamed namespace there would be two
  return LEVEL;
}
template <>
int kernel<LEVEL>() {
  return instructions();
}
#else
int main() {
  std::printf("baseline runs %d\n", kernel<0>());
}
#endif
