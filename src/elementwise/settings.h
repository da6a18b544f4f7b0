// The library by its name, which the build passes, and the environment variables that begin with it.
#pragma once

#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

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

// Whether one that is 1, 0 or not set leaves something on. Anything else is a std::runtime_error.
inline bool is_on(const char* name) {
  const char* const value = setting(name);
  const std::string_view given = value ? value : "";
  if (given.empty() || given == "0" || given == "1") return given != "0";
  throw std::runtime_error(kLibrary + (": " + setting_name(name)) + " must be 0 or 1, got " + value);
}

} // namespace elementwise
