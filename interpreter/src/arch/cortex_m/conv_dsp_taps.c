/* Depthwise convolutions of other kernels than conv_dsp_depthwise.c has: four channels of int8 x int8 at a time, one
 * where there are fewer, or two of int16 x any, tap by tap. Their weights are in the scratch in the order of the taps,
 * expanded to int16, or to int32 for one channel.
 */
#include "arch/cortex_m/conv_dsp.h"

#ifdef NMP_DSP

/* Some channels of all pixels. */
typedef struct lanes {
  size_t channel;          /* the first */
  const uint32_t *weights; /* two words a tap: channels 0 and 2, 1 and 3; or one of two channels, or of one */
  ends e;
} lanes;

/* Sums of four channels; of two in 64 bits. */
typedef union sums {
  int32_t narrow[4];
  int64_t wide[2];
} sums;

static size_t together(const nmp_conv *c) {
  return nmp_x_wide(c) ? 2 : c->out < 4 ? 1 : 4;
}

static void load_weights(const nmp_conv *c, size_t channel, uint32_t *to) {
  const uint32_t step = c->k;
  for (size_t at = channel * c->k, end = at + c->k; at < end; at++) {
    if (together(c) == 1) {
      *to++ = dsp_weight(c, at);
    } else if (nmp_x_wide(c)) {
      *to++ = dsp_low(dsp_weight(c, at), dsp_weight(c, at + step));
    } else {
      *to++ = dsp_low(dsp_weight(c, at), dsp_weight(c, at + 2 * step));
      *to++ = dsp_low(dsp_weight(c, at + step), dsp_weight(c, at + 3 * step));
    }
  }
}

/* n taps, `step` bytes apart. */
DSP_INLINE void add_bytes(sums *s, const uint8_t *x, size_t step, const uint32_t *w, int32_t n) {
  int32_t s0 = s->narrow[0], s1 = s->narrow[1], s2 = s->narrow[2], s3 = s->narrow[3];
  for (; n > 0; n--, x += step, w += 2) {
    const uint32_t four = dsp_load(x), even = dsp_even(four), odd = dsp_odd(four);
    s0 = dsp_mla_low(even, w[0], s0);
    s2 = dsp_mla_high(even, w[0], s2);
    s1 = dsp_mla_low(odd, w[1], s1);
    s3 = dsp_mla_high(odd, w[1], s3);
  }
  s->narrow[0] = s0, s->narrow[1] = s1, s->narrow[2] = s2, s->narrow[3] = s3;
}

DSP_INLINE void add_halves(sums *s, const uint8_t *x, size_t step, const uint32_t *w, int32_t n) {
  int64_t s0 = s->wide[0], s1 = s->wide[1];
  for (; n > 0; n--, x += step, w++) {
    const uint32_t two = dsp_load(x);
    s0 = dsp_mlal_low(two, *w, s0);
    s1 = dsp_mlal_high(two, *w, s1);
  }
  s->wide[0] = s0, s->wide[1] = s1;
}

DSP_INLINE void add_one(sums *s, const uint8_t *x, size_t step, const uint32_t *w, int32_t n) {
  int32_t sum = s->narrow[0];
  for (; n > 0; n--, x += step, w++) {
    sum += *(const int8_t *)x * (int32_t)*w;
  }
  s->narrow[0] = sum;
}

/* count: channels, a constant. */
DSP_INLINE void add(sums *s, const uint8_t *x, size_t step, const uint32_t *w, int32_t n, size_t count) {
  if (count == 1) {
    add_one(s, x, step, w, n);
  } else if (count == 2) {
    add_halves(s, x, step, w, n);
  } else {
    add_bytes(s, x, step, w, n);
  }
}

/* A pixel whose window holds padding that is not zero. */
DSP_INLINE void add_padded(const nmp_conv *c, sums *s, nmp_place at, const lanes *l, size_t count) {
  const size_t words = count == 4 ? 2 : 1;
  const uint32_t *w = l->weights;
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = nmp_pixel(&c->v, at.y, ky);
    for (int32_t kx = 0; kx < c->h.kernel; kx++, w += words) {
      const int32_t ix = nmp_pixel(&c->h, at.x, kx);
      const int there = nmp_inside(&c->v, iy) && nmp_inside(&c->h, ix);
      add(s, there ? nmp_element(c, at, iy, ix, l->channel) : nmp_padding(c, l->channel), 0, w, 1, count);
    }
  }
}

DSP_INLINE void store(const nmp_conv *c, const lanes *l, const sums *s, uint8_t *y, size_t count) {
  const size_t size = 1u << nmp_y_wide(c);
  if (count == 2) {
    end_wide(c, &l->e, 0, s->wide[0], 0, 1, y, 0);
    end_wide(c, &l->e, 1, s->wide[1], 0, 1, y + size, 0);
  } else if (count == 4 && l->e.bytes) {
    end_bytes(&l->e, l->e.shift, s->narrow[0], s->narrow[1], s->narrow[2], s->narrow[3], y);
  } else {
    for (size_t i = 0; i < count; i++) {
      end_narrow(c, &l->e, i, s->narrow[i], 0, 0, 1, y + i * size, 0);
    }
  }
}

/* Windows of one channel without padding at their sides, of `rows` rows of x and of weights from w on. A call keeps the
 * registers of outer loops out.
 */
