/* 1 where one aligned operand is equal to the other, else 0. */
#include "ops/common/compare.h"

NMP_ALIGNED_ROWS(p == q)

static void equal_run(const nmp_op *op) {
  nmp_run_compare(op, NMP_ALIGNED(rows, op));
}

const nmp_op_type nmp_equal_type = {.check = nmp_check_compare, .run = equal_run, .in_place = 1};
