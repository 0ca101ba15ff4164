/* Convolutions that add the other operand r of a residual sum, their first input: r and y are int8 on one grid, so
 * rsh(sum + r * 2^s, s) is rsh(sum, s) + r. A kernel that `adds` finds r in y. On PCs, where kernels do not, it makes
 * int16, whose saturation does not show behind that of int8, and the sum follows.
 */
#ifndef NMP_OPS_COMMON_ADDED_H
#define NMP_OPS_COMMON_ADDED_H

#include "ops/common/weighted.h"

/* Members of an nmp_op_type; the first two of PCs. */
void nmp_added_conv(const nmp_op *op, nmp_conv *c);
size_t nmp_added_scratch(const nmp_op *op);
void nmp_added_run(const nmp_op *op);

#endif
