/* The difference of two aligned operands. */
#include "ops/common/aligned.h"

static void sub_run(const nmp_op *op) {
  nmp_run_aligned(op, NMP_ALIGNED(NMP_IN_USE(op->kernels).sub, op));
}

const nmp_op_type nmp_sub_type = {.check = nmp_check_aligned, .run = sub_run, .in_place = 1, .by_rows = 1};
