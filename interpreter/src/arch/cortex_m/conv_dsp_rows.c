/* Rows of weights times the interleaved patches of three or two pixels. */
#include "arch/cortex_m/conv_dsp.h"

#ifdef NMP_DSP

/* Ends of the sums of two channels: a mode, to which ADD is added, or nothing. */
enum ending { ADD = 2, TO_SUMS };

/* Pairs of channels: what is kept in memory, since sums take the registers. Offsets are known to `pairs_of_channels`.
 */
typedef struct pairs {
  const uint8_t *x; /* 0: a word before the patches */
  size_t entry;     /* 4: bytes of code of a round that the first one skips, then their address */
  const int32_t *start;
  const uint8_t *shift;
  void *y; /* 16: bytes, or six sums */
  size_t y_step, left;
  size_t row;      /* 28: bytes of weights of a channel */
  size_t row_read; /* 32: that are read, a multiple of four */
  size_t ending;   /* 36 */
  const ends *e;   /* 40 */
} pairs;

#define ROUND 4      /* groups of four weights */
#define STEP_CODE 86 /* bytes of `STEP` */

/* Four weights of two channels times three pixels: 24 products by 25 instructions, in 27 cycles on a Cortex-M4, whose
 * loads follow each other without a gap. r0 is a word before the patches. r1 is in the first row; the second one is
 * [sp] bytes behind.
 */
#define STEP(LAST)              \
  "ldr.n r6, [sp]\n"            \
  "ldr.n r2, [r0, #4]\n"        \
  "ldr.n r3, [r0, #8]\n"        \
  "ldr.n r4, [r0, #12]\n"       \
  "ldr.n r6, [r1, r6]\n"        \
  "ldr.w r5, [r1], #4\n"        \
  "sxtb16 r7, r5\n"             \
  "smlad r8, r2, r7, r8\n"      \
  "smlad r9, r3, r7, r9\n"      \
  "smlad r10, r4, r7, r10\n"    \
  "sxtb16 r7, r6\n"             \
  "smlad r11, r2, r7, r11\n"    \
  "smlad r12, r3, r7, r12\n"    \
  "smlad lr, r4, r7, lr\n"      \
  "sxtb16 r5, r5, ror #8\n"     \
  "sxtb16 r6, r6, ror #8\n"     \
  "ldr.n r2, [r0, #16]\n"       \
  "ldr.n r3, [r0, #20]\n"       \
  "ldr.w r4, [r0, #24]!\n" LAST \
  "smlad r8, r2, r5, r8\n"      \
  "smlad r9, r3, r5, r9\n"      \
  "smlad r10, r4, r5, r10\n"    \
  "smlad r11, r2, r6, r11\n"    \
  "smlad r12, r3, r6, r12\n"    \
  "smlad lr, r4, r6, lr\n"

/* Adds what y holds to the sums, unless r3 is RANGE8. Flags say then whether r3 is less than that. */
#if NMP_CONV_ADD
#define ADD_HELD         \
  "blo 6f\n"             \
  "lsls r5, r3, #30\n"   \
  "bpl 11f\n"            \
  "ldrsb r5, [r0]\n"     \
  "ldrsb r6, [r0, #1]\n" \
  "add r8, r5\n"         \
  "add r11, r6\n"        \
  "ldrsb r5, [r4]\n"     \
  "ldrsb r6, [r4, #1]\n" \
  "add r9, r5\n"         \
  "add r12, r6\n"        \
  "ldrsb r5, [r2]\n"     \
  "ldrsb r6, [r2, #1]\n" \
  "add r10, r5\n"        \
  "add lr, r6\n"         \
  "11: cmp r3, #4\n"
#else
#define ADD_HELD ""
#endif

/* Clipping of pairs of bytes, or the way past it. */
#define PAIR(a, b) "bfi " a ", " b ", #8, #8\n"
#if NMP_CONV_RANGES
#define LEAST(pair) \
  "ssub8 r3, " pair \
  ", r5\n"          \
  "sel " pair ", " pair ", r5\n"
#define MOST(pair)      \
  "ssub8 r3, r6, " pair \
  "\n"                  \
  "sel " pair ", " pair ", r6\n"
