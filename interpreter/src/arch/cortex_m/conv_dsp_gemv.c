/* gemv: one pixel at a time, for what is left over and for fully connected layers of batch 1. Channels share the
 * expansion of the pixel. And what else the DSP convolutions need once a channel or more rarely.
 */
#include "arch/cortex_m/conv_dsp.h"
#include "base/fixed.h"

#ifdef NMP_DSP

static enum mode mode_of(const nmp_conv *c) {
  if (!nmp_y_wide(c)) {
    return NMP_CONV_RANGES && nmp_conv_has_range(c) ? RANGE8 : c->lo == 0 ? POSITIVE8 : INT8;
  }
  return c->hi != 32767 ? OTHER : c->lo == 0 ? POSITIVE16 : c->lo == -32768 ? INT16 : OTHER;
}

/* bits < 32 */
static inline int fits(int32_t value, int bits) {
  return (uint32_t)(value ^ value >> 31) >> bits == 0;
}

/* c's members are copied: what is written could be they, for all that the compiler knows. bits: of biases; 0: any. */
DSP_INLINE int prepare(const nmp_conv *c, size_t first, size_t count, int narrow, uint8_t bits, const ends *e) {
  nmp_conv from = *c;
  int32_t *start = e->start;
  uint8_t *shifts = e->shift;
  int all = 1;
  from.bias_bits = bits ? bits : c->bias_bits;
  for (size_t i = first; i < first + count; i++) {
    const int shift = nmp_conv_shift(&from, i);
    const int32_t bias = nmp_conv_bias(&from, i);
    int safe;
    if (narrow) {
      safe = (unsigned)(shift - 1) < 29 && fits(bias, 30 - shift);
      *start++ = safe ? (int32_t)((uint32_t)(2 * bias + 1) << (shift - 1)) : 0;
    } else {
      safe = (unsigned)(shift - 1) < 31 && (uint64_t)from.k * 2 <= (uint64_t)1 << shift && fits(bias, 30);
      *start++ = bias;
    }
    *shifts++ = (uint8_t)(safe ? shift : 0);
    all &= safe;
  }
  return all;
}

void nmp_conv_dsp_prepare(const nmp_conv *c, size_t first, size_t count, int narrow, void *room, ends *e) {
  const int always = NMP_ACTIVATION_BITS == 8 && NMP_WEIGHT_BITS == 8 && NMP_CONV_K_MAX <= 65536;
  *e = (ends){
      .mode = (uint8_t)mode_of(c), .first = first, .start = room, .shift = (uint8_t *)room + count * sizeof(int32_t)};
#if NMP_CONV_RANGES
  e->lo = (uint8_t)c->lo * 0x01010101u;
  e->hi = (uint8_t)c->hi * 0x01010101u;
#endif
  const int all = !always && !narrow   ? prepare(c, first, count, 0, 0, e)
                  : c->bias_bits == 16 ? prepare(c, first, count, 1, 16, e)
                                       : prepare(c, first, count, 1, 0, e);
  e->bytes = (uint8_t)(all && e->mode <= RANGE8);
}

void nmp_conv_dsp_clip(const nmp_conv *c, int32_t value, uint8_t *y) {
  *(int16_t *)(void *)y = (int16_t)(value < c->lo ? c->lo : value > c->hi ? c->hi : value);
}

void nmp_conv_dsp_put(const nmp_conv *c, int32_t value, uint8_t *y) {
  value += nmp_conv_adds(c) ? *(int8_t *)y : 0;
  *(int8_t *)y = (int8_t)(value < c->lo ? c->lo : value > c->hi ? c->hi : value);
}

void nmp_conv_dsp_store(const nmp_conv *c, size_t channel, int64_t sum, uint8_t *y) {
  const int64_t result = nmp_rsh(sum, nmp_conv_shift(c, channel)) + nmp_conv_bias(c, channel);
  const int32_t value = nmp_sat(result + (nmp_conv_adds(c) ? *(int8_t *)y : 0), c->lo, c->hi);
  if (nmp_y_wide(c)) {
    *(int16_t *)(void *)y = (int16_t)value;
  } else {
    *(int8_t *)y = (int8_t)value;
  }
}

