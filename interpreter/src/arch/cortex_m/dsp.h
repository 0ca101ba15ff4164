/* Cortex-M with the DSP extension (M4, M7, M33): its instructions, one function each. */
#ifndef NMP_ARCH_CORTEX_M_DSP_H
#define NMP_ARCH_CORTEX_M_DSP_H

#include <string.h>

#include "arch/cortex_m/level.h"

#ifdef NMP_DSP

#define DSP_INLINE static inline __attribute__((always_inline))

/* Any alignment. One instruction, also where the build is -ffreestanding and a memcpy would be called. */
static inline uint32_t dsp_load(const void *p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  return word;
}

static inline void dsp_store(void *p, uint32_t word) {
  __builtin_memcpy(p, &word, sizeof(word));
}

#define DSP_UNARY(name, text)               \
  static inline uint32_t name(uint32_t a) { \
    uint32_t r;                             \
    __asm__(text : "=r"(r) : "r"(a));       \
    return r;                               \
  }
#define DSP_BINARY(name, text)                          \
  static inline uint32_t name(uint32_t a, uint32_t b) { \
    uint32_t r;                                         \
    __asm__(text : "=r"(r) : "r"(a), "r"(b));           \
    return r;                                           \
  }
#define DSP_ADD_PRODUCTS(name, text)                                \
  static inline int32_t name(uint32_t a, uint32_t b, int32_t sum) { \
    int32_t r;                                                      \
    __asm__(text : "=r"(r) : "r"(a), "r"(b), "r"(sum));             \
    return r;                                                       \
  }
#define DSP_ADD_LONG(name, text)                                    \
  static inline int64_t name(uint32_t a, uint32_t b, int64_t sum) { \
    __asm__(text : "+r"(sum) : "r"(a), "r"(b));                     \
    return sum;                                                     \
  }

DSP_UNARY(dsp_even, "sxtb16 %0, %1")               /* bytes 0 and 2 as int16 */
DSP_UNARY(dsp_odd, "sxtb16 %0, %1, ror #8")        /* bytes 1 and 3 */
DSP_BINARY(dsp_low, "pkhbt %0, %1, %2, lsl #16")   /* the lower halves of both */
DSP_BINARY(dsp_high, "pkhtb %0, %2, %1, asr #16")  /* the upper halves */
DSP_ADD_PRODUCTS(dsp_mla2, "smlad %0, %1, %2, %3") /* sum + lower * lower + upper * upper */
DSP_ADD_PRODUCTS(dsp_mla_low, "smlabb %0, %1, %2, %3")
DSP_ADD_PRODUCTS(dsp_mla_high, "smlatt %0, %1, %2, %3")
DSP_ADD_LONG(dsp_mlal2, "smlald %Q0, %R0, %1, %2") /* the same in 64 bits */
DSP_ADD_LONG(dsp_mlal_low, "smlalbb %Q0, %R0, %1, %2")
DSP_ADD_LONG(dsp_mlal_high, "smlaltt %Q0, %R0, %1, %2")

#undef DSP_UNARY
#undef DSP_BINARY
#undef DSP_ADD_PRODUCTS
#undef DSP_ADD_LONG

#define DSP_SATURATE(name, text)          \
  static inline int32_t name(int32_t a) { \
    int32_t r;                            \
    __asm__(text : "=r"(r) : "r"(a));     \
    return r;                             \
  }

DSP_SATURATE(dsp_int8, "ssat %0, #8, %1")
DSP_SATURATE(dsp_int16, "ssat %0, #16, %1")
DSP_SATURATE(dsp_positive8, "usat %0, #7, %1") /* 0..127 */
DSP_SATURATE(dsp_positive16, "usat %0, #15, %1")

#undef DSP_SATURATE

/* Four int8 to a range that is four times in lo and in hi. */
static inline uint32_t dsp_clip_bytes(uint32_t a, uint32_t lo, uint32_t hi) {
  uint32_t spare;
  __asm__(
      "ssub8 %1, %0, %2\n"
      "sel %0, %0, %2\n"
      "ssub8 %1, %3, %0\n"
      "sel %0, %0, %3\n"
      : "+&r"(a), "=&r"(spare)
      : "r"(lo), "r"(hi)
      : "cc");
  return a;
}

/* The lowest bytes of four, the first in the lowest place. */
static inline uint32_t dsp_bytes(int32_t a, int32_t b, int32_t c, int32_t d) {
  uint32_t r = (uint32_t)a;
  __asm__("bfi %0, %1, #8, #8" : "+r"(r) : "r"(b));
  __asm__("bfi %0, %1, #16, #8" : "+r"(r) : "r"(c));
  __asm__("bfi %0, %1, #24, #8" : "+r"(r) : "r"(d));
  return r;
}

#endif
#endif