#define TO_PAIRS \
  "blo 8f\n" \
  "ldr r5, [r7, #40]\n" \
  "ldrd r5, r6, [r5]\n" PAIR("r8", "r11") PAIR("r9", "r12") PAIR("r10", "lr") LEAST("r8") LEAST("r9") LEAST("r10") \
  "cmp r6, #0x7f7f7f7f\n" \
  "beq 12f\n" MOST("r8") MOST("r9") MOST("r10") "b 12f\n"
#else
#define TO_PAIRS "b 8f\n"
#endif

#define EACH_SUM(text, range)                                                                                   \
  text " r8, #" range ", r8\n" text " r9, #" range ", r9\n" text " r10, #" range ", r10\n" text " r11, #" range \
       ", r11\n" text " r12, #" range ", r12\n" text " lr, #" range ", lr\n"

/* `left` pairs of channels of three pixels. On the stack: bytes from row to row, the end of the first row, `these`. */
static __attribute__((naked, noinline)) void pairs_of_channels(__attribute__((unused)) pairs *these,
                                                               __attribute__((unused)) const uint8_t *w) {
  __asm__ volatile(
      "push {r4-r11, lr}\n"
      "ldr r2, [r0, #28]\n"
      "ldr r3, [r0, #32]\n"
      "ldr r5, [r0, #4]\n"
      "add r3, r1\n"
      "mov r4, r0\n"
      "push {r2-r4}\n"
      "adr r6, 1f\n"
      "add r5, r6\n"
      "adds r5, #1\n" /* Thumb */
      "str r5, [r0, #4]\n"
      "mov r7, r0\n"
      "5: ldr r2, [r7, #8]\n"
      "ldr r3, [r7, #4]\n"
      "ldr r0, [r7]\n"
      "ldmia r2!, {r8, r11}\n"
      "str r2, [r7, #8]\n"
      "mov r9, r8\n"
      "mov r10, r8\n"
      "mov r12, r11\n"
      "mov lr, r11\n"
      "bx r3\n"
      ".balign 4\n"
      "1:\n" STEP("") STEP("") STEP("") STEP("ldr.n r7, [sp, #4]\n")
      "cmp r1, r7\n"
      "bne 1b\n"
      "ldr r7, [sp, #8]\n"
      "ldr r3, [r7, #36]\n"
      "ldr r0, [r7, #16]\n"
      "ldr r2, [r7, #20]\n"
      "ldr r4, [r7, #12]\n"
      "ldr r5, [r7, #28]\n"
      "ldr r6, [r7, #32]\n"
      "cmp r3, #3\n"
      "beq 9f\n"
      "add r1, r1, r5, lsl #1\n"
      "str r1, [sp, #4]\n"
      "subs r1, r6\n"
      "ldrh r6, [r4], #2\n"
      "str r4, [r7, #12]\n"
      "lsrs r5, r6, #8\n"
      "asr r8, r6\n"
      "asr r9, r6\n"
      "asr r10, r6\n"
      "asr r11, r5\n"
      "asr r12, r5\n"
      "asr lr, r5\n"
      "adds r4, r0, r2\n"
      "adds r2, r4\n"
      "cmp r3, #1\n"
      "beq 7f\n" ADD_HELD "6:\n" EACH_SUM("ssat", "8") TO_PAIRS
      "7:\n" EACH_SUM("usat", "7") "8:\n" PAIR("r8", "r11") PAIR("r9", "r12") PAIR("r10", "lr")
      "12: strh r8, [r0]\n"
      "strh r9, [r4]\n"
      "strh r10, [r2]\n"
      "ldr r3, [r7, #24]\n"
      "adds r0, #2\n"
      "str r0, [r7, #16]\n"
      "subs r3, #1\n"
      "str r3, [r7, #24]\n"
      "bne 5b\n"
      "b 10f\n"
      "9: stmia r0, {r8-r12, lr}\n"
      "10: add sp, #12\n"
      "pop {r4-r11, pc}\n");
}