void nmp_conv_dsp_tail(const nmp_conv *c, const uint8_t *row, uint32_t pair[2]) {
  const size_t n = c->k % 4;
  uint32_t word = 0;
  if (nmp_w_wide(c)) {
    const uint8_t *last = row + (c->k - n) * 2;
    const uint16_t *one = (const uint16_t *)(const void *)(last + (n - 1) / 2 * 4);
    pair[0] = n == 1 ? *one : dsp_load(last);
    pair[1] = n == 3 ? *one : 0;
    return;
  }
  if (c->k >= 4) {
    word = dsp_load(row + c->k - 4) >> (32 - n * 8);
  } else {
    for (size_t i = n; i-- > 0;) {
      word = word << 8 | row[i];
    }
  }
  pair[0] = dsp_even(word);
  pair[1] = dsp_odd(word);
}

/* Two words of x to r0 and r1, as they meet weights of a width. */
#define LOAD_8_8         \
  "ldr r1, [%[x]], #4\n" \
  "sxtb16 r0, r1\n"      \
  "sxtb16 r1, r1, ror #8\n"
#define LOAD_8_16               \
  "ldr r1, [%[x]], #4\n"        \
  "sxtb16 r2, r1\n"             \
  "sxtb16 r1, r1, ror #8\n"     \
  "pkhbt r0, r2, r1, lsl #16\n" \
  "pkhtb r1, r1, r2, asr #16\n"
#define LOAD_16_8               \
  "ldr r2, [%[x]], #4\n"        \
  "ldr r1, [%[x]], #4\n"        \
  "pkhbt r0, r2, r1, lsl #16\n" \
  "pkhtb r1, r1, r2, asr #16\n"
#define LOAD_16_16       \
  "ldr r0, [%[x]], #4\n" \
  "ldr r1, [%[x]], #4\n"

/* Channels by four, of int8 weights in int32. Offsets are known to `fours_8` and `fours_16`. */
typedef struct fours {
  const uint8_t *x; /* 0 */
  const uint8_t *w; /* of the next four channels */
  size_t k;
  size_t groups;        /* 12: of four weights of a channel */
  const uint32_t *last; /* what of x meets the last four weights, where k is not a multiple of four; else NULL */
  size_t back;          /* 20: weights that those of whole groups and the last four share */
  const int8_t *exponents;
  size_t exponent_step;
  const void *bias; /* 32: of bias_bits, 8 or 16 */
  int shift;        /* less 1, of exponent 0 */
  uint32_t lo, hi;  /* 40: of results, four times as int8 */
  uint8_t *y;       /* 48: of the next four channels, of bytes */
  size_t left;      /* 52: fours to be done; 0: one, of which only the sums are wanted */
  size_t bias_bits; /* 56 */
  int32_t sums[4];  /* 60 */
} fours;

#if NMP_CONV_SINGLE
/* 23 instructions for 16 products with x of int8, 24 with int16: 25 and 26 cycles on a Cortex-M4, where loads that
 * follow each other wait once. Registers: r1 x, r2 and r4 rows, r3 k, r5 rounds, r8 to r11 sums. It ends in front of
 * four channels of which one has a shift below 1 or above 32: `left` says how many fours are left then.
 */
#define PAIR_8 "ldr r6, [r1], #4\n"
#define EXPAND_8    \
  "sxtb16 r0, r6\n" \
  "sxtb16 r6, r6, ror #8\n"
#define PAIR_16        \
  "ldr lr, [r1], #4\n" \
  "ldr r6, [r1], #4\n"
#define EXPAND_16               \
  "pkhbt r0, lr, r6, lsl #16\n" \
  "pkhtb r6, r6, lr, asr #16\n"
#define LOAD_ROWS(w) "ldr r7, [" w ", r3]\n ldr r12, [" w "], #4\n"
#define ADD_ROW(row, sum)                            \
  "sxtb16 lr, " row "\n smlad " sum ", r0, lr, " sum \
  "\n"                                               \
  "sxtb16 " row ", " row ", ror #8\n smlad " sum ", r6, " row ", " sum "\n"
#define FOUR_ROWS(PAIR, EXPAND)                                                                             \
  PAIR LOAD_ROWS("r2") EXPAND ADD_ROW("r7", "r9") ADD_ROW("r12", "r8") LOAD_ROWS("r4") ADD_ROW("r7", "r11") \
      ADD_ROW("r12", "r10")
/* ((sum >> shift) + 1 >> 1) + bias, saturated; r0 has all bits of shifts. */
#define END_ROW(sum, bias)      \
  "ldrsb lr, [r1]\n"            \
  "add r1, r1, r2\n"            \
  "sub lr, r6, lr\n"            \
  "orr r0, r0, lr\n"            \
  "asr " sum ", " sum           \
  ", lr\n"                      \
  "add " sum ", " sum           \
  ", #1\n"                      \
  "add " sum ", " bias ", " sum \
  ", asr #1\n"                  \
  "ssat " sum ", #8, " sum "\n"
