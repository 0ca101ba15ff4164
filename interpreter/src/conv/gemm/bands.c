#include "conv/gemm/bands.h"

#include "conv/gemm/join.h"

#ifdef NMP_BANDS
#include <string.h>

#define SHORT_ROW 256      /* bytes of a band's row; to zero them all is faster than each row's ends */
#define SLACK 64           /* bytes behind a band that a grain may reach */
#define BAND_BYTES 131072u /* of a band, when the weights are as many */
#define TASK_MACS 131072u  /* less is not worth a task */

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t band_rows(const nmp_shape *s, size_t lines) {
  return ((lines - 1) * (size_t)s->v.stride + (size_t)((s->v.kernel - 1) * s->v.dilation)) / (size_t)s->v_hop + 1;
}

static size_t plane_bytes(const nmp_shape *s, const nmp_product *p, size_t lines) {
  return nmp_bands_align(band_rows(s, lines) * s->row * p->element + SLACK);
}

/* Lines of a band: as many bytes as the weights have, since each band reads them all. */
static size_t band_lines(const nmp_conv *c, const nmp_product *p, const nmp_shape *s) {
  const size_t weights = c->groups * s->group_bytes, lines = (size_t)s->v.out;
  const size_t bytes = weights < NMP_BANDS_L1 ? NMP_BANDS_L1 : weights < BAND_BYTES ? weights : BAND_BYTES;
  const size_t one = plane_bytes(s, p, 1) * p->planes;
  const size_t each = (size_t)(s->v.stride / s->v_hop) * s->row * p->element * p->planes;
  const size_t most = bytes > one ? 1 + (bytes - one) / each : 1;
  const size_t bands = (lines + most - 1) / most;
  return (lines + bands - 1) / bands;
}

/* Pixels of x that no window sees are left out of the band where there is much to leave out. */
static int32_t hop(const nmp_axis *axis, size_t bytes) {
  return axis->kernel == 1 && bytes >= 128 ? axis->stride : 1;
}

static nmp_shape shape_of(const nmp_conv *c, const nmp_product *p) {
  nmp_shape s;
  memset(&s, 0, sizeof(s));
  s.v = c->v;
  s.h = c->h;
  s.images = c->images;
  if (nmp_conv_is_direct(c)) {
    const int32_t pixels = (int32_t)nmp_conv_pixels(c);
    s.v = (nmp_axis){pixels, pixels, 1, 1, 1, 0, 0};
    s.h = (nmp_axis){1, 1, 1, 1, 1, 0, 0};
    s.images = 1;
  }
  s.h_hop = hop(&s.h, c->in * p->element);
  s.width = (size_t)(((s.h.out - 1) * s.h.stride + (s.h.kernel - 1) * s.h.dilation) / s.h_hop + 1);
  s.row = s.width * c->in;
  s.v_hop = hop(&s.v, s.row * p->element);
  s.whole = s.h_hop == 1 && s.v_hop == 1 && s.h.before == 0 && s.width == (size_t)s.h.in;
  s.segments = (size_t)s.v.kernel;
  s.per_segment = (size_t)s.h.kernel * c->in;
  if (c->groups > 1 || s.h.dilation > 1) {
    s.segments *= (size_t)s.h.kernel;
    s.per_segment = c->in / c->groups;
  }
  s.grains = (s.per_segment * p->element + p->grain - 1) / p->grain;
  const size_t channels = c->out / c->groups, grains = s.segments * s.grains;
  const size_t vector = p->lanes * (nmp_is_joined(p) ? nmp_join_lane(grains) : grains * p->grain);
  const size_t vectors = (channels + p->lanes - 1) / p->lanes;
  s.panels = (vectors + 1) / 2;
  s.panel_bytes = sizeof(nmp_panel) + 2 * vector;
  s.group_bytes = s.panels * sizeof(nmp_panel) + vectors * vector;
  s.lines = band_lines(c, p, &s);
  s.plane = plane_bytes(&s, p, s.lines);
  return s;
}

size_t nmp_bands_packed(const nmp_conv *c, const nmp_product *p) {
  const nmp_shape s = shape_of(c, p);
  return nmp_panels_at(&s) + c->groups * s.group_bytes;
}

size_t nmp_bands_scratch(const nmp_conv *c, const nmp_product *p) {
  const nmp_shape s = shape_of(c, p);
  return s.plane * p->planes;
}

#define SOME 128 /* weights whose sums fit: those of int8 into 16 bits, those of int16 into 32 */

