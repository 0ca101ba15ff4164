/* Parts that dense and depthwise convolutions with RISC-V's vectors share: what is packed, and how sums end. */
#ifndef NMP_ARCH_RVV_CONV_RVV_H
#define NMP_ARCH_RVV_CONV_RVV_H

#include "arch/rvv/rvv.h"

#ifdef NMP_RVV

/* Packed: this, the biases and the shifts of all channels, then the weights, channel beside channel. */
typedef struct nmp_rvv_head {
  uint32_t sums; /* enum nmp_rvv_sums */
  uint32_t none[3];
} nmp_rvv_head;

/* Proofs that the weights give: that sums fit 32 bits, whatever x is; or that two products do. */
enum nmp_rvv_sums { NMP_RVV_32, NMP_RVV_PAIRS, NMP_RVV_64 };

static inline const int32_t *nmp_rvv_bias(const nmp_conv *c) {
  return (const int32_t *)((const nmp_rvv_head *)c->packed + 1);
}

static inline const uint32_t *nmp_rvv_shift(const nmp_conv *c) {
  return (const uint32_t *)nmp_rvv_bias(c) + c->out;
}

static inline const uint8_t *nmp_rvv_weights(const nmp_conv *c) {
  return (const uint8_t *)(nmp_rvv_shift(c) + c->out);
}

size_t nmp_conv_rvv_packed(const nmp_conv *c);
void nmp_conv_rvv_pack(const nmp_conv *c, void *to);

/* Shifts are to the right and fit 32 bits; biases do not bring back what a sum of 64 bits loses as an int32. No biases
 * yet: all will be 0. */
int nmp_conv_rvv_ends(const nmp_conv *c, int most);

/* y = sat(sum + bias): sums that are shifted already; with what y holds where that is added. */
static inline void nmp_rvv_store(const nmp_conv *c, void *y, vint32m4_t sum, size_t channel, size_t vl) {
  sum = __riscv_vsadd_vv_i32m4(sum, __riscv_vle32_v_i32m4(nmp_rvv_bias(c) + channel, vl), vl);
  vint16m2_t v = __riscv_vnclip_wx_i16m2(sum, 0, __RISCV_VXRM_RNU, vl);
  if (nmp_conv_adds(c)) {
    v = __riscv_vsadd_vv_i16m2(v, __riscv_vsext_vf2_i16m2(__riscv_vle8_v_i8m1((const int8_t *)y, vl), vl), vl);
  }
  v = __riscv_vmin_vx_i16m2(__riscv_vmax_vx_i16m2(v, (int16_t)c->lo, vl), (int16_t)c->hi, vl);
  if (c->y_wide) {
    __riscv_vse16_v_i16m2((int16_t *)y, v, vl);
  } else {
    __riscv_vse8_v_i8m1((int8_t *)y, __riscv_vncvt_x_x_w_i8m1(v, vl), vl);
  }
}

static inline void nmp_rvv_end_32(const nmp_conv *c, void *y, vint32m4_t sum, size_t channel, size_t vl) {
  const vuint32m4_t shift = __riscv_vle32_v_u32m4(nmp_rvv_shift(c) + channel, vl);
  nmp_rvv_store(c, y, __riscv_vssra_vv_i32m4(sum, shift, __RISCV_VXRM_RNU, vl), channel, vl);
}

/* The shift ends in 32 bits, saturated; biases are small. */
static inline void nmp_rvv_end_64(const nmp_conv *c, void *y, vint64m4_t sum, size_t channel, size_t vl) {
  const vuint32m2_t shift = __riscv_vle32_v_u32m2(nmp_rvv_shift(c) + channel, vl);
  const vint32m2_t v = __riscv_vnclip_wv_i32m2(sum, shift, __RISCV_VXRM_RNU, vl);
  nmp_rvv_store(c, y, __riscv_vlmul_ext_v_i32m2_i32m4(v), channel, vl);
}

#endif
#endif
