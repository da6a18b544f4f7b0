// Functions for functors and kernels, such as elementwise::exp(x), for float and double. They use operations that
// IEEE 754 specifies to the last bit, so results have the same bits on every instruction set and on CUDA. They have no
// branches, so compilers vectorise a loop over them.
//
// The comment of each function says which arguments have a finite result that is not constant, and the largest error
// that was measured, in units in the last place (ulp), rounded up: "Error: 0.76 (float), 0.77 (double)". A correctly
// rounded result has at most 0.5. For functions of one float the error is that of all 2^32 floats, else of 10^9 random
// arguments. A NaN as argument gives a NaN, unless the comment says otherwise; infinities and signed zeros follow annex
// F of the C standard. The coefficients of the polynomials are from Remez's algorithm. If an algorithm is from a
// paper, its comment names the paper.
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