static void sum_narrow(const int8_t *weights, size_t n, int64_t *sum, int64_t *most) {
  int16_t some = 0, some_most = 0;
  for (size_t i = 0; i < n; i++) {
    const int16_t w = weights[i], minus = (int16_t)-w;
    some = (int16_t)(some + w);
    some_most = (int16_t)(some_most + (w < minus ? minus : w));
  }
  *sum += some;
  *most += some_most;
}

static void sum_wide(const int16_t *weights, size_t n, int64_t *sum, int64_t *most) {
  int32_t some = 0, some_most = 0;
  for (size_t i = 0; i < n; i++) {
    const int32_t w = weights[i];
    some += w;
    some_most += w < 0 ? -w : w;
  }
  *sum += some;
  *most += some_most;
}

/* The sum of a channel's weights and that of their magnitudes. */
static void sum_weights(const nmp_conv *c, size_t channel, int64_t *sum, int64_t *most) {
  *sum = *most = 0;
  for (size_t i = channel * c->k, end = i + c->k, n; i < end; i += n) {
    n = smaller(end - i, SOME);
    if (c->w_wide) {
      sum_wide((const int16_t *)c->w + i, n, sum, most);
    } else {
      sum_narrow((const int8_t *)c->w + i, n, sum, most);
    }
  }
}

/* A channel without weights has its bias for a sum, whatever its shift is. */
int nmp_bands_prove(const nmp_conv *c, const nmp_product *p, size_t channel, int32_t *start, int32_t *shift) {
  const int split = p->planes == 2;
  int64_t sum, most;
  sum_weights(c, channel, &sum, &most);
  const int by = most > 0 ? nmp_conv_shift(c, channel) - 8 * split : split;
  if (by < split || by > 30) {
    return 0;
  }
  const int64_t half = by > 0 ? (int64_t)1 << (by - 1) : 0;
  const int64_t first = nmp_conv_bias(c, channel) * ((int64_t)1 << by) + half;
  const int64_t x_most = c->x_wide && !split ? 32768 : 128;
  *start = (int32_t)(uint32_t)(uint64_t)(p->zero ? first - 128 * sum : first); /* bytes of x are 128 too large */
  *shift = by;
  return (first < 0 ? -first : first) + most * x_most + (split ? most / 2 + 1 : 0) <= INT32_MAX;
}

/* Whether one of n weights is among `least` to `most`. */
static int has_weight(const nmp_conv *c, size_t first, size_t n, int32_t least, int32_t most) {
  int found = 0;
  for (size_t i = first; i < first + n; i++) {
    const int32_t w = c->w_wide ? ((const int16_t *)c->w)[i] : ((const int8_t *)c->w)[i];
    found |= w >= least && w <= most;
  }
  return found;
}

static void start_channels(const nmp_conv *c, const nmp_product *p, size_t first, size_t channels, nmp_panel *panel) {
  memset(panel, 0, sizeof(*panel));
  if (p->extremes) {
    panel->lowest = has_weight(c, first * c->k, channels * c->k, INT16_MIN, c->w_wide ? INT16_MIN : INT8_MIN);
    panel->highest = c->w_wide && has_weight(c, first * c->k, channels * c->k, 127 * 256 + 128, INT16_MAX);
  }
  panel->proven = 1;
  for (size_t i = 0; i < channels; i++) {
    panel->bias[i] = nmp_conv_bias(c, first + i);
    panel->scale_shift[i] = (int8_t)nmp_conv_shift(c, first + i);
    panel->proven = panel->proven && nmp_bands_prove(c, p, first + i, &panel->start[i], &panel->shift[i]);
  }
  for (size_t i = 0; i < channels && !panel->proven; i++) {
    int64_t sum, most;
    sum_weights(c, first + i, &sum, &most);
    panel->start[i] = p->zero ? (int32_t)(-128 * sum) : c->x_wide && c->w_wide ? (int32_t)sum : 0;
    panel->shift[i] = panel->scale_shift[i];
  }
}

static void widen(int16_t *to, const int8_t *from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    to[i] = from[i];
  }
}

