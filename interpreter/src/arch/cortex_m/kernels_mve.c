/* The kernels that the vectors of Cortex-M (MVE, "Helium") do better. Loops are predicated by the elements that are
 * left in lr, so n need not be a multiple of the lanes; loads and stores that widen or narrow take their address from a
 * low register.
 */
#include "arch/cortex_m/mve.h"
#include "base/fixed.h"

#ifdef NMP_MVE

/* Eight lanes of 16 bits, or four of 32, from and to int8 and int16. */
#define LOAD_16_8(q, from) "vldrb.s16 " q ", [%[" from "]], #8\n"
#define LOAD_16_16(q, from) "vldrh.16 " q ", [%[" from "]], #16\n"
#define LOAD_32_8(q, from) "vldrb.s32 " q ", [%[" from "]], #4\n"
#define LOAD_32_16(q, from) "vldrh.s32 " q ", [%[" from "]], #8\n"
#define STORE_16_8(q, to) "vstrb.16 " q ", [%[" to "]], #8\n"
#define STORE_16_16(q, to) "vstrh.16 " q ", [%[" to "]], #16\n"
#define STORE_32_8(q, to) "vstrb.32 " q ", [%[" to "]], #4\n"
#define STORE_32_16(q, to) "vstrh.32 " q ", [%[" to "]], #8\n"

#define ROUND_AND_CLAMP(LANES) \
  "vqrshl.s" LANES             \
  " q0, %[shift]\n"            \
  "vmax.s" LANES               \
  " q0, q0, %q[lo]\n"          \
  "vmin.s" LANES " q0, q0, %q[hi]\n"
#define ALIGN_AND_ADD(LANES) \
  "vshl.s" LANES             \
  " q0, %[a_shift]\n"        \
  "vshl.s" LANES             \
  " q1, %[b_shift]\n"        \
  "vadd.i" LANES " q0, q0, q1\n"
#define MULTIPLY(LANES) "vmul.i" LANES " q0, q0, q1\n"

