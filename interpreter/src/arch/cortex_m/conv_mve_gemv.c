/* gemv: one row of factors times rows of weights, one of them int16 or both, for what is left over and for fully
 * connected layers of batch 1. Four channels share what is loaded of the row. Sums have 64 bits; the chooser has seen
 * to it that they are int32 after their shift.
 */
#include "arch/cortex_m/mve.h"

#ifdef NMP_MVE

#define FOURS 16 /* of channels whose sums are on the stack at a time */

/* State that the loop over fours of channels begins with. The code knows the order: that of the registers it is loaded
 * to. */
typedef struct walk {
  const void *w0, *x, *w1;
  size_t k;
  const void *w2;
  size_t hop; /* bytes from where the loads of a channel have ended to the channel after the next three */
  const void *w3;
  int32_t *sums; /* of each four: high words, low words */
  size_t fours;
} walk;

/* Registers: all there are. r0, r2, r4, r6 weights and r5 factors, low ones for loads that widen; r7 elements that are
 * left; sums in r8 and r1, r10 and r3, r12 and r9, lr and r11. Compilers keep r6 and r7 for themselves, some of them at
 * some levels, and have them back at the end. Stack: what a four begins with, in one load: zeros, x, k, zeros; then
 * hop, sums, fours; r6, r7.
 */
#define FIXED(type, name, from) register type name __asm(#from) = name##_

#define LOAD_8(q, from) "vldrb.s16 " q ", [" from "], #8\n"
#define LOAD_16(q, from) "vldrh.16 " q ", [" from "], #16\n"
#define SOME_8(q, from) "vldrbt.s16 " q ", [" from "], #8\n"
#define SOME_16(q, from) "vldrht.16 " q ", [" from "], #16\n"

#define CHANNEL(sum, w) "vmlaldava.s16 " sum ", q0, " w "\n"
#define CHANNEL_0(w) CHANNEL("r8, r1", w)
#define CHANNEL_1(w) CHANNEL("r10, r3", w)
#define CHANNEL_2(w) CHANNEL("r12, r9", w)
#define CHANNEL_3(w) CHANNEL("lr, r11", w)

#define STEP(X, W) \
  X("q0", "r5")    \
  W("q1", "r0")    \
  CHANNEL_0("q1")  \
  W("q2", "r2")    \
  CHANNEL_1("q2")  \
  W("q1", "r4")    \
  CHANNEL_2("q1")  \
  W("q2", "r6")    \
  CHANNEL_3("q2")

#define FOUR_STEPS(X, W) STEP(X, W) STEP(X, W) STEP(X, W) STEP(X, W)

/* At most eight elements: what is not loaded is 0. */
#define LAST(X, W)                                                                                           \
  "vctp.16 r7\n"                                                                                             \
  "vpstttt\n" X("q0", "r5") W("q1", "r0") W("q2", "r2") W("q3", "r4") "vpst\n" W("q4", "r6") CHANNEL_0("q1") \
      CHANNEL_1("q2") CHANNEL_2("q3") CHANNEL_3("q4")

