/* Matrix products of Cortex-M's DSP extension.
 *
 * 1. Pixels go by three or two. Their patches are expanded to int16, in the order in which SXTB16 expands a word of
 *    int8 weights (elements 0 and 2, then 1 and 3; plain order for int16 weights), and interleaved word by word: what
 *    meets one word of weights lies together.
 * 2. What is left over, and a fully connected layer of batch 1, goes pixel by pixel (conv_dsp_gemv.c).
 *
 * Sums are int32 where neither the products nor what the sum starts at can reach 2^30, else int64. Patches of three
 * pixels are in the scratch where that is small, else at the end of y, until the results get there.
 */
#include "arch/cortex_m/conv_dsp.h"

#ifdef NMP_DSP

#include "arch/cortex_m/conv_dsp_plan.inc"

/* `elements` to every `step`-th word of `to`. */
DSP_INLINE uint32_t *expand(uint32_t *to, size_t step, const uint8_t *x, size_t elements, int x_wide, int w_wide) {
  size_t n = elements / 4;
  for (; (x_wide || w_wide) && n >= 4; n -= 4, x += 16 << x_wide, to += 8 * step) {
    expand_four(to, to + step, x, x_wide, w_wide);
    expand_four(to + 2 * step, to + 3 * step, x + (4 << x_wide), x_wide, w_wide);
    expand_four(to + 4 * step, to + 5 * step, x + (8 << x_wide), x_wide, w_wide);
    expand_four(to + 6 * step, to + 7 * step, x + (12 << x_wide), x_wide, w_wide);
  }
  for (; n > 0; n--, x += 4 << x_wide, to += 2 * step) {
    expand_four(to, to + step, x, x_wide, w_wide);
  }
  return to;
}

/* n bytes; what lies between is short. */
static inline void copy(uint8_t *to, const uint8_t *from, size_t n) {
  if (n < 4) {
    for (; n > 0; n--) {
      *to++ = *from++;
    }
    return;
  }
  for (; n > 4; n -= 4, to += 4, from += 4) {
    dsp_store(to, dsp_load(from));
  }
  dsp_store(to + n - 4, dsp_load(from + n - 4));
}

/* Elements, to every `step`-th word of `to`; as they are where step is 0. */
static uint8_t *emit(const nmp_conv *c, uint8_t *to, size_t step, const uint8_t *x, size_t elements) {
  uint32_t *words = (uint32_t *)(void *)to;
  if (step == 0) {
    copy(to, x, elements << nmp_x_wide(c));
    return to + (elements << nmp_x_wide(c));
  }
  if (nmp_x_wide(c)) {
    words = nmp_w_wide(c) ? expand(words, 2, x, elements, 1, 1)
            : step == 2   ? expand(words, 2, x, elements, 1, 0)
                          : expand(words, 3, x, elements, 1, 0);
  } else {
    words = nmp_w_wide(c) ? expand(words, 2, x, elements, 0, 1)
            : step == 2   ? expand(words, 2, x, elements, 0, 0)
                          : expand(words, 3, x, elements, 0, 0);
  }
  return (uint8_t *)words;
}

/* Taps in the padding, from channel `first` on. */
static uint8_t *fill(const nmp_conv *c, uint8_t *to, size_t step, size_t first, int32_t taps) {
  const size_t tap = c->in / c->groups, bytes = (size_t)taps * tap << nmp_x_wide(c);
  if (c->pad) {
    for (; taps > 0; taps--) {
      to = emit(c, to, step, nmp_padding(c, first), tap);
    }
  } else if (step == 0) {
    for (uint8_t *end = to + bytes; to < end; to++) {
      *to = 0;
    }
  } else {
    uint32_t *words = (uint32_t *)(void *)to;
    for (size_t n = (size_t)taps * tap / 2; n > 0; n--, words += step) {
      *words = 0;
    }
    to = (uint8_t *)words;
  }
  return to;
}

/* The patch of one pixel, emitted. */
static void walk(const nmp_conv *c, size_t pixel, size_t group, uint8_t *to, size_t step) {
  const nmp_place at = nmp_locate(c, pixel);
  const size_t tap = c->in / c->groups, first = group * tap, below = (size_t)c->h.in * c->in << nmp_x_wide(c);
  const int whole = c->h.dilation == 1 && c->groups == 1;
  int32_t left, right;
  nmp_clip(&c->h, at.x, &left, &right);
  const uint8_t *x = nmp_element(c, at, 0, nmp_pixel(&c->h, at.x, left), first);
  int32_t iy = nmp_pixel(&c->v, at.y, 0);
  for (int32_t ky = 0; ky < c->v.kernel; ky++, iy += c->v.dilation) {
    const uint8_t *row = x + (size_t)iy * below;
    if (!nmp_inside(&c->v, iy)) {
      to = fill(c, to, step, first, c->h.kernel);
      continue;
    }
    if (left > 0) {
      to = fill(c, to, step, first, left);
    }
    if (whole) {
      to = emit(c, to, step, row, (size_t)(right - left) * tap);
    } else {
      for (int32_t kx = left; kx < right; kx++, row += (size_t)c->h.dilation * c->in << nmp_x_wide(c)) {
        to = emit(c, to, step, row, tap);
      }
    }
    if (right < c->h.kernel) {
      to = fill(c, to, step, first, c->h.kernel - right);
    }
  }
}

