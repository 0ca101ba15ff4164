/* Rows of factors times rows of weights, one of them int16 or both: two rows and two channels at a time. Sums have 64
 * bits; the chooser has seen to it that they are int32 after their shift.
 */
#include "arch/cortex_m/mve.h"

#ifdef NMP_MVE

#define PREPARED 64 /* channels whose shifts and biases are prepared at a time, on the stack */

/* What the loop over pairs of channels keeps in memory, for registers are few. The code knows its offsets. */
typedef struct walk {
  const void *x0, *x1;
  size_t hop, k;       /* hop: bytes from where the loads of a channel have ended to the channel after the next */
  const int32_t *ends; /* shift, shift, bias, bias of each pair */
  void *y;
  size_t pairs;
  uint32_t live; /* predicate of the four results */
} walk;

#define LOAD_8(q, from) "vldrb.s16 " q ", [%[" from "]], #8\n"
#define LOAD_16(q, from) "vldrh.16 " q ", [%[" from "]], #16\n"
#define STORE_8 "vstrbt.32 q0, [%[x0], %q[places]]\nadd %[x0], #2\n"
#define STORE_16 "vstrht.32 q0, [%[x0], %q[places], uxtw #1]\nadd %[x0], #4\n"

/* Pairs of channels of two rows. The inner loop is predicated by the elements that are left in lr, so k need not be a
 * multiple of 8. Loads that widen take their address from a low register.
 */
