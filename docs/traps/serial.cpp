// at::parallel_for is a header template over OpenMP: without -fopenmp it is one thread, and no warning.
//
// $ g++ -std=c++20 -O1 serial.cpp -isystem $TORCH/include -L$TORCH/lib -ltorch_cpu -lc10 -o without
// $ LD_LIBRARY_PATH=$TORCH/lib ./without
// 1 of 2 threads
// $ g++ -std=c++20 -O1 -fopenmp serial.cpp -isystem $TORCH/include -L$TORCH/lib -ltorch_cpu -lc10 -o with
// $ LD_LIBRARY_PATH=$TORCH/lib ./with
// 2 of 2 threads
#include <ATen/Parallel.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <thread>

int main() {
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  at::parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  std::printf("%zu of %d threads\n", threads.size(), at::get_num_threads());
}
