// A program that prints the names of the out variants, one per line, for meson.build.
#pragma once

#include <iostream>

#define ELEMENTWISE_OPERATORS(library, Operators)                                   \
  int main() {                                                                      \
    elementwise::for_each_form(Operators{}, []<class Op, unsigned form>() {         \
      if constexpr (form == elementwise::out)                                       \
          std::cout << #library "::" << Op::signature.qualified(form) << std::endl; \
    });                                                                             \
  }
