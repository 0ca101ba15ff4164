/* Element-wise kernels, windows and tables with RISC-V's vectors. */
#include "arch/rvv/rvv.h"

#ifdef NMP_RVV

#define LOAD_32_8(from) __riscv_vsext_vf4_i32m8(__riscv_vle8_v_i8m2(from, vl), vl)
#define LOAD_32_16(from) __riscv_vsext_vf2_i32m8(__riscv_vle16_v_i16m4(from, vl), vl)
#define LOAD_64_8(from) __riscv_vsext_vf8_i64m8(__riscv_vle8_v_i8m1(from, vl), vl)
#define LOAD_64_16(from) __riscv_vsext_vf4_i64m8(__riscv_vle16_v_i16m2(from, vl), vl)
#define STORE_8_M2(y, v) __riscv_vse8_v_i8m2(y, __riscv_vncvt_x_x_w_i8m2(v, vl), vl)
#define STORE_16_M4(y, v) __riscv_vse16_v_i16m4(y, v, vl)
#define STORE_8_M1(y, v) __riscv_vse8_v_i8m1(y, __riscv_vncvt_x_x_w_i8m1(v, vl), vl)
#define STORE_16_M2(y, v) __riscv_vse16_v_i16m2(y, v, vl)

static inline vint16m4_t round_32(vint32m8_t v, size_t shift, int32_t lo, int32_t hi, size_t vl) {
  v = __riscv_vssra_vx_i32m8(v, shift, __RISCV_VXRM_RNU, vl);
  v = __riscv_vmin_vx_i32m8(__riscv_vmax_vx_i32m8(v, lo, vl), hi, vl);
  return __riscv_vncvt_x_x_w_i16m4(v, vl);
}

static inline vint16m2_t round_64(vint64m8_t v, int shift, int32_t lo, int32_t hi, size_t vl) {
  v = __riscv_vsll_vx_i64m8(v, (size_t)(shift < 0 ? -shift : 0), vl);
  v = __riscv_vssra_vx_i64m8(v, (size_t)(shift > 0 ? shift : 0), __RISCV_VXRM_RNU, vl);
  v = __riscv_vmin_vx_i64m8(__riscv_vmax_vx_i64m8(v, lo, vl), hi, vl);
  return __riscv_vncvt_x_x_w_i16m2(__riscv_vncvt_x_x_w_i32m4(v, vl), vl);
}

/* An int16 shifted to the left by at most 15 is an int32, and from a right shift of 31 on it is 0. */
#define REQUANTIZE(name, X, LOAD, Y, STORE)                                                                          \
  NMP_REQUANTIZE(name) {                                                                                             \
    const size_t left = (size_t)(shift < 0 ? -shift : 0), right = (size_t)(shift > 31 ? 31 : shift > 0 ? shift : 0); \
    for (size_t i = 0, vl; i < n; i += vl) {                                                                         \
      vl = __riscv_vsetvl_e32m8(n - i);                                                                              \
      const vint32m8_t v = __riscv_vsll_vx_i32m8(LOAD((const X *)x + i), left, vl);                                  \
      STORE((Y *)y + i, round_32(v, right, lo, hi, vl));                                                             \
    }                                                                                                                \
  }

REQUANTIZE(nmp_rvv_requantize_8to8, int8_t, LOAD_32_8, int8_t, STORE_8_M2)
REQUANTIZE(nmp_rvv_requantize_8to16, int8_t, LOAD_32_8, int16_t, STORE_16_M4)
REQUANTIZE(nmp_rvv_requantize_16to8, int16_t, LOAD_32_16, int8_t, STORE_8_M2)
REQUANTIZE(nmp_rvv_requantize_16to16, int16_t, LOAD_32_16, int16_t, STORE_16_M4)

#define SUM_32(p, q)                                                        \
  __riscv_vadd_vv_i32m8(__riscv_vsll_vx_i32m8(p, (size_t)how->a_shift, vl), \
                        __riscv_vsll_vx_i32m8(q, (size_t)how->b_shift, vl), vl)
#define SUM_64(p, q)                                                        \
  __riscv_vadd_vv_i64m8(__riscv_vsll_vx_i64m8(p, (size_t)how->a_shift, vl), \
                        __riscv_vsll_vx_i64m8(q, (size_t)how->b_shift, vl), vl)
#define PRODUCT_32(p, q) __riscv_vmul_vv_i32m8(p, q, vl)
#define PRODUCT_64(p, q) __riscv_vmul_vv_i64m8(p, q, vl)

/* A single operand (step 0) is spread over a vector. */
#define OPERAND(bits, from, i, step, LOAD) ((step) ? LOAD((from) + (i)) : __riscv_vmv_v_x_i##bits##m8(*(from), vl))