/* n weights of a channel from number `at` on, as grains that are `step` bytes apart. */
static void pack_grains(const nmp_conv *c, const nmp_product *p, size_t at, size_t n, uint8_t *to, size_t step) {
  int16_t wide[SOME];
  const uint8_t *w = (const uint8_t *)c->w + (at << c->w_wide);
  size_t bytes = n * p->element;
  if (p->element == 2 && !c->w_wide) {
    widen(wide, (const int8_t *)w, n);
    w = (const uint8_t *)wide;
  }
  for (; bytes >= 4 && p->grain == 4; bytes -= 4, w += 4, to += step) {
    memcpy(to, w, 4);
  }
  for (; bytes >= p->grain; bytes -= p->grain, w += p->grain, to += step) {
    memcpy(to, w, p->grain);
  }
  memcpy(to, w, bytes);
}

/* Some grains of all channels at a time, so that what is written stays in the cache. */
void nmp_bands_pack_segment(const nmp_conv *c, const nmp_product *p, const nmp_shape *s, size_t at, size_t channels,
                            uint8_t *to, size_t step) {
  for (size_t i = 0; i < s->per_segment; i += SOME) {
    for (size_t lane = 0; lane < channels; lane++) {
      pack_grains(c, p, at + lane * c->k + i, smaller(SOME, s->per_segment - i),
                  to + i * p->element / p->grain * step + lane * p->grain, step);
    }
  }
}

static void pack_panel(const nmp_conv *c, const nmp_product *p, const nmp_shape *s, size_t first, size_t channels,
                       size_t vectors, nmp_panel *panel) {
  uint8_t *to = (uint8_t *)(panel + 1);
  const size_t step = vectors * p->lanes * p->grain;
  if (nmp_is_joined(p)) {
    memset(panel, 0, sizeof(*panel));
    nmp_join_pack(c, first, channels, vectors * p->lanes, panel);
    return;
  }
  start_channels(c, p, first, channels, panel);
  if (channels < vectors * p->lanes || s->per_segment * p->element % p->grain != 0) {
    memset(to, 0, s->segments * s->grains * step);
  }
  for (size_t segment = 0; segment < s->segments; segment++, to += s->grains * step) {
    nmp_bands_pack_segment(c, p, s, first * c->k + segment * s->per_segment, channels, to, step);
  }
}

void nmp_bands_pack(const nmp_conv *c, const nmp_product *p, void *to) {
  nmp_shape s = shape_of(c, p);
  const size_t channels = c->out / c->groups, nr = 2 * (size_t)p->lanes;
  uint32_t *segments = (uint32_t *)(void *)((uint8_t *)to + nmp_segments_at());
  uint8_t *panels = (uint8_t *)to + nmp_panels_at(&s);
  for (size_t i = 0; i < s.segments; i++) {
    const size_t taps = s.segments / (size_t)s.v.kernel, ky = i / taps, kx = i % taps;
    segments[i] = (uint32_t)((ky * (size_t)s.v.dilation * s.row + kx * (size_t)s.h.dilation * c->in) * p->element);
  }
  s.single = p->single != NULL && nmp_conv_is_direct(c) && nmp_conv_pixels(c) == 1 && nmp_single_pack(c, p, &s, panels);
  s.proven = p->blocks != NULL && s.grains > (p->planes == 2 ? 2 : 0); /* short segments have no time for addresses */
  for (size_t group = 0; group < c->groups && !s.single; group++) {
    for (size_t panel = 0; panel < s.panels; panel++) {
      const size_t n = smaller(nr, channels - panel * nr), vectors = n > p->lanes ? 2 : 1;
      nmp_panel *at = (nmp_panel *)(void *)(panels + group * s.group_bytes + panel * s.panel_bytes);
      pack_panel(c, p, &s, group * channels + panel * nr, n, vectors, at);
      s.proven = s.proven && at->proven;
    }
  }
  memcpy(to, &s, sizeof(s));
}

size_t nmp_bands_tasks(const nmp_conv *c, size_t threads) {
  const uint64_t tasks = (uint64_t)nmp_conv_pixels(c) * c->out * c->k / TASK_MACS;
  return tasks < 1 ? 1 : tasks < threads ? (size_t)tasks : threads;
}

static void load(const nmp_band *b, size_t element, const void *x, size_t n) {
  b->p->load(b->bytes + element * b->p->element, x, n, b->plane);
}

static void load_padding(const nmp_band *b, size_t element, size_t pixels) {
  const size_t in = b->c->in, bytes = b->p->element;
  if (b->zeroed) {
    return;
  }
  for (size_t i = 0; i < pixels && b->c->pad; i++) {
    load(b, element + i * in, b->c->pad, in);
  }
  if (nmp_is_joined(b->p) && !b->c->pad) {
    nmp_join_zeros(b->bytes + element * bytes, pixels * in);
    return;
  }
  for (size_t plane = 0; plane < b->p->planes && !b->c->pad && pixels > 0; plane++) {
    memset(b->bytes + plane * b->plane + element * bytes, b->p->zero, pixels * in * bytes);
  }
}

