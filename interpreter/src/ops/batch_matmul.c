/* a [..., M, K], b [..., N, K] -> [..., M, N]: y[m, n] = sat(rsh(sum over k of a[m, k] * b[n, k], e_y - e_a - e_b)). */
#include "base/util.h"
#include "ops/common/tasks.h"

#define TILE_ROWS 8
#define WORK_MACS 8     /* that take as long as to read a byte elsewhere */
#define TILE_COLUMNS 32 /* sums on the stack at a time: 8 x 32 */

static int shift(const nmp_op *op) {
  return op->out[0].exponent - op->in[0].exponent - op->in[1].exponent;
}

static nmp_rule batch_matmul_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 2, 2, 2));
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const uint32_t rank = a->rank;
  NMP_REQUIRE(rank >= 2, "rank", rank, 2);
  NMP_REQUIRE(b->rank == rank, "rank of the second input", b->rank, rank);
  NMP_REQUIRE(y->rank == rank, "rank of the output", y->rank, rank);
  for (uint32_t i = 0; i + 2 < rank; i++) {
    const int32_t m = a->shape[i], n = b->shape[i], most = m > n ? m : n;
    NMP_REQUIRE(m == n || m == 1 || n == 1, "dimensions that do not broadcast", m, n);
    NMP_REQUIRE(y->shape[i] == most, "dimension of the output", y->shape[i], most);
  }
  NMP_REQUIRE(y->shape[rank - 2] == a->shape[rank - 2], "rows", y->shape[rank - 2], a->shape[rank - 2]);
  NMP_REQUIRE(y->shape[rank - 1] == b->shape[rank - 2], "columns", y->shape[rank - 1], b->shape[rank - 2]);
  NMP_REQUIRE(a->shape[rank - 1] == b->shape[rank - 1], "products of a sum", b->shape[rank - 1], a->shape[rank - 1]);
  NMP_REQUIRE(a->shape[rank - 1] <= NMP_K_MAX, "products of a sum", a->shape[rank - 1], NMP_K_MAX);
  return nmp_check_shift(shift(op));
}

/* Some rows of one matrix of each operand, from these elements on. */
static void product(const nmp_op *op, size_t rows, size_t a0, size_t b0, size_t y0) {
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const size_t k = (size_t)a->shape[a->rank - 1], columns = (size_t)b->shape[b->rank - 2];
  const int a_wide = NMP_WIDE(a->bits), b_wide = NMP_WIDE(b->bits);
  int64_t sums[TILE_ROWS * TILE_COLUMNS]; /* int32 in the first half when both operands are int8 */
  int32_t bias[TILE_COLUMNS] = {0};
  int8_t shifts[TILE_COLUMNS];
  for (size_t c = 0; c < TILE_COLUMNS; c++) {
    shifts[c] = (int8_t)shift(op);
  }
  for (size_t column = 0; column < columns; column += TILE_COLUMNS) {
    const size_t n = nmp_min(columns - column, TILE_COLUMNS);
    NMP_BY_2(NMP_IN_USE(op->kernels).gemm, a_wide, b_wide)(sums, nmp_at(a, a0), k, nmp_at(b, b0 + column * k), k, rows,
                                                           n);
    NMP_BY_2(NMP_IN_USE(op->kernels).scale, NMP_WIDE_SUM(a_wide, b_wide), NMP_WIDE(y->bits))
    (nmp_at(y, y0 + column), columns, sums, rows, n, bias, shifts, y->lo, y->hi);
  }
}

/* The matrices of the operands that one of the output is made of: their first elements. */
static void operands(const nmp_op *op, size_t matrix, size_t *a_at, size_t *b_at) {
  const nmp_tensor *a = &op->in[0], *b = &op->in[1], *y = &op->out[0];
  const uint32_t batch = y->rank - 2u; /* axes */
  size_t a_stride = (size_t)a->shape[batch] * (size_t)a->shape[batch + 1],
         b_stride = (size_t)b->shape[batch] * (size_t)b->shape[batch + 1];
  *a_at = *b_at = 0;
  for (uint32_t axis = batch; axis-- > 0;) {
    const size_t at = matrix % (size_t)y->shape[axis];
    matrix /= (size_t)y->shape[axis];
    *a_at += a->shape[axis] == 1 ? 0 : at * a_stride;
    *b_at += b->shape[axis] == 1 ? 0 : at * b_stride;
    a_stride *= (size_t)a->shape[axis];
    b_stride *= (size_t)b->shape[axis];
  }
}

/* Of all matrices of the output, in TILE_ROWS; the last of a matrix may have fewer. */
static size_t tiles(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  return ((size_t)y->shape[y->rank - 2] + TILE_ROWS - 1) / TILE_ROWS;
}

static void run_tiles(const nmp_op *op, const void *how, size_t first, size_t last) {
  const nmp_tensor *a = &op->in[0], *y = &op->out[0];
  const size_t rows = (size_t)y->shape[y->rank - 2], columns = (size_t)y->shape[y->rank - 1],
               k = (size_t)a->shape[a->rank - 1], of_matrix = tiles(op);
  (void)how;
  for (size_t tile = first; tile < last; tile++) {
    const size_t matrix = tile / of_matrix, row = tile % of_matrix * TILE_ROWS;
    size_t a_at, b_at;
    operands(op, matrix, &a_at, &b_at);
    product(op, nmp_min(rows - row, TILE_ROWS), a_at + row * k, b_at, (matrix * rows + row) * columns);
  }
}

static uint64_t batch_matmul_work(const nmp_op *op) {
  return (uint64_t)op->out[0].size * (uint32_t)op->in[0].shape[op->in[0].rank - 1];
}

static void batch_matmul_run(const nmp_op *op) {
  const nmp_tensor *y = &op->out[0];
  const size_t matrices = y->size / ((size_t)y->shape[y->rank - 2] * (size_t)y->shape[y->rank - 1]);
  nmp_run_tasks(op, matrices * tiles(op), batch_matmul_work(op) / WORK_MACS, run_tiles, NULL);
}

const nmp_op_type nmp_batch_matmul_type = {
    .check = batch_matmul_check, .run = batch_matmul_run, .work = batch_matmul_work};
