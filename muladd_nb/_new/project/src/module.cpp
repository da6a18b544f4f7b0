// The Python module my_ops._C. Importing it loads this shared object, and its static initializers register the
// operators.
#include "elementwise/python/bindings.h"
#include "operators.h"

NB_MODULE(_C, m) {
  elementwise::define_module<my_ops::Operators>(m);
}
