/* Tiles: the sums go through memory between the products and the epilogue. */
#include "conv/gemm/run.h"

#ifdef NMP_HAS_GEMM

/* The addresses of `pixels` output pixels from number `first` of the padded rows' on. */
static void tile_addresses(const nmp_padded *padded, size_t first, size_t pixels, size_t group, const uint8_t **to) {
  const size_t width = (size_t)padded->s->h.out, across = nmp_padded_across(padded), down = nmp_padded_down(padded);
  const uint8_t *at = nmp_padded_group(padded, group);
  size_t x = first % width, line = first / width;
  for (size_t r = 0; r < pixels; line++, x = 0) {
    for (const size_t end = nmp_min(pixels, r + width - x); r < end; r++, x++) {
      to[r] = at + line * down + x * across;
    }
  }
}

static void tile_run(const nmp_padded *padded, nmp_gemm_tile *t, const uint8_t *const *x, size_t pixels,
                     size_t channels, uint8_t *y) {
  const nmp_conv *c = padded->c;
  const nmp_gemm_tiles *tiles = &padded->p->tiles[t->panel->fits_int32];
  const size_t vectors = channels > padded->p->lanes ? 2 : 1;
  for (size_t r = 0, n; r < pixels; r += n) {
    n = nmp_min(pixels - r, tiles->pixels);
    t->x = x + r;
    tiles->functions[vectors - 1][n - 1](t);
    tiles->epilogue(c, t, n, vectors * padded->p->lanes, channels, y + (r * c->pitch << c->y_wide));
  }
}

/* A few panels stay in the cache from tile to tile. */
void nmp_gemm_run_tiles(const nmp_padded *padded, size_t first, size_t last, size_t lines, uint8_t *y) {
  const nmp_conv *c = padded->c;
  const nmp_gemm_shape *s = padded->s;
  const uint8_t *packed = c->packed, *panels = packed + nmp_gemm_panels_at(s);
  const size_t channels = c->out / c->groups, most = 2 * (size_t)padded->p->lanes;
  const size_t at_once = NMP_GEMM_L1 / s->panel_bytes + 1, pixels = lines * (size_t)s->h.out;
  const size_t tiles = (pixels + padded->p->tiles[1].pixels - 1) / padded->p->tiles[1].pixels;
  const uint8_t *x[NMP_TILE_PIXELS];
  nmp_gemm_tile t;
  t.plane = padded->plane;
  t.segments = (const uint32_t *)(const void *)(packed + nmp_gemm_segments_at());
  t.segment_count = s->segments;
  t.k_groups = s->k_groups;
  for (size_t panel = first, n; panel < last; panel += n) {
    const size_t group = panel / s->panels;
    n = nmp_min(nmp_min(at_once, last - panel), (group + 1) * s->panels - panel);
    for (size_t i = 0; i < tiles; i++) {
      const size_t pixel = pixels * i / tiles, count = pixels * (i + 1) / tiles - pixel;
      tile_addresses(padded, pixel, count, group, x);
      for (size_t k = panel % s->panels; k < panel % s->panels + n; k++) {
        t.panel = (const nmp_gemm_panel *)(const void *)(panels + group * s->group_bytes + k * s->panel_bytes);
        tile_run(padded, &t, x, count, nmp_min(most, channels - k * most),
                 y + ((pixel * c->pitch + group * channels + k * most) << c->y_wide));
      }
    }
  }
}

void nmp_gemm_epilogue_any(const nmp_conv *c, const nmp_gemm_tile *t, size_t pixels, size_t lanes, size_t n, void *y) {
  for (size_t r = 0; r < pixels; r++) {
    c->kernels->scale[0][c->y_wide]((uint8_t *)y + (r * c->pitch << c->y_wide), 0, t->sums + r * lanes, 1, n,
                                    t->panel->bias, t->panel->scale_shift, c->lo, c->hi);
  }
}
#endif
