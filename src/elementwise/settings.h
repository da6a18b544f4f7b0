// The library by its name, which the build passes, and the environment variables that begin with it.
#pragma once

#include <cctype>
#include <cstdlib>
#include <string>

#define ELEMENTWISE_STRING_OF(x) #x
#define ELEMENTWISE_STRING(x) ELEMENTWISE_STRING_OF(x)

namespace elementwise {

constexpr char kLibrary[] = ELEMENTWISE_STRING(ELEMENTWISE_LIBRARY);

// "MY_OPS_SIMD" for "SIMD", where the library is my_ops.
inline std::string setting_name(const char* setting) {
  std::string name(kLibrary);
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name + "_" + setting;
}

// Its value, or null.
inline const char* setting(const char* name) {
  return std::getenv(setting_name(name).c_str());
}

} // namespace elementwise