/* One row of the band from row iy of x. */
static void load_row(const nmp_band *b, size_t element, const uint8_t *x) {
  const nmp_shape *s = b->s;
  const size_t in = b->c->in, before = smaller((size_t)s->h.before, s->width);
  if (s->h_hop == 1) {
    const size_t inside = smaller((size_t)s->h.in, s->width - before);
    load_padding(b, element, before);
    load(b, element + before * in, x, inside * in);
    load_padding(b, element + (before + inside) * in, s->width - before - inside);
    return;
  }
  for (int32_t i = 0; i < (int32_t)s->width; i++, element += in) {
    const int32_t ix = i * s->h_hop - s->h.before;
    if (nmp_inside(&s->h, ix)) {
      load(b, element, x + (((size_t)ix * in) << b->c->x_wide), in);
    } else {
      load_padding(b, element, 1);
    }
  }
}

static void end_band(const nmp_band *b, size_t elements) {
  for (size_t plane = 0; plane < b->p->planes; plane++) {
    memset(b->bytes + plane * b->plane + elements * b->p->element, 0, SLACK);
  }
}

static void load_band(nmp_band *b, size_t image, size_t line, size_t lines) {
  const nmp_shape *s = b->s;
  const size_t x_row = ((size_t)s->h.in * b->c->in) << b->c->x_wide, rows = band_rows(s, lines);
  const uint8_t *x = (const uint8_t *)b->c->x + image * (size_t)s->v.in * x_row;
  const int32_t top = (int32_t)line * s->v.stride - s->v.before;
  const size_t bytes = s->row * b->p->element;
  b->zeroed = !s->whole && !b->c->pad && !nmp_is_joined(b->p) && bytes <= SHORT_ROW;
  for (size_t plane = 0; plane < b->p->planes && b->zeroed; plane++) {
    memset(b->bytes + plane * b->plane, b->p->zero, rows * bytes);
  }
  for (size_t r = 0, n; r < rows; r += n) {
    const int32_t iy = top + (int32_t)r * s->v_hop;
    n = 1;
    if (!nmp_inside(&s->v, iy)) {
      load_padding(b, r * s->row, s->width);
    } else if (s->whole) {
      n = smaller(rows - r, (size_t)(s->v.in - iy));
      load(b, r * s->row, x + (size_t)iy * x_row, n * s->row);
    } else {
      load_row(b, r * s->row, x + (size_t)iy * x_row);
    }
  }
  end_band(b, rows * s->row);
}

/* The addresses of `rows` output pixels from number `pixel` of the band on. */
static void point(const nmp_band *b, size_t pixel, size_t rows, size_t group, const uint8_t **to) {
  const nmp_shape *s = b->s;
  const size_t width = (size_t)s->h.out, element = b->p->element;
  const size_t across = (size_t)(s->h.stride / s->h_hop) * b->c->in * element;
  const size_t down = (size_t)(s->v.stride / s->v_hop) * s->row * element;
  const uint8_t *at = b->bytes + group * (b->c->in / b->c->groups) * element;
  size_t x = pixel % width, line = pixel / width;
  for (size_t r = 0; r < rows; line++, x = 0) {
    for (const size_t end = smaller(rows, r + width - x); r < end; r++, x++) {
      to[r] = at + line * down + x * across;
    }
  }
}

static void multiply_tile(const nmp_band *b, nmp_tile *t, const uint8_t *const *x, size_t rows, size_t channels,
                          uint8_t *y) {
  const nmp_way *way = &b->p->ways[t->panel->proven];
  const size_t vectors = channels > b->p->lanes ? 2 : 1;
  for (size_t r = 0, n; r < rows; r += n) {
    n = smaller(rows - r, way->rows);
    t->x = x + r;
    way->tiles[vectors - 1][n - 1](t);
    way->finish(b->c, t, n, vectors * b->p->lanes, channels, y + (r * b->c->pitch << b->c->y_wide));
  }
}

