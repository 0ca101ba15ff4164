#include "conv/gemm/load.h"

#include "conv/gemm/split_words.h"
#include "conv/patch.h"

#ifdef NMP_HAS_GEMM
#include <string.h>

#define SHORT_ROW 256 /* bytes of a padded row; to fill them all is faster than each row's ends */

static void load_elements(const nmp_padded *padded, size_t element, const void *x, size_t n) {
  padded->p->load(padded->bytes + element * padded->p->element, x, n, padded->plane);
}

/* One pixel as the product wants it, and copies of it. */
static void load_padding(const nmp_padded *padded, size_t element, size_t pixels) {
  const size_t in = padded->c->in, pixel = in * padded->p->element;
  uint8_t *to = padded->bytes + element * padded->p->element;
  if (padded->filled || pixels == 0) {
    return;
  }
  if (padded->c->pad) {
    load_elements(padded, element, padded->c->pad, in);
  } else if (nmp_is_split_words(padded->p)) {
    nmp_split_words_zeros(to, in);
  }
  for (size_t plane = 0; plane < padded->p->planes; plane++, to += padded->plane) {
    if (padded->c->pad || nmp_is_split_words(padded->p)) {
      nmp_repeat(to, pixel, pixels);
    } else {
      memset(to, plane ? padded->p->low : padded->p->zero, pixels * pixel);
    }
  }
}

/* One padded row from a row of x. */
static void load_row(const nmp_padded *padded, size_t element, const uint8_t *x) {
  const nmp_gemm_shape *s = padded->s;
  const size_t in = padded->c->in, before = nmp_min((size_t)s->h.before, s->width);
  if (s->h_hop == 1) {
    const size_t inside = nmp_min((size_t)s->h.in, s->width - before);
    load_padding(padded, element, before);
    load_elements(padded, element + before * in, x, inside * in);
    load_padding(padded, element + (before + inside) * in, s->width - before - inside);
    return;
  }
  for (int32_t i = 0; i < (int32_t)s->width; i++, element += in) {
    const int32_t ix = i * s->h_hop - s->h.before;
    if (nmp_inside(&s->h, ix)) {
      load_elements(padded, element, x + (((size_t)ix * in) << padded->c->x_wide), in);
    } else {
      load_padding(padded, element, 1);
    }
  }
}

static void load_slack(const nmp_padded *padded, size_t elements) {
  for (size_t plane = 0; plane < padded->p->planes; plane++) {
    memset(padded->bytes + plane * padded->plane + elements * padded->p->element, 0, NMP_PADDED_SLACK);
  }
}

/* Rows of windows overwrite what the ones before them wrote too much. */
static inline void load_windows(const nmp_padded *padded, size_t lines, const size_t bytes) {
  const nmp_gemm_shape *s = padded->s;
  const size_t across = nmp_padded_across_rows(padded), down = nmp_padded_down_rows(padded);
  const size_t rows = (size_t)s->v.kernel, row = (size_t)s->h.kernel * padded->c->in * padded->p->element;
  const size_t below = (size_t)s->v.dilation * s->row * padded->p->element;
  uint8_t *to = padded->patches;
  for (size_t line = 0; line < lines; line++) {
    const uint8_t *from = padded->bytes + line * down;
    for (size_t x = 0; x < (size_t)s->h.out; x++, from += across, to += s->patch) {
      for (size_t ky = 0; ky < rows; ky++) {
        memcpy(to + ky * row, from + ky * below, bytes);
      }
    }
  }
}

static void load_patches(nmp_padded *padded, size_t lines) {
  const nmp_gemm_shape *s = padded->s;
  const size_t row = (size_t)s->h.kernel * padded->c->in * padded->p->element;
  padded->patches = padded->bytes + nmp_gemm_padded_rows(s, lines) * s->row * padded->p->element + NMP_PADDED_SLACK;
  if (row <= NMP_PATCH_ROW / 2) {
    load_windows(padded, lines, NMP_PATCH_ROW / 2);
  } else {
    load_windows(padded, lines, NMP_PATCH_ROW);
  }
}

void nmp_padded_load(nmp_padded *padded, size_t image, size_t line, size_t lines) {
  const nmp_gemm_shape *s = padded->s;
  const size_t x_row = ((size_t)s->h.in * padded->c->in) << padded->c->x_wide, rows = nmp_gemm_padded_rows(s, lines);
  const uint8_t *x = (const uint8_t *)padded->c->x + image * (size_t)s->v.in * x_row;
  const int32_t top = (int32_t)line * s->v.stride - s->v.before;
  padded->filled = 0;
  if (!s->whole && s->row * padded->p->element <= SHORT_ROW) {
    load_padding(padded, 0, rows * s->width);
    padded->filled = 1;
  }
  for (size_t r = 0, n; r < rows; r += n) {
    const int32_t iy = top + (int32_t)r * s->v_hop;
    n = 1;
    if (!nmp_inside(&s->v, iy)) {
      load_padding(padded, r * s->row, s->width);
    } else if (s->whole) {
      n = nmp_min(rows - r, (size_t)(s->v.in - iy));
      load_elements(padded, r * s->row, x + (size_t)iy * x_row, n * s->row);
    } else {
      load_row(padded, r * s->row, x + (size_t)iy * x_row);
    }
  }
  load_slack(padded, rows * s->row);
  if (s->patch) {
    load_patches(padded, lines);
  }
}
#endif
