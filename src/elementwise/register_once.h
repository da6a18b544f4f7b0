// Which copy registers. The Python module and the library without Python hold the same operators, and one process can
// come to open both, or two installations: the first one registers, the others leave it at that. The
// dispatcher is not asked, because the stable ABI logs an error wherever an operator is missing.
#pragma once

#include <string>

namespace elementwise {

// Whether another copy had registered the operators when this one was opened.
bool registered_before();

// An error message that names both, if that copy is another build than this one; else empty.
std::string conflict();

} // namespace elementwise
