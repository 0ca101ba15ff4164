/* Arithmetic that greater and equal share: y = sat(2^-e_y) where a * 2^(e_a - m) and b * 2^(e_b - m) compare, else
 * sat(0), m = min(e_a, e_b); numpy broadcasting.
 */
#ifndef NMP_OPS_COMMON_COMPARE_H
#define NMP_OPS_COMMON_COMPARE_H

#include "ops/common/aligned.h"

nmp_rule nmp_check_compare(const nmp_op *op);

/* Rows of the op, by a kernel like those of add whose expression is 1 or 0. */
void nmp_run_compare(const nmp_op *op, nmp_add_fn *kernel);

#endif
