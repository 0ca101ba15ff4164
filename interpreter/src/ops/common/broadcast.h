/* Two operands of any shapes that numpy broadcasts, as rows that a kernel takes at once. */
#ifndef NMP_OPS_COMMON_BROADCAST_H
#define NMP_OPS_COMMON_BROADCAST_H

#include "ops/common/check.h"

/* Two plain inputs whose shapes broadcast to the output's. */
nmp_rule nmp_check_broadcast(const nmp_op *op);

/* Calls a kernel of add or mul for every row; its a_step and b_step are set here. */
void nmp_broadcast(const nmp_op *op, nmp_add_fn *kernel, nmp_binary *how);

#endif
