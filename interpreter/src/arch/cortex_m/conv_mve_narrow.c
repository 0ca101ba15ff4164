/* Rows of int8 factors times rows of int8 weights. */
#include <string.h>

#include "arch/cortex_m/mve.h"

#ifdef NMP_MVE

/* Facts that stay the same for all rows of x: the weights, shifts, biases and range of some channels. The code below
 * knows the offsets of the first nine, in the order of the registers that they are loaded to.
 */
typedef struct layer layer;
typedef void row_fn(const layer *l, const void *x, void *y);
struct layer {
  const int8_t *exponents;
  const void *bias;
  const void *w[4];  /* the weights of the first four channels */
  size_t fours;      /* of channels, at least one */
  size_t hop, steps; /* bytes from where the loads of four channels have ended to the next four; what DOTS wants */
  int32_t shift, lo, hi;
  row_fn *row;
};

/* Registers: all there are. r0 exponents, r1 bias, r2 y, r3 x; r5, r7, r9, r11 weights; r4, r6, r8, r10 sums, which are
 * to be even ones; r12 fours. Compilers keep r6 and r7 for themselves, some of them at some levels, and have them back
 * at the end. Stack: row, hop, steps, r6, r7.
 */
#define FIXED(type, name, from) register type name __asm(#from) = name##_

/* Sixteen products of each of four channels, by vmladav (sums begin) or vmladava (they go on). */
#define STEP(MULTIPLY)               \
  "vldrb.8 q0, [r3], #16\n"          \
  "vldrb.8 q1, [r5], #16\n" MULTIPLY \
  ".s8 r4, q0, q1\n"                 \
  "vldrb.8 q2, [r7], #16\n" MULTIPLY \
  ".s8 r6, q0, q2\n"                 \
  "vldrb.8 q1, [r9], #16\n" MULTIPLY \
  ".s8 r8, q0, q1\n"                 \
  "vldrb.8 q2, [r11], #16\n" MULTIPLY ".s8 r10, q0, q2\n"

/* lr: k. The loop is predicated by the elements that are left in lr, so k need not be a multiple of 16. */
#define DOTS_ANY     \
  "mov r4, #0\n"     \
  "mov r6, #0\n"     \
  "mov r8, #0\n"     \
  "mov r10, #0\n"    \
  "dlstp.8 lr, lr\n" \
  "3:\n" STEP("vmladava") "letp lr, 3b\n"

/* lr: k / 64 - 1. */
#define DOTS_64S \
  STEP("vmladav") STEP("vmladava") STEP("vmladava") STEP("vmladava")     \
  "wls lr, lr, 4f\n"                                                     \
  "3:\n"                                                                 \
  STEP("vmladava") STEP("vmladava") STEP("vmladava") STEP("vmladava")    \
  "le lr, 3b\n"                                                          \
  "4:\n"

#define BIAS_8 "vldrb.s32 q2, [r1], #4\n"
#define BIAS_16 "vldrh.s32 q2, [r1], #8\n"
#define BIAS_32 "vldrw.32 q2, [r1], #16\n"
#define Y_8 "vstrb.32 q0, [r2], #4\n"
#define Y_16 "vstrh.32 q0, [r2], #8\n"

/* One row of int8 factors times int8 weights of all channels, four at a time. Loads and stores of less than a vector
 * take their address from a low register.
 */
