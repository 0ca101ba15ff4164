/* Layer, instance and group normalization: per group of n elements, exact sums and one reciprocal square root.
 *
 *   S = sum q,   Q = sum q^2
 *   V = (n*Q - S^2) * 2^f + epsilon * 2^epsilon_shift = v * 2^(2t),   2^30 <= v < 2^32
 *   R = floor(2^60 / floor(sqrt(v * 2^30)))
 *   z = rsh((n*q - S) * R, 23 + t - f/2),   so that z * 2^-22 is the normalized q
 *   y = sat(rsh(rsh(z * w, s) + b, 8)),   s = e_y + 14 - e_w
 */
#include "base/util.h"
#include "ops/common/tasks.h"

#define COUNT_MAX 65536    /* legal n */
#define WEIGHT_BITS 24     /* |w| < 2^23, so that no product leaves 64 bits */
#define FRACTION_BITS 8    /* b is below the grid of y */
#define NORMALIZED_BITS 22 /* of z */

/* The axes of a group, or those that lead from one group to the next: neighbours that are walked through as one axis
 * would be are one.
 */
typedef struct axes {
  uint32_t rank;
  size_t size[NMP_RANK_MAX], x[NMP_RANK_MAX], w[NMP_RANK_MAX]; /* lengths and strides; a stride of 0 repeats w */
  size_t count;                                                /* positions */
} axes;

static int in_group(const nmp_op *op, uint32_t axis) {
  const nmp_normalize_params *p = &op->params.normalize;
  for (uint32_t i = 0; i < p->axes_count; i++) {
    if (p->axes[i] == (int32_t)axis) {
      return 1;
    }
  }
  return 0;
}

static axes axes_of(const nmp_op *op, int inside) {
  const nmp_tensor *x = &op->in[0], *w = &op->in[1];
  axes found = {.count = 1};
  size_t x_step = 1, w_step = 1;
  for (uint32_t i = x->rank; i-- > 0;) {
    const size_t size = (size_t)x->shape[i];
    if (in_group(op, i) == inside && size > 1) { /* from the innermost outwards */
      const size_t w_here = w->shape[i] == 1 ? 0 : w_step;
      const uint32_t last = found.rank - 1;
      found.count *= size;
      if (found.rank > 0 && found.x[last] * found.size[last] == x_step && found.w[last] * found.size[last] == w_here) {
        found.size[last] *= size;
      } else {
        found.size[found.rank] = size;
        found.x[found.rank] = x_step;
        found.w[found.rank++] = w_here;
      }
    }
    x_step *= size;
    w_step *= (size_t)w->shape[i];
  }
  return found;
}

/* Adds the offsets of a position, whose innermost `skip` axes are at 0. */
static void move(const axes *a, size_t index, uint32_t skip, size_t *x, size_t *w) {
  for (uint32_t i = skip; i < a->rank; i++) {
    const size_t rest = i + 1 < a->rank ? index / a->size[i] : 0, at = index - rest * a->size[i];
    *x += at * a->x[i];
    *w += at * a->w[i];
    index = rest;
  }
}

static int shift(const nmp_op *op) {
  return op->out[0].exponent - FRACTION_BITS + NORMALIZED_BITS - op->in[1].exponent;
}

static nmp_rule normalize_check(const nmp_op *op) {
  NMP_TRY(nmp_check_inputs(op, 3, 3, 1));
  const nmp_tensor *x = &op->in[0], *w = &op->in[1], *b = &op->in[2], *y = &op->out[0];
  const nmp_normalize_params *p = &op->params.normalize;
  NMP_TRY(nmp_check_same_shape(x, y));
  NMP_COMPARE(p->axes_count, >=, 1, "number of axes");
  int64_t n = 1;
  int32_t before = -1;
  for (uint32_t i = 0; i < p->axes_count; i++) {
    const int32_t axis = p->axes[i];
    NMP_REQUIRE(axis > before, "axes in ascending order", axis, before + 1);
    NMP_REQUIRE(axis < x->rank, "axis", axis, x->rank - 1);
    n *= x->shape[axis];
    NMP_COMPARE(n, <=, COUNT_MAX, "elements of a group");
    before = axis;
  }
  NMP_COMPARE(p->epsilon, >=, 1, "epsilon");
  NMP_COMPARE(p->epsilon_shift, >=, 0, "shift of epsilon");
  NMP_COMPARE(p->epsilon_shift, <=, 31, "shift of epsilon");
  NMP_TRY(nmp_check_same_shape(w, b));
  NMP_COMPARE(w->rank, ==, x->rank, "rank of the weights");
  for (uint32_t i = 0; i < w->rank; i++) {
    NMP_REQUIRE(w->shape[i] == 1 || w->shape[i] == x->shape[i], "dimension of the weights", w->shape[i], x->shape[i]);
  }
  NMP_REQUIRE(w->is_const && b->is_const, "constant weights", 0, 1);
  NMP_COMPARE(w->bits, ==, 32, "bits of the weights");
  NMP_COMPARE(b->bits, ==, 32, "bits of the weights");
  NMP_COMPARE(w->exponent_count, ==, 1, "exponents of the weights");
  NMP_COMPARE(b->exponent_count, ==, 1, "exponents of the weights");
  NMP_COMPARE(b->exponent, ==, y->exponent - FRACTION_BITS, "exponent of the bias");
  NMP_COMPARE(shift(op), >=, 0, "shift");
  NMP_COMPARE(shift(op), <=, NMP_SHIFT_MAX, "shift");
  for (uint32_t i = 0; i < w->size; i++) {
    const int32_t value = ((const int32_t *)w->data)[i], most = (int32_t)1 << (WEIGHT_BITS - 1);
    NMP_REQUIRE(value < most && value > -most, "weight", value, most - 1);
  }
  return NMP_FINE;
}

