/* Step 1 of conv_depthwise_neon.h, which includes this: rows of x in the ring. */

static void convert(uint8_t *restrict to, const void *from, size_t n, const nmp_conv *c, const plan *p) {
  if (p->mode == QUADS) {
    memcpy(to, from, n);
  } else if (c->x_wide) {
    memcpy(to, from, n * 2);
  } else {
    const int8_t *restrict x = from;
    int16_t *restrict wide = (int16_t *)(void *)to;
    for (size_t i = 0; i < n; i++) {
      wide[i] = x[i];
    }
  }
}

/* n pixels of x, each channel as often as the multiplier says. */
static void convert_pixels(uint8_t *to, const uint8_t *from, size_t n, const nmp_conv *c, const plan *p) {
  const size_t times = c->out / c->in;
  if (times == 1 && p->pitch == c->out) {
    convert(to, from, n * c->in, c, p);
    return;
  }
  for (size_t i = 0; i < n; i++, from += c->in << c->x_wide, to += p->pitch * p->bytes) {
    if (times == 1) {
      convert(to, from, c->in, c, p);
    }
    for (size_t channel = 0; channel < c->out && times > 1; channel++) {
      convert(to + channel * p->bytes, from + (channel / times << c->x_wide), 1, c, p);
    }
  }
}

/* One element of `size` bytes after the other, from `step` bytes apart. Constant sizes are copied in registers. */
#define COPY_EACH(COPY)                                      \
  for (size_t i = 0; i < n; i++, from += step, to += size) { \
    COPY;                                                    \
  }

static NMP_INLINE void copy_long(uint8_t *to, const uint8_t *from, size_t size) {
  for (size_t i = 0; i < size - 32; i += 32) {
    memcpy(to + i, from + i, 32);
  }
  memcpy(to + size - 32, from + size - 32, 32);
}

static void copy_every(uint8_t *to, const uint8_t *from, size_t n, size_t size, size_t step) {
  if (size == 8) {
    COPY_EACH(memcpy(to, from, 8))
  } else if (size == 16) {
    COPY_EACH(memcpy(to, from, 16))
  } else if (size >= 32) {
    COPY_EACH(copy_long(to, from, size))
  } else {
    COPY_EACH(memcpy(to, from, size))
  }
}

/* Row iy of the image at x, which may be outside, with its padding. */
static void fill_row(const nmp_conv *c, const plan *p, const parts *at, const uint8_t *x, int32_t iy, uint8_t *row) {
  const size_t pixel = p->pitch * p->bytes, before = (size_t)c->h.before;
  uint8_t *base = c->scratch, *line = p->phases > 1 ? base + at->row : row;
  size_t first = before < p->columns ? before : p->columns, last = first;
  if (nmp_inside(&c->v, iy)) {
    last = before + (size_t)c->h.in < p->columns ? before + (size_t)c->h.in : p->columns;
    last = last < first ? first : last;
    convert_pixels(line + first * pixel, x + ((size_t)iy * (size_t)c->h.in * c->in << c->x_wide), last - first, c, p);
  }
  copy_every(line, base, first, pixel, 0);
  copy_every(line + last * pixel, base, p->columns - last, pixel, 0);
  for (size_t r = 0; r < p->phases && p->phases > 1; r++) {
    const size_t n = r < p->columns ? (p->columns - r - 1) / p->phases + 1 : 0;
    copy_every(row + r * p->phase * p->bytes, line + r * pixel, n, pixel, p->phases * pixel);
  }
}
