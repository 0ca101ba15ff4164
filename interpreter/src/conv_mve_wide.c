/* Rows of factors times rows of weights, one of them int16 or both. */
#include "mve.h"

#ifdef NMP_MVE

static inline int32x4_t clamp(int32x4_t v, int32_t lo, int32_t hi) {
  return vminq_s32(vmaxq_s32(v, vdupq_n_s32(lo)), vdupq_n_s32(hi));
}

/* Sums of products in 64 bits, of two rows and two channels: x0 w0, x0 w1, x1 w0, x1 w1. */
#define DOTS_WIDE(name, LOAD_X, IN_X, LOAD_W, IN_W)                                                                      \
  static inline void name(int64_t sums[4], const void *x0, const void *x1, const void *w0, const void *w1, size_t k) {   \
    int64_t a = 0, b = 0, c = 0, d = 0;                                                                                  \
    register size_t n __asm("lr") = k; /* the other registers are full */                                                \
    __asm volatile(                                                                                                    \
        "dlstp.16 lr, lr\n"                                                                                            \
        "1: " LOAD_X("q0", "[%[x0]]") LOAD_W("q1", "[%[w0]]")                                                          \
        "vmlaldava.s16 %Q[a], %R[a], q0, q1\n" LOAD_W("q2", "[%[w1]]")                                                 \
        "vmlaldava.s16 %Q[b], %R[b], q0, q2\n" LOAD_X("q0", "[%[x1]]")                                                 \
        "vmlaldava.s16 %Q[c], %R[c], q0, q1\n"                                                                         \
        "vmlaldava.s16 %Q[d], %R[d], q0, q2\n"                                                                         \
        "letp lr, 1b\n"                                                                                                \
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x0] IN_X(x0), [x1] IN_X(x1), [w0] IN_W(w0),             \
          [w1] IN_W(w1), "+r"(n)                                                                                       \
        :                                                                                                              \
        : "q0", "q1", "q2", "memory"); \
    sums[0] = a;                                                                                                         \
    sums[1] = b;                                                                                                         \
    sums[2] = c;                                                                                                         \
    sums[3] = d;                                                                                                         \
  }
#define LOAD_8(q, from) "vldrb.s16 " q ", " from ", #8\n"
#define LOAD_16(q, from) "vldrh.16 " q ", " from ", #16\n"

DOTS_WIDE(dots_8x16, LOAD_8, "+l", LOAD_16, "+r") /* loads that widen take a low register */
DOTS_WIDE(dots_16x8, LOAD_16, "+r", LOAD_8, "+l")
DOTS_WIDE(dots_16x16, LOAD_16, "+r", LOAD_16, "+r")

/* One factor int16, or both: two rows and two channels at a time, which fill a vector of results. */
void nmp_conv_mve_wide(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel) {
  const size_t x_row = c->k << c->x_wide, w_row = c->k << c->w_wide;
  const uint32x4_t places = {0, 1, c->out, c->out + 1};
  for (size_t done = 0; done < count; done += 2) {
    const size_t channel = first + done, next = count - done > 1;
    const uint8_t *w0 = (const uint8_t *)c->w + channel * w_row, *w1 = w0 + (next ? w_row : 0), *from = x;
    const int32_t s0 = nmp_conv_shift(c, channel), s1 = nmp_conv_shift(c, channel + next);
    const int32_t b0 = nmp_conv_bias(c, channel), b1 = nmp_conv_bias(c, channel + next);
    const int32x4_t bias = {b0, b1, b0, b1};
    uint8_t *y = (uint8_t *)c->y + ((pixel * c->out + channel) << c->y_wide);
    for (size_t r = 0; r < rows; r += 2, from += 2 * x_row, y += 2 * c->out << c->y_wide) {
      const size_t below = rows - r > 1;
      const mve_pred16_t live = (mve_pred16_t)((next ? 0xFFFF : 0x0F0F) & (below ? 0xFFFF : 0x00FF));
      const uint8_t *x1 = from + (below ? x_row : 0);
      int64_t sums[4];
      if (c->x_wide && c->w_wide) {
        dots_16x16(sums, from, x1, w0, w1, c->k);
      } else if (c->x_wide) {
        dots_16x8(sums, from, x1, w0, w1, c->k);
      } else {
        dots_8x16(sums, from, x1, w0, w1, c->k);
      }
      const int32x4_t scaled = {(int32_t)sqrshrl(sums[0], s0), (int32_t)sqrshrl(sums[1], s1),
                                (int32_t)sqrshrl(sums[2], s0), (int32_t)sqrshrl(sums[3], s1)};
      const int32x4_t v = clamp(vqaddq_s32(scaled, bias), c->lo, c->hi);
      if (c->y_wide) {
        vstrhq_scatter_shifted_offset_p_s32((int16_t *)(void *)y, places, v, live);
      } else {
        vstrbq_scatter_offset_p_s32((int8_t *)y, places, v, live);
      }
    }
  }
}

#endif
