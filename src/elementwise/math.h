// Functions for functors and kernels: elementwise::exp(x) and its like, for float and double. They are made of
// operations that IEEE 754 specifies to the last bit, so that results are the same bits on every instruction set and on
// CUDA, and branch nowhere, so that compilers vectorise a loop over them. The largest error is below 1 unit in the last
// place for float; for double below 1.5, and below 2 for pow, tan and the hyperbolic ones.
#pragma once

#define ELEMENTWISE_LONG_FUNCTORS // see cpu/kernels.h

#include "math/basic.h"
#include "math/error.h"
#include "math/exponential.h"
#include "math/inverse_hyperbolic.h"
#include "math/inverse_trigonometric.h"
#include "math/logarithm.h"
#include "math/power.h"
#include "math/roots.h"
#include "math/rules.h"
#include "math/trigonometric.h"
