/* Convolutions with the vectors of Cortex-M (MVE, "Helium").
 *
 * 1. Depthwise, 8 channels or more: eight channels of a pixel at once, tap by tap.
 * 2. Anything else is rows of k factors times rows of weights: pixels as they are where neighbours lie like that (1x1),
 *    else patches gathered into the scratch, a few at a time.
 */
#include <string.h>

#include "arch/cortex_m/mve.h"
#include "conv/patch.h"

#ifdef NMP_MVE

static nmp_conv_rows_fn *rows_of(const nmp_conv *c) {
  return nmp_x_wide(c) | nmp_w_wide(c) ? nmp_conv_mve_wide : nmp_conv_mve_narrow;
}

/* `rows` runs of bytes that begin `line` bytes apart, one after another. */
static inline void copy_rows(void *to, const void *from, size_t run, size_t line, int32_t rows) {
  const void *at;
  const size_t back = run - (run + 15) / 16 * 16;
  __asm volatile(
      "1: mov %[at], %[from]\n"
      "add %[from], %[line]\n"
      "dlstp.8 lr, %[run]\n"
      "2: vldrb.8 q0, [%[at]], #16\n"
      "vstrb.8 q0, [%[to]], #16\n"
      "letp lr, 2b\n"
      "add %[to], %[back]\n"
      "subs %[rows], #1\n"
      "bne 1b\n"
      : [to] "+&r"(to), [from] "+&r"(from), [at] "=&r"(at), [rows] "+&r"(rows)
      : [run] "r"(run), [line] "r"(line), [back] "r"(back)
      : "q0", "lr", "cc", "memory");
}

/* The next output pixel. */
static void step(const nmp_conv *c, nmp_place *at) {
  if (++at->x == c->h.out) {
    at->x = 0;
    if (++at->y == c->v.out) {
      at->y = 0;
      at->image += (size_t)c->v.in * (size_t)c->h.in * c->in;
    }
  }
}

static void run_patches(const nmp_conv *c) {
  const size_t pixels = nmp_conv_pixels(c), most = nmp_mve_patches(c), outs = c->out / c->groups,
               bytes = nmp_mve_patch_bytes(c);
  const size_t run = (size_t)c->h.kernel * c->in << nmp_x_wide(c);
  const size_t line = (size_t)c->v.dilation * (size_t)c->h.in * c->in << nmp_x_wide(c);
  int32_t left = 0, right = 0, top = 0, bottom = 0; /* of the pixels whose patches are whole rows of x */
  uint8_t *patch = (uint8_t *)c->scratch + nmp_mve_repeated(c);
  nmp_place at = {.image = 0};
  if (c->h.dilation == 1 && c->groups == 1) {
    nmp_mve_full(&c->h, &left, &right);
    nmp_mve_full(&c->v, &top, &bottom);
  }
  for (size_t pixel = 0, rows; pixel < pixels; pixel += rows) {
    const nmp_place from = at;
    rows = pixels - pixel < most ? pixels - pixel : most;
    for (size_t group = 0; group < c->groups; group++) {
      uint8_t *to = patch;
      at = from;
      for (size_t r = 0; r < rows; r++, step(c, &at), to += bytes) {
        if (at.x >= left && at.x < right && at.y >= top && at.y < bottom) {
          copy_rows(to, nmp_element(c, at, nmp_pixel(&c->v, at.y, 0), nmp_pixel(&c->h, at.x, 0), 0), run, line,
                    c->v.kernel);
        } else {
          nmp_gather(c, at, group, to);
        }
      }
      rows_of(c)(c, patch, rows, group * outs, outs, pixel);
    }
  }
}

static void mve_run(const nmp_conv *c, size_t task, size_t tasks) {
  (void)task;
  (void)tasks;
  if (nmp_mve_is_by_eight(c)) {
    nmp_conv_mve_depthwise(c);
    return;
  }
  if (nmp_mve_repeated(c)) {
    memset(c->scratch, c->exponents[0], nmp_mve_repeated(c));
  }
  if (nmp_conv_is_direct(c)) {
    rows_of(c)(c, c->x, nmp_conv_pixels(c), 0, c->out, 0);
  } else {
    run_patches(c);
  }
}

const nmp_conv_kernel *nmp_conv_mve(const nmp_conv *c) {
  static const nmp_conv_kernel mve = {.scratch = nmp_mve_scratch, .run = mve_run, .adds = 1};
  return nmp_mve_claims(c) ? &mve : NMP_CONV_HARD ? nmp_conv_portable(c) : NULL;
}

#endif