/* Panels [first, last) of all groups times the pixels of a band. A few panels stay in the cache from tile to tile. */
static void multiply(const nmp_band *b, const uint8_t *packed, size_t first, size_t last, size_t pixels, uint8_t *y) {
  const nmp_conv *c = b->c;
  const nmp_shape *s = b->s;
  const size_t channels = c->out / c->groups, nr = 2 * (size_t)b->p->lanes;
  const size_t at_once = NMP_BANDS_L1 / s->panel_bytes + 1, most = b->p->ways[1].rows;
  const size_t tiles = (pixels + most - 1) / most;
  const uint8_t *x[NMP_ROWS_MAX];
  nmp_tile t;
  t.plane = b->plane;
  t.segments = (const uint32_t *)(const void *)(packed + nmp_segments_at());
  t.segment_count = s->segments;
  t.grains = s->grains;
  packed += nmp_panels_at(s);
  for (size_t panel = first, n; panel < last; panel += n) {
    const size_t group = panel / s->panels;
    n = smaller(smaller(at_once, last - panel), (group + 1) * s->panels - panel);
    for (size_t i = 0; i < tiles; i++) {
      const size_t pixel = pixels * i / tiles, rows = pixels * (i + 1) / tiles - pixel;
      point(b, pixel, rows, group, x);
      for (size_t k = panel % s->panels; k < panel % s->panels + n; k++) {
        t.panel = (const nmp_panel *)(const void *)(packed + group * s->group_bytes + k * s->panel_bytes);
        multiply_tile(b, &t, x, rows, smaller(nr, channels - k * nr),
                      y + ((pixel * c->pitch + group * channels + k * nr) << c->y_wide));
      }
    }
  }
}

void nmp_bands_finish_any(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  for (size_t r = 0; r < rows; r++) {
    c->kernels->scale[0][c->y_wide]((uint8_t *)y + (r * c->pitch << c->y_wide), 0, t->sums + r * lanes, 1, n,
                                    t->panel->bias, t->panel->scale_shift, c->lo, c->hi);
  }
}

/* Panels [first, last) times lines [line, end), of which the first one goes to y. */
static void multiply_lines(nmp_band *b, size_t first, size_t last, size_t line, size_t end, uint8_t *y) {
  const nmp_conv *c = b->c;
  const nmp_shape *s = b->s;
  const size_t lines = (size_t)s->v.out, bytes = ((size_t)s->h.out * c->pitch) << c->y_wide;
  for (size_t n; line < end && first < last; line += n, y += n * bytes) {
    const size_t image = s->images > 1 ? line / lines : 0;
    n = smaller(smaller(s->lines, end - line), (image + 1) * lines - line);
    load_band(b, image, line - image * lines, n);
    if (s->proven) {
      nmp_blocks_multiply(b, first, last, n, y);
    } else {
      multiply(b, c->packed, first, last, n * (size_t)s->h.out, y);
    }
  }
}

/* Tasks share the panels where they are the larger part, otherwise the lines. */
void nmp_bands_run(const nmp_conv *c, const nmp_product *p, size_t task, size_t tasks) {
  const nmp_shape *s = (const nmp_shape *)c->packed;
  if (s->single) {
    nmp_single_run(c, p, task, tasks);
    return;
  }
  const size_t all = s->images * (size_t)s->v.out, panels = c->groups * s->panels;
  nmp_band b = {c, p, s, (uint8_t *)c->scratch, s->plane, 0};
  if (c->groups * s->group_bytes > all * s->row || all < tasks) {
    multiply_lines(&b, nmp_bands_share(panels, task, tasks), nmp_bands_share(panels, task + 1, tasks), 0, all,
                   (uint8_t *)c->y);
    return;
  }
  const size_t line = nmp_bands_share(all, task, tasks);
  multiply_lines(&b, 0, panels, line, nmp_bands_share(all, task + 1, tasks),
                 (uint8_t *)c->y + ((line * (size_t)s->h.out * c->pitch) << c->y_wide));
}

void nmp_bands_rows(const nmp_conv *c, const nmp_product *p, size_t first, size_t last) {
  const nmp_shape *s = (const nmp_shape *)c->packed;
  if (s->single) {
    nmp_single_run(c, p, 0, 1);
    return;
  }
  const size_t lines = nmp_conv_is_direct(c) ? (size_t)c->h.out : 1; /* of a row */
  nmp_band b = {c, p, s, (uint8_t *)c->scratch, s->plane, 0};
  multiply_lines(&b, 0, c->groups * s->panels, first * lines, last * lines, (uint8_t *)c->y);
}
#endif
