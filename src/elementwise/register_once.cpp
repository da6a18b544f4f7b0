#include "register_once.h"

#include <cstring>

#include "settings.h"
#include "system.h"

// In the copy that registers the operators, this points to the name of its build; in every other copy it is null. It is
// the only exported symbol by which copies find each other.
#define REGISTERED_OF(library) library##_registered
#define REGISTERED(library) REGISTERED_OF(library)
extern "C" __attribute__((visibility("default"))) const char* REGISTERED(ELEMENTWISE_LIBRARY);
const char* REGISTERED(ELEMENTWISE_LIBRARY) = nullptr;

namespace elementwise {
namespace {

constexpr char kBuild[] = ELEMENTWISE_BUILD;

// The path of the copy that contains the string `build`.
const char* file_of(const char* build) {
  Dl_info object{};
  dladdr(build, &object);
  return object.dli_fname;
}

// Looks into every library of the process, because Python opens modules with RTLD_LOCAL, which hides them from
// RTLD_DEFAULT.
const char* find_other_build() {
  const char* found = nullptr;
  system::for_each_object([&found](const char* path) {
    const system::Handle object = system::opened(path);
    if (!object) return false;
    const auto build =
        static_cast<const char**>(dlsym(object.get(), ELEMENTWISE_STRING(REGISTERED(ELEMENTWISE_LIBRARY))));
    if (build) found = *build;
    return found != nullptr;
  });
  return found;
}

const char* other_build() {
  static const char* const build = [] {
    const char* const found = find_other_build();
    if (!found) REGISTERED(ELEMENTWISE_LIBRARY) = kBuild;
    // This copy is never unloaded, because torch keeps references to its kernels.
    system::opened(file_of(kBuild), RTLD_NODELETE);
    return found;
  }();
  return build;
}

std::string describe(const char* build) {
  return std::string(kLibrary) + " " + build + " (" + file_of(build) + ")";
}

} // namespace

bool registered_before() {
  return other_build();
}

std::string conflict() {
  const char* const other = other_build();
  if (!other || std::strcmp(other, kBuild) == 0) return {};
  return describe(kBuild) + " adds nothing to this process, which has the operators of " + describe(other) +
         ": open the same build, or only one of them";
}

} // namespace elementwise
