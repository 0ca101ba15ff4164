/* Arithmetic that add, sub, minimum and maximum share: y = sat(rsh(f(a * 2^(e_a - m), b * 2^(e_b - m)), e_y - m)), m =
 * min(e_a, e_b); numpy broadcasting.
 */
#ifndef NMP_OPS_COMMON_ALIGNED_H
#define NMP_OPS_COMMON_ALIGNED_H

#include "ops/common/broadcast.h"

/* The operands broadcast, and their exponents are not too far apart. */
nmp_rule nmp_check_spread(const nmp_op *op);

/* The same, and the shift to the output's grid is legal. */
nmp_rule nmp_check_aligned(const nmp_op *op);

/* Rows by a kernel like those of add, with this shift from its expression to the output. */
void nmp_run_rows(const nmp_op *op, nmp_add_fn *kernel, int shift);

/* Rows of the op, by a kernel like those of add for the widths of a, b and y. */
void nmp_run_aligned(const nmp_op *op, nmp_add_fn *kernel);

#if NMP_SMALL
/* One kernel for all widths, as a table; EXPRESSION is of p and q, the aligned operands in int64. */
#define NMP_ALIGNED_ROWS(EXPRESSION)                                                        \
  static NMP_ADD(row) {                                                                     \
    const int64_t a_unit = (int64_t)1 << how->a_shift, b_unit = (int64_t)1 << how->b_shift; \
    for (size_t i = 0; i < n; i++) {                                                        \
      const int64_t p = nmp_element(a, i * how->a_step, how->a_wide) * a_unit;              \
      const int64_t q = nmp_element(b, i * how->b_step, how->b_wide) * b_unit;              \
      const int32_t v = nmp_sat(nmp_rsh((EXPRESSION), how->shift), how->lo, how->hi);       \
      if (how->y_wide) {                                                                    \
        ((int16_t *)y)[i] = (int16_t)v;                                                     \
      } else {                                                                              \
        ((int8_t *)y)[i] = (int8_t)v;                                                       \
      }                                                                                     \
    }                                                                                       \
  }                                                                                         \
  static nmp_add_fn *const rows[2][2][2] = {{{row, row}, {row, row}}, {{row, row}, {row, row}}};

static inline int64_t nmp_element(const void *from, size_t i, int wide) {
  return wide ? ((const int16_t *)from)[i] : ((const int8_t *)from)[i];
}
#else
/* The kernel `name` for one choice of widths; EXPRESSION is of p and q, the aligned operands in int64. */
#define NMP_ALIGNED_ROW(name, A, B, Y, EXPRESSION)                                          \
  static NMP_ADD(name) {                                                                    \
    const A *as = a;                                                                        \
    const B *bs = b;                                                                        \
    Y *ys = y;                                                                              \
    const int64_t a_unit = (int64_t)1 << how->a_shift, b_unit = (int64_t)1 << how->b_shift; \
    for (size_t i = 0; i < n; i++) {                                                        \
      const int64_t p = as[i * how->a_step] * a_unit, q = bs[i * how->b_step] * b_unit;     \
      ys[i] = (Y)nmp_sat(nmp_rsh((EXPRESSION), how->shift), how->lo, how->hi);              \
    }                                                                                       \
  }

/* The kernels of all widths, as a table rows[a][b][y]. */
#define NMP_ALIGNED_ROWS(EXPRESSION)                                                                  \
  NMP_ALIGNED_ROW(row_8x8to8, int8_t, int8_t, int8_t, EXPRESSION)                                     \
  NMP_ALIGNED_ROW(row_8x8to16, int8_t, int8_t, int16_t, EXPRESSION)                                   \
  NMP_ALIGNED_ROW(row_8x16to8, int8_t, int16_t, int8_t, EXPRESSION)                                   \
  NMP_ALIGNED_ROW(row_8x16to16, int8_t, int16_t, int16_t, EXPRESSION)                                 \
  NMP_ALIGNED_ROW(row_16x8to8, int16_t, int8_t, int8_t, EXPRESSION)                                   \
  NMP_ALIGNED_ROW(row_16x8to16, int16_t, int8_t, int16_t, EXPRESSION)                                 \
  NMP_ALIGNED_ROW(row_16x16to8, int16_t, int16_t, int8_t, EXPRESSION)                                 \
  NMP_ALIGNED_ROW(row_16x16to16, int16_t, int16_t, int16_t, EXPRESSION)                               \
  static nmp_add_fn *const rows[2][2][2] = {{{row_8x8to8, row_8x8to16}, {row_8x16to8, row_8x16to16}}, \
                                            {{row_16x8to8, row_16x8to16}, {row_16x16to8, row_16x16to16}}};
#endif

/* The member of such a table, or of the kernels, for the widths of the op. */
#define NMP_ALIGNED(table, op) \
  NMP_BY_3(table, NMP_WIDE((op)->in[0].bits), NMP_WIDE((op)->in[1].bits), NMP_WIDE((op)->out[0].bits))

#endif
