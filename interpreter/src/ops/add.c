/* The sum of two aligned operands. */
#include "aligned.h"

static void run(const nmp_op *op) {
  nmp_run_aligned(op, nmp_aligned_row(op, op->kernels->add));
}

const nmp_op_type nmp_add_type = {.check = nmp_check_aligned, .run = run, .in_place = 1};
