// Decides which copy of the library registers the operators. The Python module and the library without Python contain
// the same operators, and a process may open both, or two installations. Only the copy that is opened first registers.
// We do not ask the dispatcher, because the stable ABI logs an error if an operator is missing.
#pragma once

#include <string>

namespace elementwise {

// Whether another copy had registered the operators when this one was opened.
bool registered_before();

// An error message that names both copies, if the first one is another build than this one; else an empty string.
std::string conflict();

} // namespace elementwise
