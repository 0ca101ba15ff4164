/* Blocks: sums stay in registers from the first product to the stored byte. */
#include "conv/gemm/run.h"

#ifdef NMP_HAS_GEMM

#define STRETCH_BYTES 16384u /* of x and y, that stay in the cache from panel to panel */

static const nmp_gemm_blocks *blocks_of(const nmp_padded *padded) {
  return padded->s->exact ? padded->p->exact : padded->p->blocks;
}

/* Blocks that the output pixels of some lines are cut into. The windows of two pixels beside each other, and of two
 * below each other, are so many bytes apart in the padded rows.
 */
typedef struct block_grid {
  size_t lines, width, across, down;
  size_t runs, most;     /* of a block, pixels of a run */
  size_t blocks;         /* beside each other; none where a block is two lines */
  size_t pixels, larger; /* of a block; so many blocks have one more in each run */
} block_grid;

static block_grid block_grid_of(const nmp_padded *padded, size_t lines) {
  const nmp_conv *c = padded->c;
  const nmp_gemm_blocks *blocks = blocks_of(padded);
  block_grid g = {.lines = lines,
                  .width = (size_t)padded->s->h.out,
                  .across = nmp_padded_across(padded),
                  .down = nmp_padded_down(padded),
                  .runs = blocks->runs,
                  .most = blocks->most[c->out / c->groups > padded->p->lanes]};
  if (g.width == 1) {
    g.across = g.down;
  }
  if (g.width == 1 || g.down == g.width * g.across) {
    g.width *= lines;
    g.lines = 1;
  }
  const size_t all = g.runs * g.most, pixels = (g.width + g.runs - 1) / g.runs; /* of all first runs */
  g.blocks = g.runs == 2 && g.width <= g.most ? g.lines == 1 : (g.width + all - 1) / all;
  g.pixels = g.runs * (g.blocks > 1 ? pixels / g.blocks : pixels);
  g.larger = g.blocks > 1 ? pixels % g.blocks : 0;
  return g;
}

/* Facts that all blocks of a call have in common. */
typedef struct block_call {
  const nmp_padded *padded;
  block_grid grid;
  size_t first, last; /* panels of a group */
  const uint8_t *x, *panels;
  uint8_t *y;
  size_t ahead; /* bytes from a panel to the weights to be fetched while it is used */
} block_call;

/* A pixel of a line. */
typedef struct block_place {
  size_t line, pixel;
} block_place;

static const uint8_t *block_x(const block_call *m, block_place p) {
  return m->x + p.line * m->grid.down + p.pixel * m->grid.across;
}

static uint8_t *block_y(const block_call *m, block_place p) {
  return m->y + (((p.line * m->grid.width + p.pixel) * m->padded->c->pitch) << m->padded->c->y_wide);
}

/* A panel, or as many as the blocks take at once, by blocks of runs of `per` pixels. Returns the panel behind. */
static size_t block_panel(const block_call *m, nmp_gemm_block *block, const uint8_t *const *x, uint8_t *const *y,
                          size_t per, size_t k) {
  const nmp_conv *c = m->padded->c;
  const nmp_gemm_blocks *blocks = blocks_of(m->padded);
  const size_t lanes = m->padded->p->lanes, channel = k * 2 * lanes, left = c->out / c->groups - channel;
  block->panel = (const nmp_gemm_panel *)(const void *)(m->panels + k * m->padded->s->panel_bytes);
  block->panels = blocks->panels && left >= 2 * lanes ? nmp_min(m->last - k, left / (2 * lanes)) : 1;
  block->channels = nmp_min(left, 2 * lanes);
  block->next = (uintptr_t)(block->panel + 1) + m->ahead;
  for (size_t i = 0; i < 2; i++) {
    block->x[i] = x[i];
    block->y[i] = y[i] + (channel << c->y_wide);
  }
  blocks->functions[left > lanes][per - 1](block);
  return k + block->panels;
}