#if NMP_SMALL_DIVISION
/* floor(sqrt(a)), bit by bit. */
static uint64_t square_root(uint64_t a) {
  uint64_t root = 0, bit = (uint64_t)1 << 62;
  while (bit) {
    if (a >= root + bit) {
      a -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
    bit >>= 2;
  }
  return root;
}
#else
/* floor(sqrt(a)), 2^60 <= a < 2^62: a parabola near the root, within 0.51 % of it, and 2 steps of Newton's, which leave
 * 8e-11. Each step gives at least the root, as the mean of r and a / r does.
 */
static uint64_t square_root(uint64_t a) {
  const uint64_t u = a >> 30;
  uint64_t root = 556801229u + (2259183099u * u >> 32) - (679299097u * (u * u >> 32) >> 32);
  for (int i = 0; i < 2; i++) {
    root = (root + a / root) / 2;
  }
  while (root * root > a) {
    root--;
  }
  return root;
}
#endif

/* f: as many bits as V has to spare, even. */
static int spare_bits(size_t n, int bits) {
  int wide = 0; /* ceil(log2(n)) */
  while (((size_t)1 << wide) < n) {
    wide++;
  }
  return 2 * (32 - bits - wide);
}

static void group(const nmp_op *op, const axes *inner, size_t x0, size_t w0) {
  const nmp_tensor *x = &op->in[0], *y = &op->out[0];
  const int32_t *w = (const int32_t *)op->in[1].data, *b = (const int32_t *)op->in[2].data;
  const uint32_t rows = inner->rank ? 1 : 0; /* the innermost axis is walked through, the others are counted */
  const size_t n = inner->count, row = rows ? inner->size[0] : 1, x_step = inner->x[0], w_step = inner->w[0];
  int64_t sum = 0, squares = 0;
  for (size_t i = 0; i < n / row; i++) {
    size_t at = x0, unused = 0;
    move(inner, i, rows, &at, &unused);
    if (x_step == 1) {
      int64_t part, more;
      NMP_BY_1(NMP_IN_USE(op->kernels).moments, NMP_WIDE(x->bits))(&part, &more, nmp_at(x, at), row);
      sum += part;
      squares += more;
      continue;
    }
    for (size_t k = 0; k < row; k++) {
      const int64_t q = nmp_load(x, at + k * x_step);
      sum += q;
      squares += q * q;
    }
  }
  const nmp_normalize_params *p = &op->params.normalize;
  const int spare = spare_bits(n, x->bits);
  uint64_t v = ((uint64_t)((int64_t)n * squares - sum * sum) << spare) + ((uint64_t)p->epsilon << p->epsilon_shift);
  const int bits = nmp_bits_of(v), t = bits > 32 ? (bits - 31) / 2 : (bits - 32) / 2;
  v = t > 0 ? v >> 2 * t : v << -2 * t;
  const int64_t inverse = (int64_t)(((uint64_t)1 << 60) / square_root(v << 30));
  const int normalize = 45 - NORMALIZED_BITS + t - spare / 2, scale = shift(op);
  for (size_t i = 0; i < n / row; i++) {
    size_t at = x0, weight = w0;
    move(inner, i, rows, &at, &weight);
    if (x_step == 1 && normalize >= 0) {
      const nmp_normalizer how = {(int64_t)n, sum, inverse, normalize, scale, w_step, y->lo, y->hi};
      NMP_BY_2(NMP_IN_USE(op->kernels).normalize, NMP_WIDE(x->bits), NMP_WIDE(y->bits))
      (nmp_at(y, at), nmp_at(x, at), w + weight, b + weight, row, &how);
      continue;
    }
    for (size_t k = 0; k < row; k++) {
      const size_t j = weight + k * w_step;
      const int64_t d = (int64_t)n * nmp_load(x, at + k * x_step) - sum;
      const int64_t z = nmp_rsh(d * inverse, normalize);
      nmp_store(y, at + k * x_step, nmp_rsh(nmp_rsh(z * w[j], scale) + b[j], FRACTION_BITS));
    }
  }
}

static void run_groups(const nmp_op *op, const void *how, size_t first, size_t last) {
  const axes inner = axes_of(op, 1), *outer = how;
  for (size_t i = first; i < last; i++) {
    size_t x = 0, w = 0;
    move(outer, i, 0, &x, &w);
    group(op, &inner, x, w);
  }
}

static uint64_t normalize_work(const nmp_op *op) {
  return (uint64_t)op->in[0].size * 16 + (uint64_t)axes_of(op, 0).count * 128; /* a root, a division a group */
}

static void normalize_run(const nmp_op *op) {
  const axes outer = axes_of(op, 0);
  nmp_run_tasks(op, outer.count, normalize_work(op), run_groups, &outer);
}

const nmp_op_type nmp_normalize_type = {
    .check = normalize_check, .run = normalize_run, .in_place = 1, .work = normalize_work};
