// What libmuladd_nb.so has of its own: a library cannot refuse to be opened, so it warns where the Python module
// raises ImportError.
#include <iostream>

#include "elementwise/register_once.h"

static const bool warned = [] {
  const std::string text = elementwise::conflict();
  if (!text.empty()) std::cerr << "warning: " << text << std::endl;
  return true;
}();
