// A program that prints the names of the out variants, one a line: meson.build asks it what there is to select from.
#pragma once

#include <iostream>

#define ELEMENTWISE_OPERATORS(library, Operators)                                 \
  int main() {                                                                    \
    elementwise::for_each_form(Operators{}, []<class Op, unsigned form>() {       \
      if constexpr (form == elementwise::out && !Op::is_over_rows)                \
        std::cout << #library "::" << Op::signature.qualified(form) << std::endl; \
    });                                                                           \
  }
