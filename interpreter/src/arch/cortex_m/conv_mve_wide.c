/* Rows of factors times rows of weights, one of them int16 or both: two rows and two channels at a time. Sums have 64
 * bits; the chooser has seen to it that they are int32 after their shift.
 */
#include "arch/cortex_m/mve.h"

#ifdef NMP_MVE

#define PREPARED 64 /* channels whose shifts and biases are prepared at a time, on the stack */

/* State that the loop over pairs of channels keeps in memory, for registers are few. The code knows its offsets. */
typedef struct walk {
  const void *x0, *x1;
  size_t k, hop;       /* hop: bytes from where the loads of a channel have ended to the channel after the next */
  const int32_t *ends; /* shift, shift, bias, bias of each pair */
  void *y;
  size_t pairs;
  uint32_t live; /* predicate of the four results */
} walk;

/* Registers: all there are. r0 the walk, r1 and r2 weights, r3 and r6 factors, low ones for loads that widen; sums in
 * r4 and r5, r8 and r9, r10 and r11, r12 and r7. Compilers keep r6 and r7 for themselves, some of them at some levels,
 * and have them back at the end.
 */
#define FIXED(type, name, from) register type name __asm(#from) = name##_

#define LOAD_8(q, from) "vldrb.s16 " q ", [" from "], #8\n"
#define LOAD_16(q, from) "vldrh.16 " q ", [" from "], #16\n"
#define STORE_8 "vstrbt.32 q0, [r3, %q[places]]\nadd r3, #2\n"
#define STORE_16 "vstrht.32 q0, [r3, %q[places], uxtw #1]\nadd r3, #4\n"

/* Pairs of channels of two rows. The inner loop is predicated by the elements that are left in lr, so k need not be a
 * multiple of 8.
 */
#define TWO_ROWS(name, LOAD_X, LOAD_W, STORE)                                                                    \
  static void name(walk *at_, const void *w0_, const void *w1_, int32x4_t lo, int32x4_t hi, uint32x4_t places) { \
    FIXED(walk *, at, r0);                                                                                       \
    FIXED(const void *, w0, r1);                                                                                 \
    FIXED(const void *, w1, r2);                                                                                 \
    __asm volatile(                                                                                          \
        NMP_PUSH_R9 "push {r6, r7}\n"                                                                                    \
        "ldr lr, [r0, #28]\n"                                                                                \
        "vmsr p0, lr\n"                                                                                      \
        "1: ldrd r3, r6, [r0]\n"                                                                             \
        "ldr lr, [r0, #8]\n"                                                                                 \
        "mov r4, #0\n"                                                                                       \
        "mov r5, #0\n"                                                                                       \
        "mov r8, #0\n"                                                                                       \
        "mov r9, #0\n"                                                                                       \
        "mov r10, #0\n"                                                                                      \
        "mov r11, #0\n"                                                                                      \
        "mov r12, #0\n"                                                                                      \
        "mov r7, #0\n"                                                                                       \
        "dlstp.16 lr, lr\n"                                                                                  \
        "2:\n" LOAD_X("q0", "r3") LOAD_W("q1", "r1")                                                         \
        "vmlaldava.s16 r4, r5, q0, q1\n" LOAD_W("q2", "r2")                                                  \
        "vmlaldava.s16 r8, r9, q0, q2\n" LOAD_X("q0", "r6")                                                  \
        "vmlaldava.s16 r10, r11, q0, q1\n"                                                                   \
        "vmlaldava.s16 r12, r7, q0, q2\n"                                                                    \
        "letp lr, 2b\n"                                                                                      \
        "ldrd lr, r3, [r0, #12]\n"                                                                           \
        "add r1, lr\n"                                                                                       \
        "add r2, lr\n"                                                                                       \
        "ldrd r6, lr, [r3], #8\n"                                                                            \
        "sqrshrl r4, r5, #64, r6\n"                                                                          \
        "sqrshrl r8, r9, #64, lr\n"                                                                          \
        "sqrshrl r10, r11, #64, r6\n"                                                                        \
        "sqrshrl r12, r7, #64, lr\n"                                                                         \
        "ldrd r6, lr, [r3], #8\n"                                                                            \
        "str r3, [r0, #16]\n"                                                                                \
        "ldr r3, [r0, #20]\n"                                                                                \
        "vmov d0, r4, r8\n"                                                                                  \
        "vmov d1, r10, r12\n"                                                                                \
        "vmov d2, r6, lr\n"                                                                                  \
        "vmov d3, r6, lr\n"                                                                                  \
        "vqadd.s32 q0, q0, q1\n"                                                                             \
        "vmax.s32 q0, q0, %q[lo]\n"                                                                          \
        "vmin.s32 q0, q0, %q[hi]\n"                                                                          \
        "vpst\n" STORE                                                                                       \
        "ldr lr, [r0, #24]\n"                                                                                \
        "subs lr, #1\n"                                                                                      \
        "strd r3, lr, [r0, #20]\n"                                                                           \
        "bne 1b\n"                                                                                           \
        "pop {r6, r7}\n" NMP_POP_R9                                                                                     \
        : "+r"(at), "+r"(w0), "+r"(w1)                                                                       \
        : [lo] "w"(lo), [hi] "w"(hi), [places] "w"(places)                                                   \
        : "q0", "q1", "q2", "r3", "r4", "r5", "r8", NMP_R9_LOST "r10", "r11", "r12", "lr", "cc", "memory");   \
  }

TWO_ROWS(rows_8x16to8, LOAD_8, LOAD_16, STORE_8)
TWO_ROWS(rows_8x16to16, LOAD_8, LOAD_16, STORE_16)
TWO_ROWS(rows_16x8to8, LOAD_16, LOAD_8, STORE_8)
TWO_ROWS(rows_16x8to16, LOAD_16, LOAD_8, STORE_16)
TWO_ROWS(rows_16x16to8, LOAD_16, LOAD_16, STORE_8)
TWO_ROWS(rows_16x16to16, LOAD_16, LOAD_16, STORE_16)

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
  if (rows % 2 && count >= 4) {
    rows--;
    nmp_conv_mve_gemv(c, (const uint8_t *)x + (rows * c->k << nmp_x_wide(c)), first, count, pixel + rows);
  }
  for (size_t done = 0; done < count && rows > 0; done += PREPARED) {
    const size_t n = count - done < PREPARED ? count - done : PREPARED;
    some_channels(c, x, rows, first + done, n, (uint8_t *)c->y + ((pixel * c->out + first + done) << nmp_y_wide(c)));
  }
}

#endif