#define TWO_ROWS(name, LOAD_X, IN_X, LOAD_W, IN_W, STORE)                                                                \
  static void name(walk *at, const void *w0, const void *w1, int32x4_t lo, int32x4_t hi, uint32x4_t places) {            \
    int64_t a, b, c, d;                                                                                                  \
    const void *x0, *x1;                                                                                                 \
    __asm volatile(                                                                                                    \
        "ldr lr, [%[at], #28]\n" \
        "vmsr p0, lr\n" \
        "1: ldrd %[x0], %[x1], [%[at]]\n" \
        "ldr lr, [%[at], #12]\n"                                                                                       \
        "mov %Q[a], #0\n"                                                                                              \
        "mov %R[a], #0\n"                                                                                              \
        "mov %Q[b], #0\n"                                                                                              \
        "mov %R[b], #0\n"                                                                                              \
        "mov %Q[c], #0\n"                                                                                              \
        "mov %R[c], #0\n"                                                                                              \
        "mov %Q[d], #0\n"                                                                                              \
        "mov %R[d], #0\n"                                                                                              \
        "dlstp.16 lr, lr\n"                                                                                            \
        "2:\n" LOAD_X("q0", "x0") LOAD_W("q1", "w0")                                                                   \
        "vmlaldava.s16 %Q[a], %R[a], q0, q1\n" LOAD_W("q2", "w1")                                                      \
        "vmlaldava.s16 %Q[b], %R[b], q0, q2\n" LOAD_X("q0", "x1")                                                      \
        "vmlaldava.s16 %Q[c], %R[c], q0, q1\n"                                                                         \
        "vmlaldava.s16 %Q[d], %R[d], q0, q2\n"                                                                         \
        "letp lr, 2b\n"                                                                                                \
        "ldr lr, [%[at], #8]\n"                                                                                \
        "ldr %[x0], [%[at], #16]\n"                                                                                    \
        "add %[w0], lr\n"                                                                                              \
        "add %[w1], lr\n"                                                                                              \
        "ldrd %[x1], lr, [%[x0]], #8\n"                                                                                \
        "sqrshrl %Q[a], %R[a], #64, %[x1]\n"                                                                           \
        "sqrshrl %Q[b], %R[b], #64, lr\n"                                                                              \
        "sqrshrl %Q[c], %R[c], #64, %[x1]\n"                                                                           \
        "sqrshrl %Q[d], %R[d], #64, lr\n"                                                                              \
        "ldrd %[x1], lr, [%[x0]], #8\n"                                                                                \
        "str %[x0], [%[at], #16]\n"                                                                                    \
        "ldr %[x0], [%[at], #20]\n"                                                                                    \
        "vmov d0, %Q[a], %Q[b]\n"                                                                                      \
        "vmov d1, %Q[c], %Q[d]\n"                                                                                      \
        "vmov d2, %[x1], lr\n"                                                                                         \
        "vmov d3, %[x1], lr\n"                                                                                         \
        "vqadd.s32 q0, q0, q1\n"                                                                                       \
        "vmax.s32 q0, q0, %q[lo]\n"                                                                                    \
        "vmin.s32 q0, q0, %q[hi]\n"                                                                                    \
        "vpst\n" STORE                                                                                                 \
        "ldr lr, [%[at], #24]\n"                                                                                       \
        "str %[x0], [%[at], #20]\n"                                                                                    \
        "subs lr, #1\n"                                                                                                \
        "str lr, [%[at], #24]\n"                                                                                       \
        "bne 1b\n"                                                                                                     \
        : [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [x0] IN_X(x0), [x1] IN_X(x1), [w0] IN_W(w0),         \
          [w1] IN_W(w1)                                                                                                \
        : [at] "r"(at), [lo] "w"(lo), [hi] "w"(hi), [places] "w"(places)                                               \
        : "q0", "q1", "q2", "lr", "cc", "memory"); \
  }

TWO_ROWS(rows_8x16to8, LOAD_8, "=&l", LOAD_16, "+r", STORE_8)
TWO_ROWS(rows_8x16to16, LOAD_8, "=&l", LOAD_16, "+r", STORE_16)
TWO_ROWS(rows_16x8to8, LOAD_16, "=&r", LOAD_8, "+l", STORE_8)
TWO_ROWS(rows_16x8to16, LOAD_16, "=&r", LOAD_8, "+l", STORE_16)
TWO_ROWS(rows_16x16to8, LOAD_16, "=&r", LOAD_16, "+r", STORE_8)
TWO_ROWS(rows_16x16to16, LOAD_16, "=&r", LOAD_16, "+r", STORE_16)

typedef void two_rows_fn(walk *at, const void *w0, const void *w1, int32x4_t lo, int32x4_t hi, uint32x4_t places);

static two_rows_fn *rows_for(const nmp_conv *c) {
  static two_rows_fn *const table[2][2][2] = {{{0}, {rows_8x16to8, rows_8x16to16}},
                                              {{rows_16x8to8, rows_16x8to16}, {rows_16x16to8, rows_16x16to16}}};
  return table[nmp_x_wide(c)][nmp_w_wide(c)][nmp_y_wide(c)];
}

/* The last channel of an odd count is a pair with itself. */
static void prepare(const nmp_conv *c, size_t first, size_t count, int32_t *ends) {
  for (size_t i = 0; i < count; i += 2, ends += 4) {
    const size_t next = i + 1 < count;
    ends[0] = nmp_conv_shift(c, first + i);
    ends[1] = nmp_conv_shift(c, first + i + next);
    ends[2] = nmp_conv_bias(c, first + i);
    ends[3] = nmp_conv_bias(c, first + i + next);
  }
}

/* At most PREPARED channels. */
static void some_channels(const nmp_conv *c, const uint8_t *x, size_t rows, size_t first, size_t count, uint8_t *y) {
  two_rows_fn *run = rows_for(c);
  const size_t x_row = c->k << nmp_x_wide(c), w_row = c->k << nmp_w_wide(c), y_row = c->out << nmp_y_wide(c);
  const uint8_t *w = (const uint8_t *)c->w + first * w_row;
  const int32x4_t lo = vdupq_n_s32(c->lo), hi = vdupq_n_s32(c->hi);
  const uint32x4_t places = {0, 1, c->out, c->out + 1};
  const size_t pairs = count / 2;
  int32_t ends[2 * PREPARED + 2];
  walk at = {.hop = 2 * w_row - ((c->k + 7) / 8 * 8 << nmp_w_wide(c)), .k = c->k};
  prepare(c, first, count, ends);
  for (size_t r = 0; r < rows; r += 2, x += 2 * x_row, y += 2 * y_row) {
    at.x0 = x;
    at.x1 = rows - r > 1 ? x + x_row : x;
    at.live = rows - r > 1 ? 0xFFFF : 0x00FF;
    if (pairs > 0) {
      at.ends = ends;
      at.y = y;
      at.pairs = pairs;
      run(&at, w, w + w_row, lo, hi, places);
    }
    if (count % 2) {
      const uint8_t *last = w + 2 * pairs * w_row;
      at.ends = ends + 4 * pairs;
      at.y = y + (2 * pairs << nmp_y_wide(c));
      at.pairs = 1;
      at.live &= 0x0F0F;
      run(&at, last, last, lo, hi, places);
    }
  }
}

void nmp_conv_mve_wide(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel) {
  for (size_t done = 0; done < count; done += PREPARED) {
    const size_t n = count - done < PREPARED ? count - done : PREPARED;
    some_channels(c, x, rows, first + done, n, (uint8_t *)c->y + ((pixel * c->out + first + done) << nmp_y_wide(c)));
  }
}

#endif
