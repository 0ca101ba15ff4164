/* How a convolution and the other operand of a sum are computed: y = sat(rsh(sum x*w + r * 2^k, s) + b). The op reads r
 * first, then what a conv2d does.
 *
 * 1. r and y are int8 on one grid: rsh(sum + r * 2^s, s) = rsh(sum, s) + r. A kernel that `adds` finds r in y.
 * 2. The same where none does, on hosts: results as int16, then the sum. Their saturation does not show behind that of
 *    int8.
 * 3. Other widths and grids, in 64 bits.
 */
#ifndef NMP_OPS_COMMON_ADDED_H
#define NMP_OPS_COMMON_ADDED_H

#include "ops/common/weighted.h"

/* The op without r. Both have the same parameters. */
nmp_op nmp_added_to(const nmp_op *op);

/* c is the convolution without r; this is how r is added to it. */
void nmp_added_fill(nmp_conv *c, const nmp_op *op);

/* This build can; after the checks of the op. */
nmp_rule nmp_added_check(const nmp_op *op);

size_t nmp_added_scratch(const nmp_op *op);
void nmp_added_run(const nmp_op *op);

#endif