#define FOURS(name, PAIR, EXPAND, LAST)                                                          \
  static __attribute__((naked, noinline)) void name(__attribute__((unused)) fours *these) {      \
    __asm__ volatile(                                                                          \
        "push {r4-r11, lr}\n"                                                                  \
        "ldr r4, [r0, #16]\n"                                                                  \
        "push {r0, r4}\n"                                                                      \
        "6: ldmia r0, {r1-r3, r5}\n"                                                           \
        "add r4, r2, r3, lsl #1\n"                                                             \
        "mov r8, #0\n"                                                                         \
        "mov r9, r8\n"                                                                         \
        "mov r10, r8\n"                                                                        \
        "mov r11, r8\n" DSP_ROUNDS("r5", FOUR_ROWS(PAIR, EXPAND))                              \
        "ldrd r0, r7, [sp]\n"                                                                  \
        "cbz r7, 5f\n"                                                                         \
        "subs r6, r1, r7\n"                                                                    \
        "cmp r6, #" LAST "\n"                                                                  \
        "beq 5f\n"                                                                             \
        "ldr r6, [r0, #20]\n"                                                                  \
        "mov r1, r7\n"                                                                         \
        "subs r2, r6\n"                                                                        \
        "subs r4, r6\n"                                                                        \
        "movs r5, #1\n"                                                                        \
        "b 13b\n"                                                                              \
        "5: ldrd r7, lr, [r0, #52]\n"                                                          \
        "cmp r7, #0\n"                                                                         \
        "beq 8f\n"                                                                             \
        "add r3, r4\n"                                                                         \
        "str r3, [r0, #4]\n"                                                                   \
        "ldr r1, [r0, #24]\n"                                                                  \
        "ldr r2, [r0, #28]\n"                                                                  \
        "ldr r5, [r0, #32]\n"                                                                  \
        "ldr r6, [r0, #36]\n"                                                                  \
        "cmp lr, #8\n"                                                                         \
        "beq 10f\n"                                                                            \
        "ldrsh r3, [r5]\n"                                                                     \
        "ldrsh r4, [r5, #2]\n"                                                                 \
        "ldrsh r7, [r5, #4]\n"                                                                 \
        "ldrsh r12, [r5, #6]\n"                                                                \
        "14: add r5, r5, lr, lsr #1\n"                                                         \
        "movs r0, #0\n" END_ROW("r8", "r3") END_ROW("r9", "r4") END_ROW("r10", "r7") END_ROW("r11", "r12") \
        "cmp r0, #31\n"                                                                        \
        "ldr r0, [sp]\n"                                                                       \
        "bhi 7f\n"                                                                             \
        "str r1, [r0, #24]\n"                                                                  \
        "str r5, [r0, #32]\n"                                                                  \
        "bfi r8, r9, #8, #8\n"                                                                 \
        "bfi r8, r10, #16, #8\n"                                                               \
        "bfi r8, r11, #24, #8\n"                                                               \
        "ldr r1, [r0, #40]\n"                                                                  \
        "ldr r2, [r0, #44]\n"                                                                  \
        "ldr r3, [r0, #48]\n"                                                                  \
        "ldr r4, [r0, #52]\n"                                                                  \
        "ssub8 r5, r8, r1\n"                                                                   \
        "sel r8, r8, r1\n"                                                                     \
        "ssub8 r5, r2, r8\n"                                                                   \
        "sel r8, r8, r2\n"                                                                     \
        "str r8, [r3], #4\n"                                                                   \
        "str r3, [r0, #48]\n"                                                                  \
        "subs r4, #1\n"                                                                        \
        "str r4, [r0, #52]\n"                                                                  \
        "bne 6b\n"                                                                             \
        "b 7f\n"                                                                               \
        "10: ldrsb r3, [r5]\n"                                                                 \
        "ldrsb r4, [r5, #1]\n"                                                                 \
        "ldrsb r7, [r5, #2]\n"                                                                 \
        "ldrsb r12, [r5, #3]\n"                                                                \
        "b 14b\n"                                                                              \
        "8: adds r0, #60\n"                                                                    \
        "stmia r0, {r8-r11}\n"                                                                 \
        "7: add sp, #8\n"                                                                      \
        "pop {r4-r11, pc}\n"); \
  }

FOURS(fours_8, PAIR_8, EXPAND_8, "4")
FOURS(fours_16, PAIR_16, EXPAND_16, "8")
#endif