#define ROW(name, DOTS, LOAD_BIAS, ADD, STORE)                                                                         \
  static void name(const layer *l_, const void *row_, void *y_) {                                                      \
    const int32x4_t shift = vdupq_n_s32(l_->shift), lo = vdupq_n_s32(l_->lo), hi = vdupq_n_s32(l_->hi);                \
    FIXED(const layer *, l, r0);                                                                                       \
    FIXED(const void *, row, r1);                                                                                      \
    FIXED(void *, y, r2);                                                                                              \
    __asm volatile(NMP_PUSH_R9                                                                                         \
                   "ldrd r3, r4, [r0, #28]\n"                                                                          \
                   "mov lr, r4\n"                                                                                      \
                   "push {r1, r3, r4, r6, r7}\n"                                                                       \
                   "ldm r0, {r0, r1, r5, r7, r9, r11, r12}\n"                                                          \
                   "b 2f\n"                                                                                            \
                   "1: ldrd r3, lr, [sp, #4]\n"                                                                        \
                   "add r5, r3\n"                                                                                      \
                   "add r7, r3\n"                                                                                      \
                   "add r9, r3\n"                                                                                      \
                   "add r11, r3\n"                                                                                     \
                   "2: ldr r3, [sp]\n" DOTS                                                                            \
                   "vldrb.s32 q1, [r0], #4\n"                                                                          \
                   "vmov d0, r4, r6\n"                                                                                 \
                   "vmov d1, r8, r10\n"                                                                                \
                   "vsub.s32 q1, q1, %q[shift]\n" LOAD_BIAS                                                            \
                   "vqrshl.s32 q0, q0, q1\n"                                                                           \
                   "vqadd.s32 q0, q0, q2\n" ADD                                                                        \
                   "vmax.s32 q0, q0, %q[lo]\n"                                                                         \
                   "vmin.s32 q0, q0, %q[hi]\n" STORE                                                                   \
                   "subs r12, #1\n"                                                                                    \
                   "bne 1b\n"                                                                                          \
                   "pop {r1, r3, r4, r6, r7}\n" NMP_POP_R9                                                             \
                   : "+r"(l), "+r"(row), "+r"(y)                                                                       \
                   : [shift] "w"(shift), [lo] "w"(lo), [hi] "w"(hi)                                                    \
                   : "q0", "q1", "q2", "r3", "r4", "r5", "r8", NMP_R9_LOST "r10", "r11", "r12", "lr", "cc", "memory"); \
  }

#define ROW_8X8(name, DOTS, LOAD_BIAS, STORE) ROW(name, DOTS, LOAD_BIAS, "", STORE)
#define ROW_ADD(name, DOTS, LOAD_BIAS) ROW(name, DOTS, LOAD_BIAS, "vldrb.s32 q2, [r2]\nvqadd.s32 q0, q0, q2\n", Y_8)

ROW_8X8(row_bias8_y8, DOTS_ANY, BIAS_8, Y_8)
ROW_8X8(row_bias8_y16, DOTS_ANY, BIAS_8, Y_16)
ROW_8X8(row_bias16_y8, DOTS_ANY, BIAS_16, Y_8)
ROW_8X8(row_bias16_y16, DOTS_ANY, BIAS_16, Y_16)
ROW_8X8(row_bias32_y8, DOTS_ANY, BIAS_32, Y_8)
ROW_8X8(row_bias32_y16, DOTS_ANY, BIAS_32, Y_16)
ROW_8X8(row_64_bias8_y8, DOTS_64S, BIAS_8, Y_8)
ROW_8X8(row_64_bias8_y16, DOTS_64S, BIAS_8, Y_16)
ROW_8X8(row_64_bias16_y8, DOTS_64S, BIAS_16, Y_8)
ROW_8X8(row_64_bias16_y16, DOTS_64S, BIAS_16, Y_16)
#if NMP_CONV_ADD
ROW_ADD(row_add_bias8, DOTS_ANY, BIAS_8)
ROW_ADD(row_add_bias16, DOTS_ANY, BIAS_16)
ROW_ADD(row_add_bias32, DOTS_ANY, BIAS_32)
ROW_ADD(row_64_add_bias8, DOTS_64S, BIAS_8)
ROW_ADD(row_64_add_bias16, DOTS_64S, BIAS_16)
#endif

