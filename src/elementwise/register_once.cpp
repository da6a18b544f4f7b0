#include "register_once.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "settings.h"

// The build of the copy that has registered the operators; null in every other copy. It is the one symbol that
// copies can find in each other.
#define REGISTERED_OF(library) library##_registered
#define REGISTERED(library) REGISTERED_OF(library)
extern "C" __attribute__((visibility("default"))) const char* REGISTERED(ELEMENTWISE_LIBRARY);
const char* REGISTERED(ELEMENTWISE_LIBRARY) = nullptr;

namespace elementwise {
namespace {

constexpr char kBuild[] = ELEMENTWISE_BUILD;

// Every object is looked into: Python opens modules with RTLD_LOCAL, which hides them from RTLD_DEFAULT.
int find(dl_phdr_info* object, size_t, void* found) {
  void* const handle = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return 0;
  const auto build = static_cast<const char**>(dlsym(handle, ELEMENTWISE_STRING(REGISTERED(ELEMENTWISE_LIBRARY))));
  if (build) *static_cast<const char**>(found) = *build;
  dlclose(handle);
  return build && *build;
}

const char* other_build() {
  static const char* const build = [] {
    const char* found = nullptr;
    dl_iterate_phdr(find, &found);
    if (!found) REGISTERED(ELEMENTWISE_LIBRARY) = kBuild;
    return found;
  }();
  return build;
}

// Names a build by a string that is part of its file.
std::string describe(const char* build) {
  Dl_info object{};
  dladdr(build, &object);
  return std::string(kLibrary) + " " + build + " (" + object.dli_fname + ")";
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