/* Two channels in int64. */
#define ROW_8(w, sum)                                \
  "ldr r3, [%[" w                                    \
  "]], #4\n sxtb16 r2, r3\n sxtb16 r3, r3, ror #8\n" \
  "smlald %Q[" sum "], %R[" sum "], r0, r2\n smlald %Q[" sum "], %R[" sum "], r1, r3\n"
#define ROW_16(w, sum)                     \
  "ldr r2, [%[" w "]], #4\n ldr r3, [%[" w \
  "]], #4\n"                               \
  "smlald %Q[" sum "], %R[" sum "], r0, r2\n smlald %Q[" sum "], %R[" sum "], r1, r3\n"
#define TIMES_WIDE(name, LOAD, ROW)                                                                       \
  static void name(int64_t sums[2], const uint8_t *x, const uint8_t *w0, const uint8_t *w1, size_t n) {   \
    int64_t a = sums[0], b = sums[1];                                                                     \
    __asm__ volatile("1:\n" LOAD ROW("w0", "a") ROW("w1", "b") "subs %[n], #1\n"                        \
                                                               "bne 1b\n"                               \
                     : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [w0] "+r"(w0), [w1] "+r"(w1), [n] "+r"(n) \
                     :                                                                                  \
                     : "r0", "r1", "r2", "r3", "cc", "memory"); \
    sums[0] = a;                                                                                          \
    sums[1] = b;                                                                                          \
  }

TIMES_WIDE(times_8_8, LOAD_8_8, ROW_8)
TIMES_WIDE(times_8_16, LOAD_8_16, ROW_16)
TIMES_WIDE(times_16_8, LOAD_16_8, ROW_8)
TIMES_WIDE(times_16_16, LOAD_16_16, ROW_16)

/* Rows w0 and w1 of `n` groups of four weights; n is 1 or more. */
static void times_wide(const nmp_conv *c, int64_t sums[2], const uint8_t *x, const uint8_t *w0, const uint8_t *w1,
                       size_t n) {
  if (nmp_x_wide(c)) {
    (nmp_w_wide(c) ? times_16_16 : times_16_8)(sums, x, w0, w1, n);
  } else {
    (nmp_w_wide(c) ? times_8_16 : times_8_8)(sums, x, w0, w1, n);
  }
}

/* The sum of a channel, whose products but for a tail of less than four are in sum. */
static int64_t with_tail(const nmp_conv *c, size_t channel, const uint8_t *patch, int64_t sum) {
  if (nmp_dsp_reads_ahead(c)) {
    uint32_t x[2], w[2];
    expand_four(&x[0], &x[1], patch + (c->k / 4 * 4 << nmp_x_wide(c)), nmp_x_wide(c), nmp_w_wide(c));
    nmp_conv_dsp_tail(c, (const uint8_t *)c->w + (channel * c->k << nmp_w_wide(c)), w);
    sum = dsp_mlal2(x[1], w[1], dsp_mlal2(x[0], w[0], sum));
  }
  return sum;
}

/* The last four elements of a patch, with zeros for those that whole groups of four hold, too. */
static void load_last(const nmp_conv *c, const uint8_t *patch, uint32_t last[2]) {
  const size_t bits = (4 - c->k % 4) * 8;
  const uint8_t *four = patch + ((c->k - 4) << nmp_x_wide(c));
  uint64_t elements = dsp_load(four);
  if (nmp_x_wide(c)) {
    elements = (elements | (uint64_t)dsp_load(four + 4) << 32) >> 2 * bits << 2 * bits;
  } else {
    elements = (uint32_t)elements >> bits << bits;
  }
  last[0] = (uint32_t)elements;
  last[1] = (uint32_t)(elements >> 32);
}

/* Results of n channels from their sums, but for a tail. */
static void end_sums(const nmp_conv *c, size_t channel, size_t n, const int32_t *sums, const uint8_t *patch,
                     uint8_t *y) {
  for (const size_t end = channel + n; channel < end; channel++, y += 1u << nmp_y_wide(c)) {
    const int64_t sum = with_tail(c, channel, patch, *sums++);
    const int shift = nmp_conv_shift(c, channel) - 1;
    const int32_t bias = nmp_conv_bias(c, channel);
    if ((unsigned)shift > 31 || !fits(bias, 30)) {
      nmp_conv_dsp_store(c, channel, sum, y);
    } else {
      const int32_t value = ((((int32_t)sum >> shift) + 1) >> 1) + bias;
      (nmp_y_wide(c) ? nmp_conv_dsp_clip : nmp_conv_dsp_put)(c, value, y);
    }
  }
}