static __attribute__((noinline)) void run_windows(const nmp_conv *c, const ends *e, const uint8_t *x, const uint32_t *w,
                                                  int32_t rows, int32_t windows, uint8_t *y) {
  const size_t step = (size_t)c->h.dilation * c->in, below = (size_t)c->v.dilation * (size_t)c->h.in * c->in;
  const size_t stride = (size_t)c->h.stride * c->in, y_step = (size_t)c->out << nmp_y_wide(c);
  const int32_t taps = c->h.kernel, start = e->start[0];
  for (; windows > 0; windows--, x += stride, y += y_step) {
    const uint8_t *row = x;
    const uint32_t *at = w;
    int32_t sum = start;
    for (int32_t n = rows; n > 0; n--, row += below) {
      const uint8_t *from = row;
      for (int32_t t = taps; t > 0; t--, from += step) {
        sum += *(const int8_t *)from * (int32_t)*at++;
      }
    }
    end_narrow(c, e, 0, sum, 0, 0, 1, y, 0);
  }
}

/* A row of outputs, of which the rows [top, bottom) of the kernel see pixels. c's members are copied: what is written
 * could be they, for all that the compiler knows.
 */
DSP_INLINE void run_row(const nmp_conv *c, nmp_place at, int32_t top, int32_t bottom, const lanes *l, uint8_t *y,
                        size_t count) {
  const nmp_axis h = c->h;
  const size_t words = count == 4 ? 2 : 1, pixel = (size_t)c->in << nmp_x_wide(c), step = (size_t)h.dilation * pixel;
  const size_t below = (size_t)c->v.dilation * (size_t)h.in * pixel, y_step = (size_t)c->out << nmp_y_wide(c);
  const int32_t span = (h.kernel - 1) * h.dilation, rows = bottom - top;
  const int padded = c->pad != NULL, is_edge = top > 0 || bottom < c->v.kernel;
  const uint8_t *row = rows > 0 ? nmp_element(c, at, nmp_pixel(&c->v, at.y, top), 0, l->channel) : c->x;
  const uint32_t *weights = l->weights + (size_t)(top * h.kernel) * words;
  for (int32_t ix = nmp_pixel(&h, 0, 0); at.x < h.out; at.x++, ix += h.stride, y += y_step) {
    sums s = {.wide = {0, 0}};
    int32_t left = 0, right = h.kernel;
    if (count == 1 && rows > 0 && ix >= 0 && ix + span < h.in && !(padded && is_edge)) {
      const int32_t whole = (h.in - 1 - span - ix) / h.stride + 1, rest = h.out - at.x, n = whole < rest ? whole : rest;
      run_windows(c, &l->e, row + (size_t)ix * pixel, weights, rows, n, y);
      at.x += n - 1;
      ix += (n - 1) * h.stride;
      y += (size_t)(n - 1) * y_step;
      continue;
    }
    for (size_t i = 0; i < count && count != 2; i++) {
      s.narrow[i] = l->e.start[i];
    }
    if (ix < 0 || ix + span >= h.in) {
      nmp_clip(&h, at.x, &left, &right);
    }
    if (padded && (is_edge || right - left < h.kernel)) {
      add_padded(c, &s, at, l, count);
    } else if (right > left) {
      const uint8_t *x = row + (size_t)(ix + left * h.dilation) * pixel;
      const uint32_t *w = weights + (size_t)left * words;
      for (int32_t n = rows; n > 0; n--, x += below, w += (size_t)h.kernel * words) {
        add(&s, x, step, w, right - left, count);
      }
    }
    store(c, l, &s, y, count);
  }
}

typedef void row_fn(const nmp_conv *c, nmp_place at, int32_t top, int32_t bottom, const lanes *l, uint8_t *y);

static void row_of_one(const nmp_conv *c, nmp_place at, int32_t top, int32_t bottom, const lanes *l, uint8_t *y) {
  run_row(c, at, top, bottom, l, y, 1);
}

static void row_of_two(const nmp_conv *c, nmp_place at, int32_t top, int32_t bottom, const lanes *l, uint8_t *y) {
  run_row(c, at, top, bottom, l, y, 2);
}

static void row_of_four(const nmp_conv *c, nmp_place at, int32_t top, int32_t bottom, const lanes *l, uint8_t *y) {
  run_row(c, at, top, bottom, l, y, 4);
}

/* The last channels overlap those before where they are no multiple. */
static void dsp_taps_run(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t image = (size_t)c->v.in * (size_t)c->h.in * c->in;
  uint32_t *weights = (uint32_t *)(void *)((uint8_t *)c->scratch + NMP_DSP_TAPS_ROOM);
  lanes l = {.weights = weights};
  const size_t count = together(c);
  row_fn *const run = nmp_x_wide(c) ? row_of_two : count == 1 ? row_of_one : row_of_four;
  (void)task;
  (void)tasks;
  for (size_t channel = 0; channel < c->out; channel += count) {
    l.channel = channel + count <= c->out ? channel : c->out - count;
    load_weights(c, l.channel, weights);
    nmp_conv_dsp_prepare(c, l.channel, count, !nmp_x_wide(c), c->scratch, &l.e);
    uint8_t *y = output(c, 0, l.channel);
    for (nmp_place at = {.image = 0}; at.image < c->images * image; at.image += image) {
      for (at.y = 0; at.y < c->v.out; at.y++, y += (size_t)c->h.out * c->out << nmp_y_wide(c)) {
        int32_t top, bottom;
        nmp_clip(&c->v, at.y, &top, &bottom);
        run(c, at, top, bottom, &l, y);
      }
    }
  }
}

const nmp_conv_kernel *nmp_conv_dsp_taps(const nmp_conv *c) {
  static const nmp_conv_kernel taps = {.scratch = nmp_dsp_taps_scratch, .run = dsp_taps_run};
  return nmp_dsp_is_taps(c) ? &taps : NULL;
}

#endif
