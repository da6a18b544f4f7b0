// A weak symbol loads no library, and a linker told to link what is needed drops one that has nothing else to offer.
//
// $ g++ -shared -fPIC weak.cpp -L$TORCH/lib -Wl,--as-needed -ltorch -o dropped.so
// $ LD_LIBRARY_PATH=$TORCH/lib python -c "import ctypes; print(ctypes.CDLL('./dropped.so').bound())"
// 0
// $ g++ -shared -fPIC weak.cpp -L$TORCH/lib -Wl,--no-as-needed -ltorch -o kept.so
// $ LD_LIBRARY_PATH=$TORCH/lib python -c "import ctypes; print(ctypes.CDLL('./kept.so').bound())"
// 1
extern "C" __attribute__((weak)) int aoti_torch_device_type_cpu(); // of libtorch_cpu, which libtorch.so needs

extern "C" int bound() {
  return aoti_torch_device_type_cpu != nullptr;
}