/* By the bytes of a bias (1, 2 or 4, halved) and what is done. */
static row_fn *row_of(const nmp_conv *c, int in_64s) {
  static row_fn *const any[3][2] = {
      {row_bias8_y8, row_bias8_y16}, {row_bias16_y8, row_bias16_y16}, {row_bias32_y8, row_bias32_y16}};
  static row_fn *const fast[2][2] = {/* many products of a common kind */
                                     {row_64_bias8_y8, row_64_bias8_y16},
                                     {row_64_bias16_y8, row_64_bias16_y16}};
  const size_t bias = c->bias_bits / 16;
#if NMP_CONV_ADD
  static row_fn *const add[3] = {row_add_bias8, row_add_bias16, row_add_bias32};
  static row_fn *const fast_add[2] = {row_64_add_bias8, row_64_add_bias16};
  if (c->adds) {
    return in_64s ? fast_add[bias] : add[bias];
  }
#endif
  return in_64s ? fast[bias][nmp_y_wide(c)] : any[bias][nmp_y_wide(c)];
}

static layer layer_of(const nmp_conv *c, size_t first, size_t fours) {
  const size_t k = c->k, bias = c->bias_bits / 16;
  const int8_t *w = (const int8_t *)c->w + first * k;
  const int in_64s = k % 64 == 0 && bias < 2;
  return (layer){.row = row_of(c, in_64s),
                 .w = {w, w + k, w + 2 * k, w + 3 * k},
                 .hop = 4 * k - (k + 15) / 16 * 16,
                 .steps = in_64s ? k / 64 - 1 : k,
                 .exponents = c->exponent_step ? c->exponents + first : (const int8_t *)c->scratch,
                 .bias = (const uint8_t *)c->bias + first * (c->bias_bits / 8u),
                 .fours = fours,
                 .shift = c->shift,
                 .lo = c->lo,
                 .hi = c->hi};
}

/* Rows of one to three channels: as if they were four, apart from where the results go. */
static void rows_of_few(const nmp_conv *c, const uint8_t *x, size_t rows, size_t first, size_t count, uint8_t *y) {
  layer l = layer_of(c, first, 1);
  int8_t exponents[4];
  int32_t bias[4], four[4];
  const size_t bytes = c->bias_bits / 8;
  for (size_t i = 0; i < 4; i++) {
    const size_t channel = first + (i < count ? i : 0);
    exponents[i] = c->exponents[channel * c->exponent_step];
    memcpy((uint8_t *)bias + i * bytes, (const uint8_t *)c->bias + channel * bytes, bytes);
  }
  l.exponents = exponents;
  l.bias = bias;
  for (size_t i = count; i < 4; i++) {
    l.w[i] = l.w[0];
  }
  for (size_t r = 0; r < rows; r++, x += c->k, y += c->out << nmp_y_wide(c)) {
    if (nmp_conv_adds(c)) {
      memcpy(four, y, count);
    }
    l.row(&l, x, four);
    memcpy(y, four, count << nmp_y_wide(c));
  }
}

/* Both factors int8. The last four channels may overlap those before, as they come to the same, but where y is added.
 */
void nmp_conv_mve_narrow(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel) {
  const uint8_t *from = x;
  uint8_t *y = (uint8_t *)c->y + ((pixel * c->out + first) << nmp_y_wide(c));
  if (count < 4) {
    rows_of_few(c, from, rows, first, count, y);
    return;
  }
  layer l = layer_of(c, first, count / 4);
  for (size_t r = 0; r < rows; r++) {
    l.row(&l, from + r * c->k, y + (r * c->out << nmp_y_wide(c)));
  }
  if (count % 4 && nmp_conv_adds(c)) {
    const size_t few = count % 4, done = count - few;
    rows_of_few(c, from, rows, first + done, few, y + done);
  } else if (count % 4) {
    l = layer_of(c, first + count - 4, 1);
    y += (count - 4) << nmp_y_wide(c);
    for (size_t r = 0; r < rows; r++) {
      l.row(&l, from + r * c->k, y + (r * c->out << nmp_y_wide(c)));
    }
  }
}

#endif
