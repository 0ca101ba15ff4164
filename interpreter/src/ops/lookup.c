/* int8: y = t[x + 128], a table of y's type. int16: i = (x + 32768) >> k, f = (x + 32768) & (2^k - 1),
 * y = sat(rsh(t[i] * 2^k + (t[i + 1] - t[i]) * f, k + 8)), a table of 2^(16-k) + 1 int32 with 8 bits below y's grid.
 */
#include "check.h"

#define FRACTION 8
#define COARSEST 7 /* k of the smallest table, which the kernels know */

/* k of an int16 table, -1 when it has none of the legal sizes */
static int spacing(const nmp_tensor *table) {
  for (int k = COARSEST; k >= 0; k--) {
    if (table->size == (1u << (16 - k)) + 1) {
      return k;
    }
  }
  return -1;
}

static nmp_rule check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 1));
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  NMP_TRY(nmp_check_same_shape(x, y));
  if (!NMP_WIDE(x->bits)) {
    return nmp_check_vector(&op->in[1], 256, y->bits, y->exponent);
  }
  NMP_REQUIRE(spacing(&op->in[1]) >= 0, "length of the table", op->in[1].size, (1 << (16 - COARSEST)) + 1);
  return nmp_check_vector(&op->in[1], op->in[1].size, 32, y->exponent - FRACTION);
}

/* Tables that are finer than what the kernels know. */
static void run_fine(const nmp_op *op, int k) {
  const nmp_tensor *y = &op->out[0];
  const int16_t *x = op->in[0].data;
  const int32_t *t = op->in[1].data;
  for (size_t n = 0; n < y->size; n++) {
    const int32_t position = x[n] + 32768, i = position >> k, f = position & ((1 << k) - 1);
    const int64_t between = t[i] * ((int64_t)1 << k) + ((int64_t)t[i + 1] - t[i]) * f;
    const int32_t value = nmp_sat(nmp_rsh(between, k + FRACTION), y->lo, y->hi);
    if (!NMP_WIDE(y->bits)) {
      ((int8_t *)y->data)[n] = (int8_t)value;
    } else {
      ((int16_t *)y->data)[n] = (int16_t)value;
    }
  }
}

static void run(const nmp_op *op) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  if (NMP_WIDE(x->bits) && spacing(&op->in[1]) < COARSEST) {
    run_fine(op, spacing(&op->in[1]));
    return;
  }
  NMP_BY_2(NMP_IN_USE(op->kernels).lookup, NMP_WIDE(x->bits), NMP_WIDE(y->bits))
  (y->data, x->data, op->in[1].data, x->size, y->lo, y->hi);
}

const nmp_op_type nmp_lookup_type = {.check = check, .run = run, .in_place = 1};
