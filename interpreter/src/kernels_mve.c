/* The kernels that the vectors of Cortex-M (MVE, "Helium") do better. Loops are predicated by the elements that are left
 * in lr, so n need not be a multiple of the lanes; loads and stores that widen or narrow take their address from a low
 * register.
 */
#include "conv.h"

#if defined(__ARM_FEATURE_MVE)

#include <arm_mve.h>

#include "fixed.h"

#define LOAD_8(lanes, q, from) "vldrb.s" lanes " " q ", [%[" from "]], #" lanes "/4\n" /* 8 of 16 bits, 4 of 32 */
