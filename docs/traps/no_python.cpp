// A Python module cannot be opened by a process without Python.
//
// $ g++ no_python.cpp -o no_python
// $ LD_LIBRARY_PATH=$TORCH/lib ./no_python $MODULE
// undefined symbol: Py...
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

int main(int, char** arguments) {
  if (!dlopen(arguments[1], RTLD_NOW)) std::puts(std::strstr(dlerror(), "undefined symbol"));
}
