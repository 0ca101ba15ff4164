/* Matrix products in place, depthwise sums and their ends with RISC-V's vectors. */
#include "arch/rvv/rvv.h"

#ifdef NMP_RVV

/* Products along k of a row and four channels; channels that are not there are the last one again. Lanes behind the
 * last element keep their sums.
 */
#define LANES_32 __riscv_vsetvlmax_e32m4()
#define LANES_64 __riscv_vsetvlmax_e64m4()
#define ZERO_32 __riscv_vmv_v_x_i32m4(0, LANES_32)
#define ZERO_64 __riscv_vmv_v_x_i64m4(0, LANES_64)
#define TOTAL_32(v) __riscv_vmv_x_s_i32m1_i32(__riscv_vredsum_vs_i32m4_i32m1(v, __riscv_vmv_v_x_i32m1(0, 1), LANES_32))
#define TOTAL_64(v) __riscv_vmv_x_s_i64m1_i64(__riscv_vredsum_vs_i64m4_i64m1(v, __riscv_vmv_v_x_i64m1(0, 1), LANES_64))

#define LOAD_8(from) __riscv_vsext_vf2_i16m1(__riscv_vle8_v_i8mf2(from, vl), vl)
#define LOAD_16(from) __riscv_vle16_v_i16m1(from, vl)
#define NARROW_8(from) __riscv_vle8_v_i8m1(from, vl)
#define ADD_32(sum, p, w) sum = __riscv_vwadd_wv_i32m4_tu(sum, sum, __riscv_vwmul_vv_i16m2(p, NARROW_8(w), vl), vl)
#define ADD_64_8(sum, p, w) sum = __riscv_vwadd_wv_i64m4_tu(sum, sum, __riscv_vwmul_vv_i32m2(p, LOAD_8(w), vl), vl)
#define ADD_64_16(sum, p, w) sum = __riscv_vwadd_wv_i64m4_tu(sum, sum, __riscv_vwmul_vv_i32m2(p, LOAD_16(w), vl), vl)

#define GEMM(name, X, W, SUM, VX, LOAD, VSUM, SETVL, ZERO, STEP, TOTAL)                        \
  static void name##_four(SUM *out, const X *x, const W *w, const size_t next[3], size_t k) {  \
    const W *w0 = w, *w1 = w + next[0], *w2 = w + next[1], *w3 = w + next[2];                  \
    VSUM a = ZERO, b = ZERO, c = ZERO, d = ZERO;                                               \
    for (size_t vl; k > 0; k -= vl, x += vl, w0 += vl, w1 += vl, w2 += vl, w3 += vl) {         \
      vl = SETVL(k);                                                                           \
      const VX p = LOAD(x);                                                                    \
      STEP(a, p, w0);                                                                          \
      STEP(b, p, w1);                                                                          \
      STEP(c, p, w2);                                                                          \
      STEP(d, p, w3);                                                                          \
    }                                                                                          \
    out[0] = TOTAL(a);                                                                         \
    out[1] = TOTAL(b);                                                                         \
    out[2] = TOTAL(c);                                                                         \
    out[3] = TOTAL(d);                                                                         \
  }                                                                                            \
  NMP_GEMM(name) {                                                                             \
    SUM *out = sums, four[4];                                                                  \
    for (size_t r = 0; r < rows; r++, out += channels) {                                       \
      for (size_t c = 0; c < channels; c += 4) {                                               \
        const size_t left = channels - c - 1;                                                  \
        const size_t next[3] = {left > 0 ? k : 0, left > 1 ? 2 * k : 0, left > 2 ? 3 * k : 0}; \
        name##_four(four, (const X *)x + r * x_stride, (const W *)w + c * k, next, k);         \
        for (size_t i = 0; i < 4 && i <= left; i++) {                                          \
          out[c + i] = four[i];                                                                \
        }                                                                                      \
      }                                                                                        \
    }                                                                                          \
  }
#define GEMM_64(name, X, W, LOAD, STEP) \
  GEMM(name, X, W, int64_t, vint16m1_t, LOAD, vint64m4_t, __riscv_vsetvl_e64m4, ZERO_64, STEP, TOTAL_64)

GEMM(nmp_rvv_gemm_8x8, int8_t, int8_t, int32_t, vint8m1_t, NARROW_8, vint32m4_t, __riscv_vsetvl_e32m4, ZERO_32, ADD_32,
     TOTAL_32)
GEMM_64(nmp_rvv_gemm_8x16, int8_t, int16_t, LOAD_8, ADD_64_16)
GEMM_64(nmp_rvv_gemm_16x8, int16_t, int8_t, LOAD_16, ADD_64_8)
GEMM_64(nmp_rvv_gemm_16x16, int16_t, int16_t, LOAD_16, ADD_64_16)

