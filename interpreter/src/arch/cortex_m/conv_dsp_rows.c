/* Rows of weights times the interleaved patches of four or two pixels. */
#include "arch/cortex_m/conv_dsp.h"

#ifdef NMP_DSP

/* A row of weights, `n` groups of four, times the patches of four or two pixels. */

/* 13 instructions for 16 products */
#define TIMES_4                \
  "ldr r4, [%[w]], #4\n"       \
  "ldmia %[x]!, {r0-r3}\n"     \
  "sxtb16 r5, r4\n"            \
  "smlad %[a], r0, r5, %[a]\n" \
  "smlad %[b], r1, r5, %[b]\n" \
  "smlad %[c], r2, r5, %[c]\n" \
  "smlad %[d], r3, r5, %[d]\n" \
  "ldmia %[x]!, {r0-r3}\n"     \
  "sxtb16 r4, r4, ror #8\n"    \
  "smlad %[a], r0, r4, %[a]\n" \
  "smlad %[b], r1, r4, %[b]\n" \
  "smlad %[c], r2, r4, %[c]\n" \
  "smlad %[d], r3, r4, %[d]\n"

DSP_INLINE void times4(int32_t sum[4], const uint32_t *x, const uint8_t *w, size_t n) {
  int32_t a = sum[0], b = sum[1], c = sum[2], d = sum[3];
  __asm__ volatile(DSP_LOOP(TIMES_4)
                   : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                   :
                   : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
  sum[0] = a;
  sum[1] = b;
  sum[2] = c;
  sum[3] = d;
}

/* What a loop over channels keeps in memory, since the sums take the registers. The order is known to BYTES_4. */
typedef struct channels {
  const int32_t *start;
  const uint32_t *x;
  size_t groups;
  const uint8_t *shift;
  uint8_t *y;
  size_t y_step, left;
  ptrdiff_t w_step; /* from the end of what was read of a row to the next row */
#if NMP_CONV_ADD
  size_t adds;
#endif
} channels;

/* `left` channels of four pixels to bytes: 36 instructions besides the products, and 8 for what y holds. [n] is the
 * address of the channels, but within the inner loop, where it counts.
 */
#define BYTES_4(name, ADD, SATURATE)                                                                                 \
  static void name(channels *these, const uint8_t *w) {                                                              \
    int32_t a, b, c, d;                                                                                              \
    const uint32_t *x;                                                                                               \
    __asm__ volatile("push {%[n]}\n"                                                                               \
                     "5:\n"                                                                                        \
                     "ldr r0, [%[n]]\n"                                                                            \
                     "ldr %[a], [r0], #4\n"                                                                        \
                     "str r0, [%[n]]\n"                                                                            \
                     "mov %[b], %[a]\n"                                                                            \
                     "mov %[c], %[a]\n"                                                                            \
                     "mov %[d], %[a]\n"                                                                            \
                     "ldr %[x], [%[n], #4]\n"                                                                      \
                     "ldr %[n], [%[n], #8]\n" DSP_LOOP(TIMES_4)                                                    \
                     "ldr %[n], [sp]\n"                                                                            \
                     "ldrd r0, r1, [%[n], #12]\n"                                                                  \
                     "ldrb r2, [r0], #1\n"                                                                         \
                     "asr %[a], %[a], r2\n"                                                                        \
                     "asr %[b], %[b], r2\n"                                                                        \
                     "asr %[c], %[c], r2\n"                                                                        \
                     "asr %[d], %[d], r2\n"                                                                        \
                     "ldrd r3, r4, [%[n], #20]\n" ADD                                                              \
                     SATURATE("a") SATURATE("b") SATURATE("c") SATURATE("d")                                       \
                     "strb %[a], [r1]\n"                                                                           \
                     "strb %[b], [r1, r3]\n"                                                                       \
                     "strb %[c], [r1, r3, lsl #1]\n"                                                               \
                     "add r2, r1, r3\n"                                                                            \
                     "strb %[d], [r2, r3, lsl #1]\n"                                                               \
                     "add r1, #1\n"                                                                                \
                     "strd r0, r1, [%[n], #12]\n"                                                                  \
                     "ldr r5, [%[n], #28]\n"                                                                       \
                     "add %[w], r5\n"                                                                              \
                     "subs r4, #1\n"                                                                               \
                     "str r4, [%[n], #24]\n"                                                                       \
                     "bne 5b\n"                                                                                    \
                     "pop {%[n]}\n"                                                                                \
                     : [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [x] "=&r"(x), [w] "+r"(w), [n] "+r"(these) \
                     :                                                                                             \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory"); \
  }
#define TO_INT8(sum) "ssat %[" sum "], #8, %[" sum "]\n"
#define TO_POSITIVE8(sum) "usat %[" sum "], #7, %[" sum "]\n"

/* With the sums, and for any lowest result: that is clipped behind it. */
#if NMP_CONV_ADD
#define ADD_HELD                 \
  "ldr r5, [%[n], #32]\n"        \
  "cbz r5, 6f\n"                 \
  "ldrsb r2, [r1]\n"             \
  "add %[a], r2\n"               \
  "ldrsb r2, [r1, r3]\n"         \
  "add %[b], r2\n"               \
  "ldrsb r2, [r1, r3, lsl #1]\n" \
  "add %[c], r2\n"               \
  "add r2, r1, r3\n"             \
  "ldrsb r2, [r2, r3, lsl #1]\n" \
  "add %[d], r2\n"               \
  "6:\n"
#else
#define ADD_HELD ""
#endif

BYTES_4(int8_4, ADD_HELD, TO_INT8)
BYTES_4(positive8_4, "", TO_POSITIVE8)

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
  "smlald %Q[a], %R[a], r2, r5\n" \
  "smlald %Q[b], %R[b], r3, r5\n"
  if (!w_wide) {
    __asm__ volatile(DSP_LOOP("ldr r5, [%[w]], #4\n"
                              "ldmia %[x]!, {r0-r3}\n"
                              "sxtb16 r4, r5\n"
                              "sxtb16 r5, r5, ror #8\n" ACCUMULATE)
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                     :
                     : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
  } else if ((uintptr_t)w % 4 == 0) {
    __asm__ volatile(DSP_LOOP("ldrd r4, r5, [%[w]], #8\n"
                              "ldmia %[x]!, {r0-r3}\n" ACCUMULATE)
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w] "+r"(w), [n] "+r"(n)
                     :
                     : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
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

/* How many of e's channels are followed by three weights or more: their last, partial group of four may be read as if
 * it were whole, for the patch has zeros there.
 */
static size_t followed(const nmp_conv *c, const ends *e) {
  const size_t rows = c->out - e->first, last = c->k % 4 ? (3 + c->k - 1) / c->k : 0;
  return rows > last ? rows - last : 0;
}

/* Channels i, ..., count - 1 of e, of four or two pixels, in int32. */
DSP_INLINE void narrow(const nmp_conv *c, const ends *e, const uint32_t *x, size_t i, size_t count, size_t pixel,
                       int pixels) {
  const size_t k = c->k, whole = k / 4, step = (size_t)c->out << nmp_y_wide(c), size = 1u << nmp_y_wide(c);
  const size_t simple = followed(c, e), groups = (k + 3) / 4;
  const uint8_t *w = (const uint8_t *)c->w + (e->first + i) * k;
  uint8_t *y = output(c, pixel, e->first + i);
  for (; i < count; i++, w += k, y += size) {
    int32_t sums[4];
    sums[0] = sums[1] = sums[2] = sums[3] = e->start[i];
    if (pixels == 4) {
      times4(sums, x, w, i < simple ? groups : whole);
    } else {
      times2(sums, x, w, i < simple ? groups : whole);
    }
    if (i >= simple) {
      const uint32_t *rest = x + whole * 2 * (size_t)pixels;
      uint32_t pair[2];
      nmp_conv_dsp_tail(c, w, pair);
      sums[0] = dsp_mla2(rest[pixels], pair[1], dsp_mla2(rest[0], pair[0], sums[0]));
      sums[1] = dsp_mla2(rest[pixels + 1], pair[1], dsp_mla2(rest[1], pair[0], sums[1]));
      if (pixels == 4) {
        sums[2] = dsp_mla2(rest[6], pair[1], dsp_mla2(rest[2], pair[0], sums[2]));
        sums[3] = dsp_mla2(rest[7], pair[1], dsp_mla2(rest[3], pair[0], sums[3]));
      }
    }
    end_narrow(c, e, i, sums[0], sums[1], sums[2], sums[3], pixels, y, step);
  }
}

void nmp_conv_dsp_four(const nmp_conv *c, const ends *e, const uint32_t *x, size_t count, size_t pixel) {
  const size_t k = c->k, groups = (k + 3) / 4, simple = followed(c, e);
  const size_t quick = !e->bytes ? 0 : count < simple ? count : simple;
  if (quick > 0) {
    channels these = {.start = e->start,
                      .x = x,
                      .groups = groups,
                      .shift = e->shift,
                      .y = output(c, pixel, e->first),
                      .y_step = c->out,
                      .left = quick,
                      .w_step = (ptrdiff_t)k - (ptrdiff_t)(4 * groups),
#if NMP_CONV_ADD
                      .adds = c->adds
#endif
    };
    (e->mode == INT8 || nmp_conv_adds(c) ? int8_4 : positive8_4)(&these, (const uint8_t *)c->w + e->first * k);
  }
  if (quick < count) {
    narrow(c, e, x, quick, count, pixel, 4);
  }
}

void nmp_conv_dsp_two(const nmp_conv *c, const ends *e, const uint32_t *x, size_t count, size_t pixel) {
  narrow(c, e, x, 0, count, pixel, 2);
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