/* 8 instructions for 8 products */
DSP_INLINE void times2(int32_t sum[2], const uint32_t *x, const uint8_t *w, size_t n) {
  int32_t a = sum[0], b = sum[1];
  __asm__ volatile(DSP_LOOP("ldr r4, [%[w]], #4\n"
                            "ldmia %[x]!, {r0-r3}\n"
                            "sxtb16 r5, r4\n"
                            "sxtb16 r4, r4, ror #8\n"
                            "smlad %[a], r0, r5, %[a]\n"
                            "smlad %[b], r1, r5, %[b]\n"
                            "smlad %[a], r2, r4, %[a]\n"
                            "smlad %[b], r3, r4, %[b]\n")
                   : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                   :
                   : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
  sum[0] = a;
  sum[1] = b;
}

/* 6 instructions for 8 products with int16 weights, 8 with int8 ones */
DSP_INLINE void times2_long(int64_t sum[2], const uint32_t *x, const uint8_t *w, size_t n, int w_wide) {
  int64_t a = sum[0], b = sum[1];
#define ACCUMULATE                \
  "smlald %Q[a], %R[a], r0, r4\n" \
  "smlald %Q[b], %R[b], r1, r4\n" \
  "smlald %Q[a], %R[a], r8, r5\n" \
  "smlald %Q[b], %R[b], r9, r5\n"
  if (!w_wide) {
    __asm__ volatile(NMP_PUSH_R9 DSP_LOOP("ldr r5, [%[w]], #4\n"
                                          "ldmia %[x]!, {r0, r1, r8, r9}\n"
                                          "sxtb16 r4, r5\n"
                                          "sxtb16 r5, r5, ror #8\n" ACCUMULATE) NMP_POP_R9
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                     :
                     : "r0", "r1", "r4", "r5", "r8", NMP_R9_LOST "cc", "memory");
  } else if ((uintptr_t)w % 4 == 0) {
    __asm__ volatile(NMP_PUSH_R9 DSP_LOOP("ldrd r4, r5, [%[w]], #8\n"
                                          "ldmia %[x]!, {r0, r1, r8, r9}\n" ACCUMULATE) NMP_POP_R9
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                     :
                     : "r0", "r1", "r4", "r5", "r8", NMP_R9_LOST "cc", "memory");
  } else {
    for (; n > 0; n--, x += 4, w += 8) {
      const uint32_t first = dsp_load(w), second = dsp_load(w + 4);
      a = dsp_mlal2(x[2], second, dsp_mlal2(x[0], first, a));
      b = dsp_mlal2(x[3], second, dsp_mlal2(x[1], first, b));
    }
  }
#undef ACCUMULATE
  sum[0] = a;
  sum[1] = b;
}

/* Number of e's channels that are followed by three weights or more: their last, partial group of four may be read as
 * if it were whole, for the patch has zeros there.
 */
static size_t followed(const nmp_conv *c, const ends *e) {
  const size_t rows = c->out - e->first, last = c->k % 4 ? (3 + c->k - 1) / c->k : 0;
  return rows > last ? rows - last : 0;
}

/* The products of the last 1..3 weights of a row with pixels, to their sums. */
static void add_tail(const nmp_conv *c, const uint32_t *x, const uint8_t *row, int32_t *sum, size_t pixels) {
  uint32_t pair[2];
  nmp_conv_dsp_tail(c, row, pair);
  for (size_t p = 0; p < pixels; p++) {
    sum[p] = dsp_mla2(x[p + pixels], pair[1], dsp_mla2(x[p], pair[0], sum[p]));
  }
}

/* Channels i, i + 1, ... of e, `left` pairs of them, by `groups` > 0 of four weights of each. row: bytes of one; 0: the
 * pair is one channel twice.
 */
static void run_pairs(const nmp_conv *c, const ends *e, const uint32_t *x, size_t i, size_t left, size_t groups,
                      size_t row, void *y, size_t ending) {
  const size_t skipped = (ROUND - groups % ROUND) % ROUND;
  pairs these = {.x = (const uint8_t *)x - sizeof(*x),
                 .entry = skipped * STEP_CODE,
                 .start = e->start + i,
                 .shift = e->shift + i,
                 .y = y,
                 .y_step = c->out,
                 .left = left,
                 .row = row,
                 .row_read = 4 * groups,
                 .ending = ending,
                 .e = e};
  pairs_of_channels(&these, (const uint8_t *)c->w + (e->first + i) * c->k);
}

/* Channels that are not `quick` leave their sums, with less than four weights at the end of a row, to the rest. */
void nmp_conv_dsp_three(const nmp_conv *c, const ends *e, const uint32_t *x, size_t count, size_t pixel) {
  const size_t k = c->k, simple = followed(c, e), step = (size_t)c->out << nmp_y_wide(c);
  const size_t quick = !e->bytes ? 0 : (count < simple ? count : simple) / 2 * 2;
  size_t i = quick;
  if (quick > 0) {
    const size_t ending = e->mode + (nmp_conv_adds(c) ? ADD : 0u);
    run_pairs(c, e, x, 0, quick / 2, (k + 3) / 4, k, output(c, pixel, e->first), ending);
  }
  while (i < count) {
    const size_t channels = k >= 4 && i + 2 <= count ? 2 : 1, groups = i + channels <= simple ? (k + 3) / 4 : k / 4;
    int32_t sums[6];
    sums[0] = sums[1] = sums[2] = e->start[i];
    if (groups > 0) {
      run_pairs(c, e, x, i, 1, groups, channels == 2 ? k : 0, sums, TO_SUMS);
    }
    for (const size_t end = i + channels, first = i; i < end; i++) {
      int32_t *sum = sums + 3 * (i - first);
      if (4 * groups < k) {
        add_tail(c, x + 6 * groups, (const uint8_t *)c->w + (e->first + i) * k, sum, 3);
      }
      end_narrow(c, e, i, sum[0], sum[1], sum[2], 3, output(c, pixel, e->first + i), step);
    }
  }
}

/* The same of two pixels. */
void nmp_conv_dsp_two(const nmp_conv *c, const ends *e, const uint32_t *x, size_t count, size_t pixel) {
  const size_t k = c->k, simple = followed(c, e), step = (size_t)c->out << nmp_y_wide(c);
  const uint8_t *w = (const uint8_t *)c->w + e->first * k;
  uint8_t *y = output(c, pixel, e->first);
  for (size_t i = 0; i < count; i++, w += k, y += 1u << nmp_y_wide(c)) {
    const size_t groups = i < simple ? (k + 3) / 4 : k / 4;
    int32_t sums[2] = {e->start[i], e->start[i]};
    times2(sums, x, w, groups);
    if (4 * groups < k) {
      add_tail(c, x + 4 * groups, w, sums, 2);
    }
    for (size_t p = 0; p < 2; p++) {
      end_narrow(c, e, i, sums[p], 0, 0, 1, y + p * step, 0);
    }
  }
}

/* The same in int64, of two pixels. */
void nmp_conv_dsp_two_wide(const nmp_conv *c, const ends *e, const uint32_t *x, size_t count, size_t pixel) {
  const size_t whole = c->k / 4, row = (size_t)c->k << nmp_w_wide(c), step = (size_t)c->out << nmp_y_wide(c);
  const size_t simple = followed(c, e);
  const uint8_t *w = (const uint8_t *)c->w + e->first * row;
  uint8_t *y = output(c, pixel, e->first);
  for (size_t i = 0; i < count; i++, w += row, y += 1u << nmp_y_wide(c)) {
    int64_t sums[2] = {0, 0};
    times2_long(sums, x, w, i < simple ? (c->k + 3u) / 4 : whole, nmp_w_wide(c));
    if (i >= simple) {
      const uint32_t *rest = x + whole * 4;
      uint32_t pair[2];
      nmp_conv_dsp_tail(c, w, pair);
      sums[0] = dsp_mlal2(rest[2], pair[1], dsp_mlal2(rest[0], pair[0], sums[0]));
      sums[1] = dsp_mlal2(rest[3], pair[1], dsp_mlal2(rest[1], pair[0], sums[1]));
    }
    end_wide(c, e, i, sums[0], sums[1], 2, y, step);
  }
}

#endif
