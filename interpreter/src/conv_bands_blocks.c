/* Blocks of pixels times panels of weights, over a band. */
#include "conv_bands.h"

#ifdef NMP_BANDS

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

/* The pixels of y that a band computes; in the band, their windows are so many bytes from each other. */
typedef struct field {
  size_t lines, width, across, down;
  size_t pair;  /* lines of a block */
  size_t tiles; /* blocks beside each other */
} field;

static field field_of(const nmp_band *b, size_t lines) {
  const nmp_shape *s = b->s;
  const size_t element = b->p->element, in = b->c->in;
  const size_t most = b->p->blocks->most[b->c->out / b->c->groups > b->p->lanes];
  field f = {lines,
             (size_t)s->h.out,
             (size_t)(s->h.stride / s->h_hop) * in * element,
             (size_t)(s->v.stride / s->v_hop) * s->row * element,
             1,
             1};
  if (f.width == 1) {
    f.across = f.down;
  }
  if (f.down == f.width * f.across || f.width == 1) {
    f.width *= lines;
    f.lines = 1;
  }
  f.pair = f.width <= most ? 2 : 1;
  f.tiles = (f.width + 2 * most - 1) / (2 * most);
  return f;
}

/* The panels [first, last) of a group times some pixels, which begin at pixel[] of y. */
static void multiply_block(const nmp_band *b, nmp_block *block, const size_t *pixel, size_t per, size_t first,
                           size_t last, const uint8_t *panels, size_t ahead, uint8_t *y) {
  const nmp_conv *c = b->c;
  const size_t channels = c->out / c->groups, lanes = b->p->lanes;
  for (size_t k = first; k < last; k++) {
    const size_t channel = k * 2 * lanes, left = channels - channel;
    block->panel = (const nmp_panel *)(const void *)(panels + k * b->s->panel_bytes);
    block->channels = smaller(left, 2 * lanes);
    block->next = (uintptr_t)(block->panel + 1) + ahead;
    block->y[0] = y + ((pixel[0] * c->out + channel) << c->y_wide);
    block->y[1] = y + ((pixel[1] * c->out + channel) << c->y_wide);
    b->p->blocks->functions[left > lanes][per - 1](block);
  }
}

/* The same for all pixels: blocks are two lines where those are short, otherwise parts of a line. Meanwhile the panels
 * that come next are fetched, evenly.
 */
static void multiply_panels(const nmp_band *b, const field *f, nmp_block *block, const uint8_t *x, size_t first,
                            size_t last, const uint8_t *panels, uint8_t *y) {
  const size_t fewest = f->width / f->tiles, larger = f->width % f->tiles;
  size_t ahead = (last - first) * b->s->panel_bytes;
  for (size_t line = 0; line < f->lines; line += f->pair) {
    const size_t runs = smaller(f->pair, f->lines - line);
    for (size_t i = 0, from = 0, pixels; i < f->tiles; i++, from += pixels) {
      pixels = fewest + (i < larger);
      const size_t per = runs == 2 ? f->width : (pixels + 1) / 2, second = runs == 2 ? 0 : from + pixels - per;
      const size_t pixel[2] = {line * f->width + from, (line + runs - 1) * f->width + second};
      block->x[0] = x + line * f->down + from * f->across;
      block->x[1] = x + (line + runs - 1) * f->down + second * f->across;
      multiply_block(b, block, pixel, per, first, last, panels, ahead, y);
      ahead += block->next_step * block->segment_count * block->grains;
    }
  }
}

static void multiply_row(const nmp_band *b, nmp_block *block, const uint8_t *x, size_t first, size_t last,
                         const uint8_t *panels, uint8_t *y) {
  const nmp_conv *c = b->c;
  const size_t nr = 2 * (size_t)b->p->lanes;
  block->x[0] = x;
  block->y[0] = y + ((first * nr) << c->y_wide);
  block->panel = (const nmp_panel *)(const void *)(panels + first * b->s->panel_bytes);
  block->channels = smaller(c->out / c->groups, last * nr) - first * nr;
  b->p->blocks->row(block);
}

void nmp_blocks_multiply(const nmp_band *b, size_t first, size_t last, size_t lines, uint8_t *y) {
  const nmp_conv *c = b->c;
  const nmp_shape *s = b->s;
  const field f = field_of(b, lines);
  const uint8_t *packed = (const uint8_t *)c->packed;
  const size_t blocks = f.tiles * ((f.lines + f.pair - 1) / f.pair), single = f.lines * f.width == 1;
  const size_t at_once = single ? s->panels : NMP_BANDS_L1 / s->panel_bytes + 1;
  nmp_block block = {.x_step = f.across,
                     .y_step = (size_t)c->out << c->y_wide,
                     .segments = (const uint32_t *)(const void *)(packed + nmp_segments_at()),
                     .segment_count = s->segments,
                     .grains = s->grains,
                     .next_step = 2 * (size_t)b->p->lanes * b->p->grain / blocks,
                     .lo = c->lo,
                     .hi = c->hi,
                     .y_wide = c->y_wide};
  for (size_t panel = first, n; panel < last; panel += n) {
    const size_t group = panel / s->panels, begin = panel % s->panels;
    const uint8_t *x = b->bytes + group * (c->in / c->groups) * b->p->element;
    const uint8_t *panels = packed + nmp_panels_at(s) + group * s->group_bytes;
    uint8_t *to = y + ((group * (c->out / c->groups)) << c->y_wide);
    n = smaller(smaller(at_once, last - panel), s->panels - begin);
    if (single) {
      multiply_row(b, &block, x, begin, begin + n, panels, to);
    } else {
      multiply_panels(b, &f, &block, x, begin, begin + n, panels, to);
    }
  }
}
#endif
