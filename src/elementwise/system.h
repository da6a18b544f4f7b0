// The functions that differ between Linux and macOS. No other C++ file depends on the system that it is compiled for.
// cpu/meson.build begins with the differences in a build, and _layer/system.py has those in Python.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#include <sys/sysctl.h>
#else
#include <link.h>
#include <unistd.h>

#include <fstream>
#endif

namespace elementwise::system {

// Calls body(path) for the program and each library of this process, until it returns true.
template <class Body>
void for_each_object(const Body& body) {
#if defined(__APPLE__)
  for (uint32_t i = 0; i < _dyld_image_count(); i++) {
    const char* const path = _dyld_get_image_name(i); // null if another thread has closed one meanwhile
    if (path && body(path)) return;
  }
#else
  // dl_iterate_phdr holds a lock of the loader. dlopen takes it too, after another one, so two threads could wait for
  // each other. `body` may open a library, so we call it only after dl_iterate_phdr has returned.
  std::vector<std::string> paths;
  const auto add = [](dl_phdr_info* object, size_t, void* to) -> int {
    static_cast<std::vector<std::string>*>(to)->push_back(object->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(add, &paths);
  for (const std::string& path : paths)
    if (body(path.c_str())) return;
#endif
}

// The size in bytes of the last-level cache that one core can use, or 0 if the system does not tell.
inline int64_t last_level_cache() {
#if defined(__APPLE__)
  // Apple's processors do not report a third level. The fast cores share the second.
  for (const char* name : {"hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"}) {
    int64_t bytes = 0;
    size_t size = sizeof(bytes);
    if (sysctlbyname(name, &bytes, &size, nullptr, 0) == 0 && bytes > 0) return bytes;
  }
  return 0;
#else
  // sysconf alone is a trap: on AMD it adds up the caches of all core complexes (384 MiB if one core can use 32), and
  // on aarch64 it returns 0. The Linux kernel's own table has the size that one core can use.
  for (const char* level : {"3", "2"}) {
    std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/index") + level + "/size");
    int64_t kib = 0;
    char unit = 0;
    if (file >> kib >> unit && kib > 0) return unit == 'M' ? kib << 20 : kib << 10;
  }
  const int64_t size = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return size > 0 ? size : 0;
#endif
}

// Asks for huge pages for whole pages of new memory. It is a hint, so a failure is ignored. macOS has no such hint.
inline void hint_huge_pages([[maybe_unused]] void* pages, [[maybe_unused]] size_t bytes) {
#if !defined(__APPLE__)
  madvise(pages, bytes, MADV_HUGEPAGE);
#endif
}

// ---- The same on both

struct Close {
  void operator()(void* handle) const {
    dlclose(handle);
  }
};
using Handle = std::unique_ptr<void, Close>;

// A handle to a library that this process has opened already, or null.
inline Handle opened(const char* path, int flags = 0) {
  return Handle(dlopen(path, RTLD_LAZY | RTLD_NOLOAD | flags));
}

} // namespace elementwise::system