/* Four products of a row, and of the one `step` behind it if two are wanted, to their sums. */
DSP_INLINE void add_rows(const nmp_conv *c, const uint8_t *x, const uint8_t *w, size_t step, int two, int32_t sums[2]) {
  uint32_t first, second;
  expand_four(&first, &second, x, nmp_x_wide(c), 0);
  const uint32_t u = dsp_load(w), v = two ? dsp_load(w + step) : 0;
  sums[0] = dsp_mla2(second, dsp_odd(u), dsp_mla2(first, dsp_even(u), sums[0]));
  sums[1] = two ? dsp_mla2(second, dsp_odd(v), dsp_mla2(first, dsp_even(v), sums[1])) : 0;
}

DSP_INLINE void sum_rows(const nmp_conv *c, fours *f, size_t step, int two) {
  const uint8_t *x = f->x, *w = f->w;
  int32_t sums[2] = {0, 0};
  for (size_t n = f->groups; n > 0; n--, w += 4, x += 4 << nmp_x_wide(c)) {
    add_rows(c, x, w, step, two, sums);
  }
  if (f->last) {
    add_rows(c, (const uint8_t *)f->last, w - f->back, step, two, sums);
  }
  f->sums[0] = sums[0];
  f->sums[1] = sums[1];
}

/* int8 weights in int32: four channels at a time, where that code is there; three that are left over are the last four
 * again, else two or one.
 */
static void single_narrow(const nmp_conv *c, size_t first, const uint8_t *patch, size_t count, size_t pixel) {
  const size_t k = c->k;
  const int ahead = nmp_dsp_reads_ahead(c), adds = nmp_conv_adds(c);
  const size_t to_bytes = !nmp_y_wide(c) && !ahead && !adds && c->bias_bits <= 16;
  uint32_t last[2];
  fours f;
  f.x = patch;
  f.k = k;
  f.groups = k / 4;
  f.last = NULL;
  f.exponent_step = c->exponent_step;
  f.shift = c->shift - 1;
  f.lo = (uint8_t)c->lo * 0x01010101u;
  f.hi = (uint8_t)c->hi * 0x01010101u;
  f.bias_bits = c->bias_bits;
  if (k % 4 && !ahead) {
    load_last(c, patch, last);
    f.last = last;
    f.back = 4 - k % 4;
  }
  for (size_t i = 0, n, quick = to_bytes; i < count; i += n) {
    const size_t rest = count - i;
    const size_t by_four = !NMP_CONV_SINGLE ? 0 : rest == 3 && count > 4 && !adds ? 1 : rest / 4;
    i -= by_four == 1 && rest == 3;
    const size_t channel = first + i;
    f.w = (const uint8_t *)c->w + channel * k;
    f.left = quick ? by_four : 0;
    if (by_four == 0) {
      n = rest >= 2 ? 2 : 1;
      if (n == 1) {
        sum_rows(c, &f, 0, 0);
      } else {
        sum_rows(c, &f, k, 1);
      }
    } else {
#if NMP_CONV_SINGLE
      f.exponents = c->exponents + channel * f.exponent_step;
      f.bias = (const uint8_t *)c->bias + channel * f.bias_bits / 8;
      f.y = output(c, pixel, channel);
      (nmp_x_wide(c) ? fours_16 : fours_8)(&f);
      n = 4;
      if (quick) {
        n = 4 * (by_four - f.left);
        quick = f.left == 0;
        continue;
      }
      quick = to_bytes;
#endif
    }
    end_sums(c, channel, n, f.sums, patch, output(c, pixel, channel));
  }
}

/* Others by two, in int64. */
static void single_wide(const nmp_conv *c, const ends *e, const uint8_t *patch, size_t count, size_t pixel) {
  const size_t row = (size_t)c->k << nmp_w_wide(c);
  for (size_t i = 0, n; i < count; i += n) {
    const uint8_t *w = (const uint8_t *)c->w + (e->first + i) * row;
    n = count - i < 2 ? 1 : 2;
    int64_t sums[2] = {0, 0};
    if (c->k >= 4) {
      times_wide(c, sums, patch, w, w + (n - 1) * row, c->k / 4);
    }
    for (size_t r = 0; r < n; r++) {
      end_wide(c, e, i + r, with_tail(c, e->first + i + r, patch, sums[r]), 0, 1, output(c, pixel, e->first + i + r),
               0);
    }
  }
}

void nmp_conv_dsp_gemv(const nmp_conv *c, const ends *e, const uint8_t *patch, size_t count, size_t pixel) {
  if (nmp_dsp_is_narrow(c)) {
    single_narrow(c, e->first, patch, count, pixel);
  } else {
    single_wide(c, e, patch, count, pixel);
  }
}

#endif
