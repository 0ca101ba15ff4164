/* int8: y = t[x + 128], a table of y's type. int16: i = (x + 32768) >> k, f = (x + 32768) & (2^k - 1),
 * y = sat(rsh(t[i] * 2^k + (t[i + 1] - t[i]) * f, k + 8)), a table of 2^(16-k) + 1 int32 with 8 bits below y's grid.
 */
#include "ops/common/tasks.h"

#define FRACTION 8
#define COARSEST 7 /* k of the smallest table */

/* k of an int16 table, -1 when it has none of the legal sizes */
static int spacing(const nmp_tensor *table) {
  for (int k = COARSEST; k >= 0; k--) {
    if (table->size == (1u << (16 - k)) + 1) {
      return k;
    }
  }
  return -1;
}

static nmp_rule lookup_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  NMP_TRY(nmp_check_same_shape(x, y));
  if (!NMP_WIDE(x->bits)) {
    NMP_TRY(nmp_check_vector(&op->in[1], 256, y->bits, y->exponent));
    for (size_t i = 0; i < 256; i++) {
      const int32_t q = nmp_load(&op->in[1], i);
      NMP_COMPARE(q, >=, y->lo, "entry of the table");
      NMP_COMPARE(q, <=, y->hi, "entry of the table");
    }
    return NMP_FINE;
  }
  NMP_REQUIRE(spacing(&op->in[1]) >= 0, "length of the table", op->in[1].size, (1 << (16 - COARSEST)) + 1);
  return nmp_check_vector(&op->in[1], op->in[1].size, 32, y->exponent - FRACTION);
}

static void run_elements(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *x = &op->in[0], *table = &op->in[1], *y = &op->out[0];
  const size_t n = last - first;
  (void)how;
  if (!NMP_WIDE(x->bits)) {
    NMP_BY_1(NMP_IN_USE(op->kernels).lookup, NMP_WIDE(y->bits))
    (nmp_at(y, first), nmp_at(x, first), table->data, n, y->lo, y->hi);
  } else {
    NMP_BY_1(NMP_IN_USE(op->kernels).interpolate, NMP_WIDE(y->bits))
    (nmp_at(y, first), nmp_at(x, first), table->data, n, spacing(table), y->lo, y->hi);
  }
}

static void lookup_run(const nmp_op *op) {
  nmp_run_tasks(op, op->out[0].size, 2 * (uint64_t)op->out[0].size, run_elements, NULL);
}

const nmp_op_type nmp_lookup_type = {.check = lookup_check, .run = lookup_run, .in_place = 1, .by_rows = 1};