/* `count` blocks, whose runs of `per` pixels are at two places in the first; some blocks by all panels at a time. */
static void block_stretch(block_call *m, nmp_gemm_block *block, block_place run0, block_place run1, size_t per,
                          size_t count) {
  const size_t bytes = 2 * per * (block->x_step + block->y_step);
  size_t most = count;
  const uint8_t *x[2] = {block_x(m, run0), block_x(m, run1)};
  uint8_t *y[2] = {block_y(m, run0), block_y(m, run1)};
  while (most > 1 && most * bytes > STRETCH_BYTES) {
    most = (most + 1) / 2;
  }
  for (size_t n; count > 0; count -= n) {
    n = block->count = nmp_min(count, most);
    for (size_t k = m->first; k < m->last;) {
      k = block_panel(m, block, x, y, per, k);
    }
    for (size_t i = 0; i < 2; i++) {
      x[i] += n * block->x_hop;
      y[i] += n * block->y_hop;
    }
    m->ahead += n * block->next_step * block->segment_count * block->k_groups;
  }
}

/* `count` blocks of as many pixels each, beside each other. */
static void block_beside(block_call *m, nmp_gemm_block *block, block_place at, size_t pixels, size_t count) {
  const size_t per = (pixels + m->grid.runs - 1) / m->grid.runs;
  block->x_hop = pixels * block->x_step;
  block->y_hop = pixels * block->y_step;
  block_stretch(m, block, at, (block_place){at.line, at.pixel + pixels - per}, per, count);
}

/* Blocks of two runs have an even number of pixels, since those are equally long; the last one may lack one. */
static void block_line(block_call *m, nmp_gemm_block *block, size_t line) {
  const size_t blocks = m->grid.blocks ? m->grid.blocks : 1, pixels = m->grid.pixels, larger = m->grid.larger;
  const size_t runs = m->grid.runs, odd = m->grid.width % runs;
  if (larger > 0) {
    block_beside(m, block, (block_place){line, 0}, pixels + runs, larger);
  }
  block_beside(m, block, (block_place){line, larger * (pixels + runs)}, pixels, blocks - larger - odd);
  if (odd) {
    block_beside(m, block, (block_place){line, m->grid.width - (pixels - 1)}, pixels - 1, 1);
  }
}

/* All pixels by some panels: blocks are two lines where those are short, otherwise parts of a line. Meanwhile the
 * panels that come next are fetched, evenly.
 */
static void block_panels(block_call *m, nmp_gemm_block *block) {
  const block_grid *g = &m->grid;
  const size_t pairs = g->blocks ? 0 : g->lines / 2, blocks = g->blocks ? g->blocks * g->lines : (g->lines + 1) / 2;
  m->ahead = (m->last - m->first) * m->padded->s->panel_bytes;
  block->next_step = 2 * (size_t)m->padded->p->lanes * m->padded->p->k_group / blocks;
  if (pairs > 0) {
    block->x_hop = 2 * g->down;
    block->y_hop = 2 * g->width * block->y_step;
    block_stretch(m, block, (block_place){0, 0}, (block_place){1, 0}, g->width, pairs);
  }
  for (size_t line = 2 * pairs; line < g->lines; line++) {
    block_line(m, block, line);
  }
}

void nmp_gemm_run_blocks(const nmp_padded *padded, size_t first, size_t last, size_t lines, uint8_t *y) {
  const nmp_conv *c = padded->c;
  const nmp_gemm_shape *s = padded->s;
  const uint8_t *packed = (const uint8_t *)c->packed;
  block_call m = {.padded = padded, .grid = block_grid_of(padded, lines)};
  const size_t at_once = NMP_GEMM_L1 / s->panel_bytes + 1;
  nmp_gemm_block block = {.x_step = m.grid.across,
                          .y_step = (size_t)c->pitch << c->y_wide,
                          .plane = padded->plane,
                          .panel_hop = s->panel_bytes,
                          .segments = (const uint32_t *)(const void *)(packed + nmp_gemm_segments_at()),
                          .segment_count = s->segments,
                          .k_groups = s->k_groups,
                          .lo = c->lo,
                          .hi = c->hi,
                          .y_wide = c->y_wide};
  for (size_t panel = first, n; panel < last; panel += n) {
    const size_t group = c->groups > 1 ? panel / s->panels : 0;
    m.first = panel - group * s->panels;
    n = nmp_min(nmp_min(at_once, last - panel), s->panels - m.first);
    m.last = m.first + n;
    m.x = nmp_padded_group(padded, group);
    m.panels = packed + nmp_gemm_panels_at(s) + group * s->group_bytes;
    m.y = y + ((group * (c->out / c->groups)) << c->y_wide);
    block_panels(&m, &block);
  }
}
#endif