/* Rows of two operands with step 1, whose combination fits the lanes. */
#define BINARY_LOOP(LANES, LOAD_A, LOAD_B, COMBINE, STORE) \
  __asm volatile("wlstp." #LANES " lr, %[n], 2f\n"                                                       \
                 "1:\n" LOAD_A("q0", "a") LOAD_B("q1", "b") COMBINE(#LANES) ROUND_AND_CLAMP(#LANES)      \
                 STORE("q0", "y")                                                                        \
                 "letp lr, 1b\n"                                                                         \
                 "2:\n"                                                                                  \
                 : [y] "+&l"(y), [a] "+&l"(a), [b] "+&l"(b)                                                 \
                 : [n] "r"(n), [a_shift] "r"(how->a_shift), [b_shift] "r"(how->b_shift),                 \
                   [shift] "r"(-how->shift), [lo] "w"(vdupq_n_s##LANES((int##LANES##_t)how->lo)),        \
                   [hi] "w"(vdupq_n_s##LANES((int##LANES##_t)how->hi))                                   \
                 : "q0", "q1", "lr", "memory")

/* Numbers that the lanes would not hold, or a single operand for a row: one by one. */
static int32_t value(const void *x, size_t i, int wide) {
  return wide ? ((const int16_t *)x)[i] : ((const int8_t *)x)[i];
}

static void one_by_one(void *y, const void *a, const void *b, size_t n, const nmp_binary *how, int widths,
                       int product) {
  for (size_t i = 0; i < n; i++) {
    const int64_t p = value(a, i * how->a_step, widths & 4), q = value(b, i * how->b_step, widths & 2);
    const int64_t both = product ? p * q : p * ((int64_t)1 << how->a_shift) + q * ((int64_t)1 << how->b_shift);
    const int32_t v = nmp_sat(nmp_rsh(both, how->shift), how->lo, how->hi);
    if (widths & 1) {
      ((int16_t *)y)[i] = (int16_t)v;
    } else {
      ((int8_t *)y)[i] = (int8_t)v;
    }
  }
}

static int rows_of_both(const nmp_binary *how) {
  return how->a_step == 1 && how->b_step == 1;
}

/* One of the shifts is 0: the sum has at most one bit more than the longer operand. */
static int fits(const nmp_binary *how, int a_most, int b_most) {
  return rows_of_both(how) && how->a_shift <= a_most && how->b_shift <= b_most;
}

/* WIDTHS: a, b, y. An int8 may be shifted by 7 in lanes of 16 bits, by 22 in those of 32, an int16 by 14. */
#define ADD_8X8(name, WIDTHS, Y)                                          \
  NMP_ADD(name) {                                                         \
    if (fits(how, 7, 7)) {                                                \
      BINARY_LOOP(16, LOAD_16_8, LOAD_16_8, ALIGN_AND_ADD, STORE_16_##Y); \
    } else if (fits(how, 22, 22)) {                                       \
      BINARY_LOOP(32, LOAD_32_8, LOAD_32_8, ALIGN_AND_ADD, STORE_32_##Y); \
    } else {                                                              \
      one_by_one(y, a, b, n, how, WIDTHS, 0);                             \
    }                                                                     \
  }
#define ADD(name, WIDTHS, A, B, Y)                                            \
  NMP_ADD(name) {                                                             \
    if (fits(how, A == 8 ? 22 : 14, B == 8 ? 22 : 14)) {                      \
      BINARY_LOOP(32, LOAD_32_##A, LOAD_32_##B, ALIGN_AND_ADD, STORE_32_##Y); \
    } else {                                                                  \
      one_by_one(y, a, b, n, how, WIDTHS, 0);                                 \
    }                                                                         \
  }
#define MUL(name, WIDTHS, A, B, Y)                                       \
  NMP_MUL(name) {                                                        \
    if (rows_of_both(how)) {                                             \
      BINARY_LOOP(32, LOAD_32_##A, LOAD_32_##B, MULTIPLY, STORE_32_##Y); \
    } else {                                                             \
      one_by_one(y, a, b, n, how, WIDTHS, 1);                            \
    }                                                                    \
  }

ADD_8X8(nmp_mve_add_8x8to8, 0, 8)
ADD_8X8(nmp_mve_add_8x8to16, 1, 16)
ADD(nmp_mve_add_8x16to8, 2, 8, 16, 8)
ADD(nmp_mve_add_8x16to16, 3, 8, 16, 16)
ADD(nmp_mve_add_16x8to8, 4, 16, 8, 8)
ADD(nmp_mve_add_16x8to16, 5, 16, 8, 16)
ADD(nmp_mve_add_16x16to8, 6, 16, 16, 8)
ADD(nmp_mve_add_16x16to16, 7, 16, 16, 16)

MUL(nmp_mve_mul_8x8to8, 0, 8, 8, 8)
MUL(nmp_mve_mul_8x8to16, 1, 8, 8, 16)
MUL(nmp_mve_mul_8x16to8, 2, 8, 16, 8)
MUL(nmp_mve_mul_8x16to16, 3, 8, 16, 16)
MUL(nmp_mve_mul_16x8to8, 4, 16, 8, 8)
MUL(nmp_mve_mul_16x8to16, 5, 16, 8, 16)
MUL(nmp_mve_mul_16x16to8, 6, 16, 16, 8)
MUL(nmp_mve_mul_16x16to16, 7, 16, 16, 16)

#define REQUANTIZE(name, X, Y)                                                                                 \
  NMP_REQUANTIZE(name) {                                                                                       \
    __asm volatile("wlstp.16 lr, %[n], 2f\n"                                                                 \
                   "1:\n" LOAD_16_##X("q0", "x") ROUND_AND_CLAMP("16") STORE_16_##Y("q0", "y")               \
                   "letp lr, 1b\n"                                                                           \
                   "2:\n"                                                                                    \
                   : [y] "+&l"(y), [x] "+&l"(x)                                                                \
                   : [n] "r"(n), [shift] "r"(-shift), [lo] "w"(vdupq_n_s16((int16_t)lo)), [hi] "w"(vdupq_n_s16((int16_t)hi))                             \
                   : "q0", "lr", "memory"); \
  }

REQUANTIZE(nmp_mve_requantize_8to8, 8, 8)
REQUANTIZE(nmp_mve_requantize_8to16, 8, 16)
REQUANTIZE(nmp_mve_requantize_16to8, 16, 8)
REQUANTIZE(nmp_mve_requantize_16to16, 16, 16)

/* A vector of channels at a time: STEP takes the pixels of a window's row into q0. */
#define WINDOW_ROW(LOAD, STEP, sums, x, live)                                   \
  __asm volatile(                                                               \
      "vmsr p0, %[live_]\n"                                                     \
      "dls lr, %[columns]\n"                                                    \
      "1: vpst\n" LOAD                                                          \
      " q0, [%[x_]]\n"                                                          \
      "add %[x_], %[column]\n" STEP                                             \
      " %q[sums_], %q[sums_], q0\n"                                             \
      "le lr, 1b\n"                                                             \
      : [sums_] "+w"(sums), [x_] "+&l"(x)                                       \
      : [columns] "r"(window->columns), [column] "r"(column), [live_] "r"(live) \
      : "q0", "lr", "memory")

#define WINDOW(name, X, Y, LANES, WIDE, VECTOR, START, CTP, LOAD, STEP, STORE) \
  void name(Y *y, const nmp_pixels *window, size_t n) {                        \
    const size_t column = window->column_stride * sizeof(X);                   \
    for (size_t c = 0; c < n; c += LANES) {                                    \
      const mve_pred16_t live = CTP(n - c);                                    \
      VECTOR all = START;                                                      \
      for (size_t r = 0; r < window->rows; r++) {                              \
        const X *x = (const X *)window->x + r * window->row_stride + c;        \
        WINDOW_ROW(LOAD, STEP, all, x, live);                                  \
      }                                                                        \
      STORE((WIDE *)y + c, all, live);                                         \
    }                                                                          \
  }

WINDOW(nmp_mve_max_8, int8_t, void, 16, int8_t, int8x16_t, vdupq_n_s8(INT8_MIN), vctp8q, "vldrbt.8", "vmax.s8",
       vstrbq_p_s8)
WINDOW(nmp_mve_max_16, int16_t, void, 8, int16_t, int16x8_t, vdupq_n_s16(INT16_MIN), vctp16q, "vldrht.16", "vmax.s16",
       vstrhq_p_s16)
WINDOW(nmp_mve_sum_8, int8_t, int32_t, 4, int32_t, int32x4_t, vdupq_n_s32(0), vctp32q, "vldrbt.s32", "vadd.i32",
       vstrwq_p_s32)
WINDOW(nmp_mve_sum_16, int16_t, int32_t, 4, int32_t, int32x4_t, vdupq_n_s32(0), vctp32q, "vldrht.s32", "vadd.i32",
       vstrwq_p_s32)

/* table[x + 128]: adding 128 to an int8 is to flip its highest bit and to take it as uint8. */
#define LOOKUP(name, LANES, LOAD, GATHER, STORE)               \
  NMP_LOOKUP(name) {                                           \
    (void)lo;                                                  \
    (void)hi;                                                  \
    __asm volatile("vmov.i" LANES                              \
                   " q1, #128\n"                               \
                   "wlstp." LANES                              \
                   " lr, %[n], 2f\n"                           \
                   "1: " LOAD "veor q0, q0, q1\n" GATHER STORE \
                   "letp lr, 1b\n"                             \
                   "2:\n"                                      \
                   : [y] "+&l"(y), [x] "+&l"(x)                \
                   : [n] "r"(n), [table] "r"(table)            \
                   : "q0", "q1", "q2", "lr", "memory");        \
  }

LOOKUP(nmp_mve_lookup_8to8, "8", "vldrb.8 q0, [%[x]], #16\n", "vldrb.u8 q2, [%[table], q0]\n",
       "vstrb.8 q2, [%[y]], #16\n")
LOOKUP(nmp_mve_lookup_8to16, "16", "vldrb.u16 q0, [%[x]], #8\n", "vldrh.u16 q2, [%[table], q0, uxtw #1]\n",
       "vstrh.16 q2, [%[y]], #16\n")

#endif
