/* The inputs one after the other along an axis. */
#include "ops/common/strided.h"

static nmp_rule concat_check(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const int32_t axis = op->params.concat.axis;
  int64_t length = 0;
  NMP_COMPARE(op->input_count, >=, 1, "number of inputs");
  NMP_COMPARE(axis, >=, 0, "axis");
  NMP_REQUIRE(axis < y->rank, "axis", axis, y->rank - 1);
  for (uint32_t n = 0; n < op->input_count; n++) {
    nmp_tensor x;
    op->input_at(op, n, &x);
    NMP_TRY(nmp_check_same_grid(op, &x));
    NMP_COMPARE(x.rank, ==, y->rank, "rank of an input");
    length += x.shape[axis];
    x.shape[axis] = y->shape[axis];
    NMP_TRY(nmp_check_same_shape(&x, y));
  }
  NMP_COMPARE(y->shape[axis], ==, length, "length along the axis");
  return NMP_FINE;
}

/* Elements of the output behind an index along the axis. */
static int32_t concat_inner(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  int32_t inner = 1;
  for (int32_t i = op->params.concat.axis + 1; i < y->rank; i++) {
    inner *= y->shape[i];
  }
  return inner;
}

/* Along the outermost axis the inputs are stretches of the output. */
static int64_t concat_place(const nmp_op *op, uint32_t k) {
  const nmp_tensor *y = &op->out[0];
  int64_t before = 0;
  if (concat_inner(op) * y->shape[op->params.concat.axis] != (int32_t)y->size) {
    return -1;
  }
  for (uint32_t n = 0; n < k; n++) {
    nmp_tensor x;
    op->input_at(op, n, &x);
    before += (int64_t)x.size;
  }
  return before * (int64_t)nmp_bytes(y);
}

static int is_placed(const nmp_op *op, uint32_t n) {
  return NMP_KEEP_STEPS && n < 32 && (op->placed >> n & 1);
}

static void concat_run(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const int32_t axis = op->params.concat.axis, inner = concat_inner(op);
  const int32_t all = inner * y->shape[axis], rows = (int32_t)(y->size / (uint32_t)all);
  int32_t first = 0;
  for (uint32_t n = 0; n < op->input_count; n++) {
    nmp_tensor more;
    const nmp_tensor *x = &op->in[n < NMP_OP_INPUTS_MAX ? n : 0];
    if (NMP_SMALL || n >= NMP_OP_INPUTS_MAX) {
      op->input_at(op, n, &more);
      x = &more;
    }
    void *to = nmp_at(y, (size_t)first);
    const int32_t row = inner * x->shape[axis];
    if (x->data != to && !is_placed(op, n)) {
      nmp_copy_rows(op, to, x->data, rows, all, row, row);
    }
    first += row;
  }
}

const nmp_op_type nmp_concat_type = {.check = concat_check, .run = concat_run, .place = concat_place};