/* The patch of one pixel as it is, with zeros up to a whole word. */
static const uint8_t *linear(const nmp_conv *c, size_t pixel, size_t group, uint8_t *to) {
  if (nmp_conv_is_direct(c) && c->k % 4 == 0) {
    return (const uint8_t *)c->x + (pixel * c->k << nmp_x_wide(c));
  }
  if (c->k % 4) {
    uint8_t *last = to + nmp_dsp_linear_bytes(c) - (4 << nmp_x_wide(c));
    dsp_store(last, 0);
    if (nmp_x_wide(c)) {
      dsp_store(last + 4, 0);
    }
  }
  walk(c, pixel, group, to, 0);
  return to;
}

/* The expanded patch of one pixel: every `step`-th word of `to`. */
static void gather(const nmp_conv *c, size_t pixel, size_t group, uint32_t *to, size_t step, uint8_t *spare) {
  if (nmp_conv_is_direct(c) || nmp_dsp_is_ragged(c)) {
    emit(c, (uint8_t *)to, step, linear(c, pixel, group, spare), nmp_dsp_words(c) * 2);
  } else {
    walk(c, pixel, group, (uint8_t *)to, step);
  }
}

/* n > 0 groups of four int8 of three pixels that are k apart: 13 instructions each. */
static __attribute__((noinline)) void expand_three(uint32_t *to, const uint8_t *x, size_t k, size_t n) {
  __asm__ volatile(
      "1: ldr r0, [%[x]]\n"
      "ldr r1, [%[x], %[k]]\n"
      "ldr r2, [%[x], %[k], lsl #1]\n"
      "adds %[x], #4\n"
      "sxtb16 r3, r0, ror #8\n"
      "sxtb16 r4, r1, ror #8\n"
      "sxtb16 r5, r2, ror #8\n"
      "sxtb16 r0, r0\n"
      "sxtb16 r1, r1\n"
      "sxtb16 r2, r2\n"
      "stmia %[to]!, {r0-r5}\n"
      "subs %[n], #1\n"
      "bne 1b\n"
      : [to] "+&r"(to), [x] "+&r"(x), [n] "+&r"(n)
      : [k] "r"(k)
      : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
}

/* The expanded patches of three pixels. 0: these are not of one row, of int8 in whole words with all taps inside. */
static __attribute__((noinline)) int gather_three(const nmp_conv *c, size_t pixel, uint32_t *to) {
  if (nmp_x_wide(c) || nmp_dsp_is_ragged(c) || c->groups != 1 || c->h.dilation != 1) {
    return 0;
  }
  const nmp_place at = nmp_locate(c, pixel);
  const size_t n = (size_t)c->h.kernel * c->in / 4, below = (size_t)c->v.dilation * (size_t)c->h.in * c->in;
  const int32_t ix = nmp_pixel(&c->h, at.x, 0), iy = nmp_pixel(&c->v, at.y, 0);
  if (at.x + 3 > c->h.out || ix < 0 || ix + 2 * c->h.stride + c->h.kernel > c->h.in || iy < 0 ||
      iy + (c->v.kernel - 1) * c->v.dilation >= c->v.in) {
    return 0;
  }
  const uint8_t *x = nmp_element(c, at, iy, ix, 0);
  for (int32_t ky = 0; ky < c->v.kernel; ky++, x += below, to += 6 * n) {
    expand_three(to, x, (size_t)c->h.stride * c->in, n);
  }
  return 1;
}

/* The last bytes of y, as far as they are y's own and not yet written: room for three patches. NULL: none. */
static uint8_t *room_in_y(const nmp_conv *c) {
  const uint8_t *x = c->x;
  const size_t images = c->images, read = images * (size_t)c->v.in * (size_t)c->h.in * c->in << nmp_x_wide(c);
  uint8_t *y = c->y, *end = output(c, nmp_conv_pixels(c), 0);
  const size_t bytes = nmp_dsp_patch_bytes(c, 3);
  if (nmp_conv_adds(c) || !nmp_dsp_is_narrow(c) || (size_t)(end - y) < bytes + 4 ||
      ((uintptr_t)y < (uintptr_t)(x + read) && (uintptr_t)x < (uintptr_t)end)) {
    return NULL;
  }
  return end - bytes - (uintptr_t)(end - bytes) % 4;
}

/* Places of the patches of a run. */
typedef struct places {
  uint8_t *ends, *patches, *spare;
  uint8_t *room;        /* in y; NULL: none */
  const uint8_t *whole; /* x, where its pixels are the patches of pixels by themselves; else NULL */
} places;

/* Pixels [pixel, pixel + n), whose patches go to x. Channels are prepared once where one block holds them all. */
static void run_pixels(const nmp_conv *c, const places *at, ends *e, uint32_t *x, size_t pixel, size_t n) {
  const size_t per_group = c->out / c->groups;
  const uint8_t *patch = NULL;
  for (size_t first = 0, count; first < c->out; first += count) {
    const size_t group = first / per_group, rest = (group + 1) * per_group - first;
    count = rest < NMP_DSP_ENDS_MAX ? rest : NMP_DSP_ENDS_MAX;
    if (n == 1 && nmp_dsp_is_narrow(c)) {
      e->first = first;
    } else if (pixel == 0 || count < c->out) {
      nmp_conv_dsp_prepare(c, first, count, nmp_dsp_is_narrow(c), at->ends, e);
    }
    if (n == 1) {
      patch = at->whole           ? at->whole + (pixel * c->k << nmp_x_wide(c))
              : rest == per_group ? linear(c, pixel, group, at->spare)
                                  : patch;
      nmp_conv_dsp_gemv(c, e, patch, count, pixel);
      continue;
    }
    if (n == 3 && !nmp_x_wide(c) && at->whole && c->k % 4 == 0) {
      if (first == 0) {
        expand_three(x, at->whole + pixel * c->k, c->k, c->k / 4);
      }
    } else if (rest == per_group && !(n == 3 && gather_three(c, pixel, x))) {
      for (size_t i = 0; i < n; i++) {
        gather(c, pixel + i, group, x + i, n, at->spare);
      }
    }
    (n == 3                 ? nmp_conv_dsp_three
     : nmp_dsp_is_narrow(c) ? nmp_conv_dsp_two
                            : nmp_conv_dsp_two_wide)(c, e, x, count, pixel);
  }
}

static void dsp_run(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t pixels = nmp_conv_pixels(c);
  places at = {.ends = c->scratch, .whole = nmp_conv_is_direct(c) && !nmp_dsp_reads_ahead(c) ? c->x : NULL};
  const size_t held = nmp_dsp_pixels_in_scratch(c);
  ends e;
  (void)task;
  (void)tasks;
  at.patches = at.ends + nmp_dsp_ends_bytes(c);
  at.room = held == 2 ? room_in_y(c) : NULL;
  at.spare = at.patches + (nmp_dsp_is_ragged(c) ? nmp_dsp_patch_bytes(c, held) : 0);
  for (size_t pixel = 0, n; pixel < pixels; pixel += n) {
    const int room = at.room && output(c, pixel + 3, 0) <= at.room;
    n = held == 3 || room ? 3 : 2;
    n = pixels - pixel >= n ? n : pixels - pixel >= 2 ? 2 : 1;
    run_pixels(c, &at, &e, (uint32_t *)(void *)(n == 3 && room ? at.room : at.patches), pixel, n);
  }
}

/* One pixel of x as it is: a fully connected layer of batch 1. */
static int is_single(const nmp_conv *c) {
  return nmp_conv_pixels(c) == 1 && nmp_conv_is_direct(c) && !nmp_dsp_reads_ahead(c);
}

static void run_single(const nmp_conv *c, size_t task, size_t tasks) {
  ends e = {.first = 0};
  (void)task;
  (void)tasks;
  if (nmp_dsp_is_narrow(c)) {
    nmp_conv_dsp_gemv(c, &e, c->x, c->out, 0);
    return;
  }
  for (size_t first = 0; first < c->out; first += NMP_DSP_ENDS_MAX) {
    const size_t count = nmp_min(c->out - first, NMP_DSP_ENDS_MAX);
    nmp_conv_dsp_prepare(c, first, count, 0, c->scratch, &e);
    nmp_conv_dsp_gemv(c, &e, c->x, count, 0);
  }
}

const nmp_conv_kernel *nmp_conv_dsp(const nmp_conv *c) {
  static const nmp_conv_kernel products = {.scratch = nmp_dsp_products_scratch, .run = dsp_run, .adds = 1};
  static const nmp_conv_kernel single = {.scratch = nmp_dsp_products_scratch, .run = run_single, .adds = 1};
  if (!nmp_conv_is_depthwise(c)) {
    return is_single(c) ? &single : &products;
  }
  const nmp_conv_kernel *depthwise = nmp_conv_dsp_depthwise(c), *taps = NMP_CONV_TAPS ? nmp_conv_dsp_taps(c) : NULL;
  return depthwise ? depthwise : taps ? taps : &products;
}

#endif
