// The additional part of libmuladd_nb.so: if another build has registered the operators already, it prints a warning.
// The Python module raises ImportError instead, but a library cannot refuse to be opened.
#include <iostream>

#include "elementwise/register_once.h"

static const bool warned = [] {
  const std::string text = elementwise::conflict();
  if (!text.empty()) std::cerr << "warning: " << text << std::endl;
  return true;
}();