#define FOUR_CHANNELS(name, X, W)                                                                            \
  static void name(const walk *at_) {                                                                        \
    FIXED(const walk *, at, r0);                                                                             \
    __asm volatile(                                                                                        \
        NMP_PUSH_R9 "push {r6, r7}\n"                                                                                  \
        "ldm r0, {r0, r1, r2, r3, r4, r5, r6, r7, r8}\n"                                                   \
        "push {r5, r7, r8}\n"                                                                              \
        "mov r8, r1\n"                                                                                     \
        "mov r9, r3\n"                                                                                     \
        "mov r1, #0\n"                                                                                     \
        "mov r3, #0\n"                                                                                     \
        "mov r5, #0\n"                                                                                     \
        "mov r7, #0\n"                                                                                     \
        "mov r10, #0\n"                                                                                    \
        "mov r11, #0\n"                                                                                    \
        "push {r1, r3, r5, r7, r10, r11}\n"                                                                \
        "push {r1, r3, r8, r9}\n"                                                                          \
        "1: ldm sp, {r1, r3, r5, r7, r8, r9, r10, r11, r12, lr}\n"                                         \
        "subs r7, #32\n"                                                                                   \
        "blt 3f\n"                                                                                         \
        "2:\n" FOUR_STEPS(LOAD_##X, LOAD_##W)                                                                       \
        "subs r7, #32\n"                                                                                   \
        "bge 2b\n"                                                                                         \
        "3: adds r7, #32\n"                                                                                \
        "beq 5f\n"                                                                                         \
        "4:\n" LAST(SOME_##X, SOME_##W)                                                                    \
        "subs r7, #8\n"                                                                                    \
        "bgt 4b\n"                                                                                         \
        "5: ldrd r5, r7, [sp, #40]\n"                                                                      \
        "stm r7!, {r1, r3, r9, r11}\n"                                                                     \
        "stm r7!, {r8, r10, r12, lr}\n"                                                                    \
        "add r0, r5\n"                                                                                     \
        "add r2, r5\n"                                                                                     \
        "add r4, r5\n"                                                                                     \
        "add r6, r5\n"                                                                                     \
        "ldr r5, [sp, #48]\n"                                                                              \
        "subs r5, #1\n"                                                                                    \
        "strd r7, r5, [sp, #44]\n"                                                                         \
        "bne 1b\n"                                                                                         \
        "add sp, #52\n"                                                                                    \
        "pop {r6, r7}\n" NMP_POP_R9                                                                                   \
        : "+r"(at)                                                                                         \
        :                                                                                                  \
        : "q0", "q1", "q2", "q3", "q4", "r1", "r2", "r3", "r4", "r5", "r8", NMP_R9_LOST "r10", "r11", "r12",     \
          "lr", "cc", "memory"); \
  }

FOUR_CHANNELS(four_8x16, 8, 16)
FOUR_CHANNELS(four_16x8, 16, 8)
FOUR_CHANNELS(four_16x16, 16, 16)

/* Four biases. `bits` of each: 8, 16 or 32. */
static inline int32x4_t four_biases(const void *bias, size_t bits) {
  return bits == 8 ? vldrbq_s32(bias) : bits == 16 ? vldrhq_s32(bias) : vldrwq_s32(bias);
}

/* Channels [first, first + 4 * fours). A sum is 2^16 * above + below, and its rounded half a shift of each: where the
 * first loses bits, the second comes to 0. c's members are copied: what is written could be they, for all that the
 * compiler knows.
 */
static void end_fours(const nmp_conv *c, const int32_t *sums, size_t first, size_t fours, uint8_t *y) {
  const int8_t all = c->exponents[0], repeated[4] = {all, all, all, all};
  const int8_t *exponents = c->exponent_step ? c->exponents + first : repeated;
  const size_t step = 4 * c->exponent_step, bits = c->bias_bits;
  const int wide = nmp_y_wide(c);
  const uint8_t *bias = (const uint8_t *)c->bias + first * (bits / 8);
  const int32x4_t lo = vdupq_n_s32(c->lo), hi = vdupq_n_s32(c->hi);
  const int32_t shift = c->shift;
  for (; fours > 0; fours--, sums += 8, exponents += step, bias += bits / 2, y += 4 << wide) {
    const int32x4_t low = vldrwq_s32(sums + 4), minus = vsubq_n_s32(vldrbq_s32(exponents), shift);
    const int32x4_t above = vsriq_n_s32(vshlq_n_s32(vldrwq_s32(sums), 16), low, 16);
    const uint32x4_t below = vmovlbq_u16(vreinterpretq_u16_s32(low));
    int32x4_t v = vrshlq_s32(above, vaddq_n_s32(minus, 16));
    v = vaddq_s32(v, vreinterpretq_s32_u32(vrshlq_u32(below, minus)));
    v = vqaddq_s32(v, four_biases(bias, bits));
    v = vminq_s32(vmaxq_s32(v, lo), hi);
    if (wide) {
      vstrhq_s32((int16_t *)(void *)y, v);
    } else {
      vstrbq_s32((int8_t *)y, v);
    }
  }
}

/* The last four channels may overlap those before: they come to the same. */
void nmp_conv_mve_gemv(const nmp_conv *c, const void *x, size_t first, size_t count, size_t pixel) {
  void (*const run)(const walk *at) = !nmp_x_wide(c) ? four_8x16 : nmp_w_wide(c) ? four_16x16 : four_16x8;
  const size_t row = c->k << nmp_w_wide(c), last = first + count - 4;
  int32_t sums[8 * FOURS];
  for (size_t n, i = first; i < first + count; i += 4 * n) {
    n = (first + count - i) / 4;
    if (n == 0) {
      i = last;
      n = 1;
    }
    n = n < FOURS ? n : FOURS;
    const uint8_t *w = (const uint8_t *)c->w + i * row;
    const walk at = {.w0 = w,
                     .w1 = w + row,
                     .w2 = w + 2 * row,
                     .w3 = w + 3 * row,
                     .x = x,
                     .k = c->k,
                     .hop = 4 * row - ((c->k + 7) / 8 * 8 << nmp_w_wide(c)),
                     .sums = sums,
                     .fours = n};
    run(&at);
    end_fours(c, sums, i, n, (uint8_t *)c->y + ((pixel * c->out + i) << nmp_y_wide(c)));
  }
}

#endif
