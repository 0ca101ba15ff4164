/* Blocks of pixels times panels of weights, over a band. */
#include "conv/gemm/bands.h"

#ifdef NMP_BANDS

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

#define STRIP_BYTES 16384u /* of x and y, that stay in the cache from panel to panel */

/* The pixels of y that a band computes; in the band, their windows are so many bytes from each other. */
typedef struct field {
  size_t lines, width, across, down;
  size_t runs, most;     /* of a block, pixels of a run */
  size_t tiles;          /* blocks beside each other; none where a block is two lines */
  size_t pixels, larger; /* of a block; so many blocks have one more in each run */
} field;

static field field_of(const nmp_band *b, size_t lines) {
  const nmp_shape *s = b->s;
  const size_t element = b->p->element, in = b->c->in;
  field f = {.lines = lines,
             .width = (size_t)s->h.out,
             .across = (size_t)(s->h.stride / s->h_hop) * in * element,
             .down = (size_t)(s->v.stride / s->v_hop) * s->row * element,
             .runs = b->p->blocks->runs,
             .most = b->p->blocks->most[b->c->out / b->c->groups > b->p->lanes]};
  if (f.width == 1) {
    f.across = f.down;
  }
  if (f.width == 1 || f.down == f.width * f.across) {
    f.width *= lines;
    f.lines = 1;
  }
  const size_t all = f.runs * f.most, pixels = (f.width + f.runs - 1) / f.runs; /* of all first runs */
  f.tiles = f.runs == 2 && f.width <= f.most ? f.lines == 1 : (f.width + all - 1) / all;
  f.pixels = f.runs * (f.tiles > 1 ? pixels / f.tiles : pixels);
  f.larger = f.tiles > 1 ? pixels % f.tiles : 0;
  return f;
}

/* What all blocks of a call have in common. */
typedef struct call {
  const nmp_band *b;
  field f;
  size_t first, last; /* panels of a group */
  const uint8_t *x, *panels;
  uint8_t *y;
  size_t ahead; /* bytes from a panel to the weights to be fetched while it is used */
} call;

/* A place in the field: pixels of a line. */
typedef struct place {
  size_t line, pixel;
} place;

static const uint8_t *x_at(const call *m, place p) {
  return m->x + p.line * m->f.down + p.pixel * m->f.across;
}

static size_t y_at(const call *m, place p) {
  return ((p.line * m->f.width + p.pixel) * m->b->c->pitch) << m->b->c->y_wide;
}

/* `count` blocks, whose runs of `per` pixels are at two places in the first; some blocks by all panels at a time. */
static void multiply_strip(call *m, nmp_block *block, place run0, place run1, size_t per, size_t count) {
  const nmp_conv *c = m->b->c;
  const nmp_blocks *blocks = m->b->p->blocks;
  const size_t channels = c->out / c->groups, lanes = m->b->p->lanes;
  const size_t bytes = 2 * per * (block->x_step + block->y_step);
  size_t most = count;
  const uint8_t *x[2] = {x_at(m, run0), x_at(m, run1)};
  uint8_t *y[2] = {m->y + y_at(m, run0), m->y + y_at(m, run1)};
  while (most > 1 && most * bytes > STRIP_BYTES) {
    most = (most + 1) / 2;
  }
  for (size_t n; count > 0; count -= n) {
    n = block->count = smaller(count, most);
    for (size_t k = m->first; k < m->last; k++) {
      const size_t channel = k * 2 * lanes, left = channels - channel;
      block->panel = (const nmp_panel *)(const void *)(m->panels + k * m->b->s->panel_bytes);
      block->channels = smaller(left, 2 * lanes);
      block->next = (uintptr_t)(block->panel + 1) + m->ahead;
      for (size_t i = 0; i < 2; i++) {
        block->x[i] = x[i];
        block->y[i] = y[i] + (channel << c->y_wide);
      }
      blocks->functions[left > lanes][per - 1](block);
    }
    for (size_t i = 0; i < 2; i++) {
      x[i] += n * block->x_hop;
      y[i] += n * block->y_hop;
    }
    m->ahead += n * block->next_step * block->segment_count * block->grains;
  }
}

/* `count` blocks of as many pixels each, beside each other. */
static void multiply_part(call *m, nmp_block *block, place at, size_t pixels, size_t count) {
  const size_t per = (pixels + m->f.runs - 1) / m->f.runs;
  block->x_hop = pixels * block->x_step;
  block->y_hop = pixels * block->y_step;
  multiply_strip(m, block, at, (place){at.line, at.pixel + pixels - per}, per, count);
}

/* Blocks of two runs have an even number of pixels, since those are equally long; the last one may lack one. */
static void multiply_line(call *m, nmp_block *block, size_t line) {
  const size_t tiles = m->f.tiles ? m->f.tiles : 1, pixels = m->f.pixels, larger = m->f.larger;
  const size_t runs = m->f.runs, odd = m->f.width % runs;
  if (larger > 0) {
    multiply_part(m, block, (place){line, 0}, pixels + runs, larger);
  }
  multiply_part(m, block, (place){line, larger * (pixels + runs)}, pixels, tiles - larger - odd);
  if (odd) {
    multiply_part(m, block, (place){line, m->f.width - (pixels - 1)}, pixels - 1, 1);
  }
}

/* All pixels by some panels: blocks are two lines where those are short, otherwise parts of a line. Meanwhile the
 * panels that come next are fetched, evenly.
 */
static void multiply_panels(call *m, nmp_block *block) {
  const field *f = &m->f;
  const size_t pairs = f->tiles ? 0 : f->lines / 2, blocks = f->tiles ? f->tiles * f->lines : (f->lines + 1) / 2;
  m->ahead = (m->last - m->first) * m->b->s->panel_bytes;
  block->next_step = 2 * (size_t)m->b->p->lanes * m->b->p->grain / blocks;
  if (pairs > 0) {
    block->x_hop = 2 * f->down;
    block->y_hop = 2 * f->width * block->y_step;
    multiply_strip(m, block, (place){0, 0}, (place){1, 0}, f->width, pairs);
  }
  for (size_t line = 2 * pairs; line < f->lines; line++) {
    multiply_line(m, block, line);
  }
}

void nmp_blocks_multiply(const nmp_band *b, size_t first, size_t last, size_t lines, uint8_t *y) {
  const nmp_conv *c = b->c;
  const nmp_shape *s = b->s;
  const uint8_t *packed = (const uint8_t *)c->packed;
  call m = {.b = b, .f = field_of(b, lines)};
  const size_t at_once = NMP_BANDS_L1 / s->panel_bytes + 1;
  nmp_block block = {.x_step = m.f.across,
                     .y_step = (size_t)c->pitch << c->y_wide,
                     .plane = b->plane,
                     .segments = (const uint32_t *)(const void *)(packed + nmp_segments_at()),
                     .segment_count = s->segments,
                     .grains = s->grains,
                     .lo = c->lo,
                     .hi = c->hi,
                     .y_wide = c->y_wide};
  for (size_t panel = first, n; panel < last; panel += n) {
    const size_t group = c->groups > 1 ? panel / s->panels : 0;
    m.first = panel - group * s->panels;
    n = smaller(smaller(at_once, last - panel), s->panels - m.first);
    m.last = m.first + n;
    m.x = b->bytes + group * (c->in / c->groups) * b->p->element;
    m.panels = packed + nmp_panels_at(s) + group * s->group_bytes;
    m.y = y + ((group * (c->out / c->groups)) << c->y_wide);
    multiply_panels(&m, &block);
  }
}
#endif
