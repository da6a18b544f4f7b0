// The library's name, which the build passes, and its environment variables, which begin with that name.
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

// The name of an environment variable: "MY_OPS_SIMD" for "SIMD" in the library my_ops.
inline std::string setting_name(const char* setting) {
  std::string name(kLibrary);
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name + "_" + setting;
}

// The value of an environment variable, or null.
inline const char* setting(const char* name) {
  return std::getenv(setting_name(name).c_str());
}

// Whether an environment variable is not 0. It must be 0, 1, empty or not set; another value is a std::runtime_error.
inline bool is_on(const char* name) {
  const char* const value = setting(name);
  const std::string_view given = value ? value : "";
  if (given.empty() || given == "0" || given == "1") return given != "0";
  throw std::runtime_error(kLibrary + (": " + setting_name(name)) + " must be 0 or 1, got " + value);
}

} // namespace elementwise
