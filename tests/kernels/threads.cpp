// Runs the CPU kernels with launch.h on several threads, for several callers at once. ThreadSanitizer then detects
// whether two threads write the same element, or whether one reads a variable that another one initialises.
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "elementwise/cpu/launch.h"
#include "operators.h"

namespace {

using namespace elementwise;

// Distributes the work as torch::stable::parallel_for does.
void parallel_for(int64_t end, int64_t grain, const auto& body) {
  constexpr int64_t kThreads = 4;
  const int64_t part = std::max((end + kThreads - 1) / kThreads, std::max<int64_t>(grain, 1));
  std::vector<std::thread> threads;
  for (int64_t begin = 0; begin < end; begin += part)
    threads.emplace_back([&body, begin, last = std::min(end, begin + part)] { body(begin, last); });
  for (std::thread& thread : threads) thread.join();
}

struct Layout {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides[3]; // of the output and two inputs
};

const Layout kLayouts[] = {
    {{200'000}, {{1}, {1}, {1}}},
    {{600, 300}, {{1, 600}, {300, 1}, {1, 600}}},
    {{600, 300}, {{301, 1}, {0, 1}, {1, 600}}},
    {{40'000, 3}, {{4, 1}, {3, 1}, {1, 0}}}, // neighbouring threads share cache lines but no elements
    {{50, 40, 60}, {{2400, 60, 1}, {1, 50, 2000}, {2400, 60, 1}}},
};

bool caller(const std::vector<float>& a, const std::vector<float>& b) {
  bool right = true;
  for (const Layout& layout : kLayouts) {
    std::vector<float> out(300'000, -1);
    const int64_t* strides[] = {layout.strides[0].data(), layout.strides[1].data(), layout.strides[2].data()};
    const Plan plan = make_plan(3, layout.sizes.size(), layout.sizes.data(), strides);
    const Number c{.real = 0.5};
    void* const data[] = {out.data(), const_cast<float*>(a.data()), const_cast<float*>(b.data())};
    cpu::launch(Task{0, kOrdinal<float>, &c, plan, data}, [](int64_t end, int64_t grain, const auto& body) {
      parallel_for(end, grain, body);
    });
    int64_t written = 0;
    for (const float x : out) written += x != -1;
    right = right && written == plan.numel() && out[0] == std::fma(a[0], b[0], 0.5f);
  }
  return right;
}

} // namespace

int main() {
  std::vector<float> a(300'000), b(300'000);
  for (size_t i = 0; i < a.size(); i++) a[i] = 0.25f * (i % 7), b[i] = 0.5f * (i % 5);
  bool right[3] = {};
  std::vector<std::thread> callers;
  for (bool& one : right) callers.emplace_back([&] { one = caller(a, b); });
  for (std::thread& thread : callers) thread.join();
  if (right[0] && right[1] && right[2]) return 0;
  std::fprintf(stderr, "a result is wrong, or not all of it was written\n");
  return 1;
}