/* IN_32: whether what comes before the shift is an int32; then a shift of up to 31 to the right is one instruction. */
#define BINARY(name, SIGNATURE, IN_32, OF, A, B, Y, STORE_32, STORE_64)                      \
  SIGNATURE(name) {                                                                          \
    const int##A##_t *as = a;                                                                \
    const int##B##_t *bs = b;                                                                \
    int##Y##_t *ys = y;                                                                      \
    if ((IN_32) && how->shift >= 0 && how->shift < 32) {                                     \
      for (size_t i = 0, vl; i < n; i += vl) {                                               \
        vl = __riscv_vsetvl_e32m8(n - i);                                                    \
        const vint32m8_t p = OPERAND(32, as, i, how->a_step, LOAD_32_##A);                   \
        const vint32m8_t q = OPERAND(32, bs, i, how->b_step, LOAD_32_##B);                   \
        STORE_32(ys + i, round_32(OF##_32(p, q), (size_t)how->shift, how->lo, how->hi, vl)); \
      }                                                                                      \
    } else {                                                                                 \
      for (size_t i = 0, vl; i < n; i += vl) {                                               \
        vl = __riscv_vsetvl_e64m8(n - i);                                                    \
        const vint64m8_t p = OPERAND(64, as, i, how->a_step, LOAD_64_##A);                   \
        const vint64m8_t q = OPERAND(64, bs, i, how->b_step, LOAD_64_##B);                   \
        STORE_64(ys + i, round_64(OF##_64(p, q), how->shift, how->lo, how->hi, vl));         \
      }                                                                                      \
    }                                                                                        \
  }
#define ADD(name, ...) BINARY(name, NMP_ADD, how->a_shift < 15 && how->b_shift < 15, SUM, __VA_ARGS__)
#define MUL(name, ...) BINARY(name, NMP_MUL, 1, PRODUCT, __VA_ARGS__)
#define ALL_WIDTHS(K, name)                               \
  K(name##_8x8to8, 8, 8, 8, STORE_8_M2, STORE_8_M1)       \
  K(name##_8x8to16, 8, 8, 16, STORE_16_M4, STORE_16_M2)   \
  K(name##_8x16to8, 8, 16, 8, STORE_8_M2, STORE_8_M1)     \
  K(name##_8x16to16, 8, 16, 16, STORE_16_M4, STORE_16_M2) \
  K(name##_16x8to8, 16, 8, 8, STORE_8_M2, STORE_8_M1)     \
  K(name##_16x8to16, 16, 8, 16, STORE_16_M4, STORE_16_M2) \
  K(name##_16x16to8, 16, 16, 8, STORE_8_M2, STORE_8_M1)   \
  K(name##_16x16to16, 16, 16, 16, STORE_16_M4, STORE_16_M2)

ALL_WIDTHS(ADD, nmp_rvv_add)
ALL_WIDTHS(MUL, nmp_rvv_mul)

/* table[x + 128]: adding 128 to an int8 is to flip its highest bit and to take it as uint8. */
NMP_LOOKUP(nmp_rvv_lookup_8to8) {
  (void)lo;
  (void)hi;
  for (size_t i = 0, vl; i < n; i += vl) {
    vl = __riscv_vsetvl_e8m4(n - i);
    const vuint8m4_t at = __riscv_vxor_vx_u8m4(__riscv_vle8_v_u8m4((const uint8_t *)x + i, vl), 128, vl);
    __riscv_vse8_v_i8m4((int8_t *)y + i, __riscv_vluxei8_v_i8m4(table, at, vl), vl);
  }
}

NMP_LOOKUP(nmp_rvv_lookup_8to16) {
  (void)lo;
  (void)hi;
  for (size_t i = 0, vl; i < n; i += vl) {
    vl = __riscv_vsetvl_e8m2(n - i);
    const vuint8m2_t at = __riscv_vxor_vx_u8m2(__riscv_vle8_v_u8m2((const uint8_t *)x + i, vl), 128, vl);
    const vuint16m4_t byte = __riscv_vwaddu_vv_u16m4(at, at, vl);
    __riscv_vse16_v_i16m4((int16_t *)y + i, __riscv_vluxei16_v_i16m4(table, byte, vl), vl);
  }
}

#define EACH_PIXEL(X, STEP)                                                                   \
  for (size_t r = 0; r < window->rows; r++) {                                                 \
    const X *p = (const X *)window->x + r * window->row_stride + c;                           \
    for (size_t column = 0; column < window->columns; column++, p += window->column_stride) { \
      STEP;                                                                                   \
    }                                                                                         \
  }

#define MAX(name, bits)                                                                                    \
  NMP_MAX(name) {                                                                                          \
    for (size_t c = 0, vl; c < n; c += vl) {                                                               \
      vl = __riscv_vsetvl_e##bits##m8(n - c);                                                              \
      vint##bits##m8_t most = __riscv_vle##bits##_v_i##bits##m8((const int##bits##_t *)window->x + c, vl); \
      EACH_PIXEL(int##bits##_t,                                                                            \
                 most = __riscv_vmax_vv_i##bits##m8(most, __riscv_vle##bits##_v_i##bits##m8(p, vl), vl))   \
      __riscv_vse##bits##_v_i##bits##m8((int##bits##_t *)y + c, most, vl);                                 \
    }                                                                                                      \
  }

MAX(nmp_rvv_max_8, 8)
MAX(nmp_rvv_max_16, 16)

#define PIXEL_8(p) __riscv_vsext_vf2_i16m4(__riscv_vle8_v_i8m2(p, vl), vl)
#define PIXEL_16(p) __riscv_vle16_v_i16m4(p, vl)
#define SUM(name, X, PIXEL)                                          \
  NMP_SUM(name) {                                                    \
    for (size_t c = 0, vl; c < n; c += vl) {                         \
      vl = __riscv_vsetvl_e32m8(n - c);                              \
      vint32m8_t all = __riscv_vmv_v_x_i32m8(0, vl);                 \
      EACH_PIXEL(X, all = __riscv_vwadd_wv_i32m8(all, PIXEL(p), vl)) \
      __riscv_vse32_v_i32m8(sums + c, all, vl);                      \
    }                                                                \
  }

SUM(nmp_rvv_sum_8, int8_t, PIXEL_8)
SUM(nmp_rvv_sum_16, int16_t, PIXEL_16)

#endif