#define DEPTHWISE(name, X, W, SUM, VX, LOAD, VSUM, SETVL, STEP, STORE) \
  NMP_DEPTHWISE(name) {                                                \
    for (size_t c = 0, vl; c < n; c += vl) {                           \
      vl = SETVL(n - c);                                               \
      VSUM sum = __riscv_vmv_v_x_##STORE(0, vl);                       \
      for (size_t t = 0; t < taps; t++) {                              \
        const VX p = LOAD((const X *)x[t] + c);                        \
        STEP(sum, p, (const W *)w + t * n + c);                        \
      }                                                                \
      __riscv_vse##SUM##_v_##STORE((int##SUM##_t *)sums + c, sum, vl); \
    }                                                                  \
  }
#define DEPTHWISE_64(name, X, W, LOAD, STEP) \
  DEPTHWISE(name, X, W, 64, vint16m1_t, LOAD, vint64m4_t, __riscv_vsetvl_e64m4, STEP, i64m4)

DEPTHWISE(nmp_rvv_depthwise_8x8, int8_t, int8_t, 32, vint8m1_t, NARROW_8, vint32m4_t, __riscv_vsetvl_e32m4, ADD_32,
          i32m4)
DEPTHWISE_64(nmp_rvv_depthwise_8x16, int8_t, int16_t, LOAD_8, ADD_64_16)
DEPTHWISE_64(nmp_rvv_depthwise_16x8, int16_t, int8_t, LOAD_16, ADD_64_8)
DEPTHWISE_64(nmp_rvv_depthwise_16x16, int16_t, int16_t, LOAD_16, ADD_64_16)

#define STORE_8(y, v) __riscv_vse8_v_i8mf2(y, __riscv_vncvt_x_x_w_i8mf2(v, vl), vl)
#define STORE_16(y, v) __riscv_vse16_v_i16m1(y, v, vl)
#define SUMS_32(from) __riscv_vsext_vf2_i64m4(__riscv_vle32_v_i32m2(from, vl), vl)
#define SUMS_64(from) __riscv_vle64_v_i64m4(from, vl)

/* In 64 bits: any shift and any bias. */
#define SCALE(name, ACC, SUMS, Y, STORE)                                                                 \
  NMP_SCALE(name) {                                                                                      \
    for (size_t c = 0, vl; c < channels; c += vl) {                                                      \
      const ACC *acc = (const ACC *)sums + c;                                                            \
      Y *out = (Y *)y + c;                                                                               \
      vl = __riscv_vsetvl_e64m4(channels - c);                                                           \
      const vint64m4_t s = __riscv_vsext_vf8_i64m4(__riscv_vle8_v_i8mf2(shift + c, vl), vl);             \
      const vint64m4_t b = __riscv_vsext_vf2_i64m4(__riscv_vle32_v_i32m2(bias + c, vl), vl);             \
      const vuint64m4_t right = __riscv_vreinterpret_v_i64m4_u64m4(__riscv_vmax_vx_i64m4(s, 0, vl));     \
      const vuint64m4_t left =                                                                           \
          __riscv_vreinterpret_v_i64m4_u64m4(__riscv_vmax_vx_i64m4(__riscv_vneg_v_i64m4(s, vl), 0, vl)); \
      for (size_t r = 0; r < rows; r++, acc += channels, out += y_stride) {                              \
        vint64m4_t v = __riscv_vsll_vv_i64m4(SUMS(acc), left, vl);                                       \
        v = __riscv_vadd_vv_i64m4(__riscv_vssra_vv_i64m4(v, right, __RISCV_VXRM_RNU, vl), b, vl);        \
        v = __riscv_vmin_vx_i64m4(__riscv_vmax_vx_i64m4(v, lo, vl), hi, vl);                             \
        STORE(out, __riscv_vncvt_x_x_w_i16m1(__riscv_vncvt_x_x_w_i32m2(v, vl), vl));                     \
      }                                                                                                  \
    }                                                                                                    \
  }

SCALE(nmp_rvv_scale_32to8, int32_t, SUMS_32, int8_t, STORE_8)
SCALE(nmp_rvv_scale_32to16, int32_t, SUMS_32, int16_t, STORE_16)
SCALE(nmp_rvv_scale_64to8, int64_t, SUMS_64, int8_t, STORE_8)
SCALE(nmp_rvv_scale_64to16, int64_t, SUMS_64, int16_t, STORE_16)

#endif
