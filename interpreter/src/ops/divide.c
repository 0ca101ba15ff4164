/* y = sat(floor(a * 2^d / b + 1/2)), d = e_a - e_b - e_y; where b is 0 an end of the range by the sign of a, or 0. Or,
 * rounded down, y = sat(rsh(floor(a * 2^d / b), e_y)), d = e_a - e_b.
 */
#include "ops/common/aligned.h"

#define SPREAD 30 /* of |d| */

static int64_t quotient(int64_t num, int64_t den, int down) {
  if (den == 0) {
    return num > 0 ? INT32_MAX : num < 0 ? INT32_MIN : 0;
  }
  if (den < 0) {
    num = -num;
    den = -den;
  }
  return down ? nmp_quotient(num, den) : nmp_div(num, den);
}

NMP_ALIGNED_ROWS(quotient(p, q, how->down))

static int is_down(const nmp_op *op) {
  return op->params.divide.down != 0;
}

static int lead(const nmp_op *op) {
  return op->in[0].exponent - op->in[1].exponent - (is_down(op) ? 0 : op->out[0].exponent);
}

static nmp_rule divide_check(const nmp_op *op) {
  NMP_TRY(nmp_check_broadcast(op));
  const int d = lead(op);
  NMP_COMPARE(d, <=, SPREAD, "difference of exponents");
  NMP_COMPARE(d, >=, -SPREAD, "difference of exponents");
  return is_down(op) ? nmp_check_shift(op->out[0].exponent) : NMP_FINE;
}

#if NMP_DIVIDE_KERNEL
#define MANY 512 /* quotients, for which it pays to invert all divisors */

/* Done by the level's kernel where both operands are int8. */
static int divide_bytes(const nmp_op *op, const nmp_binary *how) {
  if (how->down || NMP_WIDE(op->in[0].bits) || NMP_WIDE(op->in[1].bits) || op->out[0].size < MANY) {
    return 0;
  }
  nmp_divisors all = {.how = *how};
  nmp_invert(&all);
  nmp_broadcast(op, NMP_BY_1(op->kernels->divide, NMP_WIDE(op->out[0].bits)), &all.how);
  return 1;
}
#else
static int divide_bytes(const nmp_op *op, const nmp_binary *how) {
  (void)op;
  (void)how;
  return 0;
}
#endif

static void divide_run(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const int d = lead(op);
  nmp_binary how = {.a_shift = d > 0 ? d : 0, .b_shift = d < 0 ? -d : 0, .lo = y->lo, .hi = y->hi};
  how.down = is_down(op);
  how.shift = how.down ? y->exponent : 0;
  if (!divide_bytes(op, &how)) {
    nmp_broadcast(op, NMP_ALIGNED(rows, op), &how);
  }
}

static uint64_t divide_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * 8; /* a division each */
}

const nmp_op_type nmp_divide_type = {
    .check = divide_check, .run = divide_run, .in_place = 1, .by_rows = 1, .work = divide_work};
