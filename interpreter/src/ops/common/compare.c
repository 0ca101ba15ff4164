#include "ops/common/compare.h"

nmp_rule nmp_check_compare(const nmp_op *op) {
  NMP_TRY(nmp_check_spread(op));
  const int e = op->out[0].exponent;
  NMP_COMPARE(e, <=, 0, "exponent of the output");
  NMP_COMPARE(e, >=, NMP_SHIFT_MIN, "exponent of the output");
  return NMP_FINE;
}

void nmp_run_compare(const nmp_op *op, nmp_add_fn *kernel) {
  nmp_run_rows(op, kernel, op->out[0].exponent);
}
