/* The larger of two aligned operands. */
#include "ops/common/aligned.h"

NMP_ALIGNED_ROWS(p > q ? p : q)

static void maximum_run(const nmp_op *op) {
  nmp_run_aligned(op, NMP_ALIGNED(rows, op));
}

const nmp_op_type nmp_maximum_type = {.check = nmp_check_aligned, .run = maximum_run, .in_place = 1, .by_rows = 1};
