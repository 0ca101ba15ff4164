/* Dense int8 convolutions by tiles of 16 pixels x 64 products x 16 channels (AMX-INT8). Padded rows are int8 as they
 * are, and a tile of x is read from them: pixels beside each other are equally far apart. Weights are panels of
 * conv/gemm/ as VNNI has them, whose segments are whole tiles: what x has beyond a segment meets weights of zero. What
 * is left over by 16 pixels is computed and not stored. Sums start where the panel says.
 *
 * NMP_AMX_EMULATED is a header by which tiles are plain C, the one in tests/. What follows is, too, without AVX-512.
 */
#include "arch/x86/level.h"
#include "conv/gemm/run.h"

#ifdef NMP_AMX
#include <immintrin.h>
#include <string.h>

#ifdef NMP_AMX_EMULATED
#include NMP_AMX_EMULATED
#else
#define TILE_CONFIGURE _tile_loadconfig
#define TILE_RELEASE _tile_release
#define TILE_LOAD _tile_loadd
#define TILE_STORE _tile_stored
#define TILE_DOT _tile_dpbssd
#endif

NMP_ISA_BEGIN(NMP_ISA_AVX512VNNI)
#include "arch/x86/vector512.inc"
/* after that */
#include "conv/gemm/vector_narrow.inc"

static void amx_store_vectors(const nmp_conv *c, const nmp_gemm_panel *panel, const int32_t *sums, size_t pixels,
                              size_t lanes, size_t n, uint8_t *y) {
  epilogue_sums(c, sums, panel, pixels, lanes, n, y);
}
NMP_ISA_END

#ifdef NMP_AMX_EMULATED
#define HAS_VECTORS (nmp_x86_features() & NMP_AVX512VNNI)
/* y = clip(sum >> shift) */
static void amx_store_plain(const nmp_conv *c, const nmp_gemm_panel *panel, const int32_t *sums, size_t n, uint8_t *y) {
  for (size_t i = 0; i < n; i++) {
    int32_t q = sums[i] >> panel->shift[i];
    q = q < c->lo ? c->lo : q;
    q = q > c->hi ? c->hi : q;
    if (c->y_wide) {
      ((int16_t *)(void *)y)[i] = (int16_t)q;
    } else {
      ((int8_t *)y)[i] = (int8_t)q;
    }
  }
}
#else
#define HAS_VECTORS 1
#define amx_store_plain(...) (void)0
#endif

NMP_ISA_BEGIN(NMP_ISA_AMX)

#define TILE_BYTES 1024u
#define TILE_ROWS 16
#define TILE_K 64u
#define POSITIONS 32u /* at a time: 2 x 2 tiles of sums */

/* Percent of its time that it has to be sooner by the estimate below: no machine with AMX was at hand. */
#ifndef NMP_AMX_GAIN
#define NMP_AMX_GAIN 150
#endif

static void amx_configure(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.bytes[i] = TILE_K;
    config.rows[i] = TILE_ROWS;
  }
  TILE_CONFIGURE(&config);
}

/* Positions are pixels that are equally far apart in the padded rows: those of a line, or of all lines with the pixels
 * of padded rows that lie between them, where these are few.
 */
typedef struct amx_grid {
  size_t runs, run;    /* so many times so many positions */
  size_t width, pitch; /* of a line: pixels, positions */
  size_t across, down; /* bytes from a position to the next, from a run to the next */
} amx_grid;

static amx_grid amx_grid_of(size_t width, size_t lines, size_t across, size_t down) {
  amx_grid g = {.runs = lines, .run = width, .width = width, .pitch = width, .across = across, .down = down};
  const size_t pitch = down / across;
  if (down % across == 0 && pitch >= width && lines * pitch <= lines * nmp_round_up(width, TILE_ROWS)) {
    g.runs = 1;
    g.run = (lines - 1) * pitch + width;
    g.pitch = pitch;
  }
  return g;
}

/* Sums of some positions times the channels of a panel, [position][lane]. */
typedef struct amx_block {
  int32_t sums[POSITIONS * 2 * LANES];
  const uint8_t *x;
  size_t across;
  const uint32_t *segments;
  size_t segment_count, tiles; /* of a segment */
  const nmp_gemm_panel *panel;
} amx_block;

static NMP_INLINE void amx_sums(amx_block *b, const int twice, const int vectors) {
  const uint8_t *w = (const uint8_t *)(b->panel + 1);
  const long across = (long)b->across, step = vectors * 64, lanes = vectors * LANES * 4;
  TILE_LOAD(0, b->panel->start, 0);
  if (vectors > 1) {
    TILE_LOAD(1, b->panel->start + LANES, 0);
  }
  if (twice) {
    TILE_LOAD(2, b->panel->start, 0);
    if (vectors > 1) {
      TILE_LOAD(3, b->panel->start + LANES, 0);
    }
  }
  for (size_t s = 0; s < b->segment_count; s++) {
    const uint8_t *x = b->x + b->segments[s];
    for (size_t i = 0; i < b->tiles; i++, x += TILE_K, w += (size_t)vectors * TILE_BYTES) {
      TILE_LOAD(6, w, step);
      TILE_LOAD(4, x, across);
      TILE_DOT(0, 4, 6);
      if (vectors > 1) {
        TILE_LOAD(7, w + 64, step);
        TILE_DOT(1, 4, 7);
      }
      if (twice) {
        TILE_LOAD(5, x + TILE_ROWS * b->across, across);
        TILE_DOT(2, 5, 6);
        if (vectors > 1) {
          TILE_DOT(3, 5, 7);
        }
      }
    }
  }
  TILE_STORE(0, b->sums, lanes);
  if (vectors > 1) {
    TILE_STORE(1, b->sums + LANES, lanes);
  }
  if (twice) {
    TILE_STORE(2, b->sums + TILE_ROWS * vectors * LANES, lanes);
    if (vectors > 1) {
      TILE_STORE(3, b->sums + (TILE_ROWS * vectors + 1) * LANES, lanes);
    }
  }
}

/* Whatever the sums of a panel are. */
static void amx_store(const nmp_conv *c, const nmp_gemm_panel *panel, const int32_t *sums, size_t pixels, size_t n,
                      uint8_t *y) {
  const size_t lanes = n > LANES ? 2 * LANES : LANES, step = (size_t)c->pitch << c->y_wide;
  if (panel->fits_int32 && HAS_VECTORS) {
    amx_store_vectors(c, panel, sums, pixels, lanes, n, y);
    return;
  }
  for (size_t r = 0; r < pixels; r++, sums += lanes, y += step) {
    if (panel->fits_int32) {
      amx_store_plain(c, panel, sums, n, y);
    } else {
      c->kernels->scale[0][c->y_wide](y, 0, sums, 1, n, panel->bias, panel->scale_shift, c->lo, c->hi);
    }
  }
}

/* Stores those of positions [first, first + count) of a run that are pixels of y, which begins with the run. */
static void amx_store_positions(const nmp_conv *c, const amx_grid *g, const amx_block *b, size_t first, size_t count,
                                size_t n, uint8_t *y) {
  const size_t lanes = n > LANES ? 2 * LANES : LANES;
  size_t line = first / g->pitch, at = first % g->pitch;
  for (size_t i = 0, some; i < count; i += some, line++, at = 0) {
    some = nmp_min(g->pitch - at, count - i);
    if (at < g->width) {
      amx_store(c, b->panel, b->sums + i * lanes, nmp_min(g->width - at, some), n,
                y + (((line * g->width + at) * c->pitch) << c->y_wide));
    }
  }
}

/* Some panels of a group, which stay in the cache, times all positions of a run. */
static void amx_run(const nmp_padded *padded, const amx_grid *g, amx_block *b, const uint8_t *x, const uint8_t *panels,
                    size_t count, size_t channels, uint8_t *y) {
  for (size_t first = 0; first < g->run; first += POSITIONS) {
    const size_t positions = nmp_min(g->run - first, POSITIONS);
    b->x = x + first * g->across;
    for (size_t k = 0; k < count; k++) {
      const size_t n = nmp_min(channels - k * 2 * LANES, 2 * LANES);
      b->panel = (const nmp_gemm_panel *)(const void *)(panels + k * padded->s->panel_bytes);
      if (positions > TILE_ROWS && n > LANES) {
        amx_sums(b, 1, 2);
      } else if (positions > TILE_ROWS) {
        amx_sums(b, 1, 1);
      } else if (n > LANES) {
        amx_sums(b, 0, 2);
      } else {
        amx_sums(b, 0, 1);
      }
      amx_store_positions(padded->c, g, b, first, positions, n, y + ((k * 2 * LANES) << padded->c->y_wide));
    }
  }
}

static void amx_lines(const nmp_padded *padded, size_t first, size_t last, size_t lines, uint8_t *y) {
  const nmp_conv *c = padded->c;
  const nmp_gemm_shape *s = padded->s;
  const uint8_t *packed = (const uint8_t *)c->packed, *panels = packed + nmp_gemm_panels_at(s);
  const size_t channels = c->out / c->groups, at_once = NMP_GEMM_L1 / s->panel_bytes + 1;
  const amx_grid g = amx_grid_of((size_t)s->h.out, lines, nmp_padded_across(padded), nmp_padded_down(padded));
  amx_block b;
  b.across = g.across;
  b.segments = (const uint32_t *)(const void *)(packed + nmp_gemm_segments_at());
  b.segment_count = s->segments;
  b.tiles = s->k_groups * NMP_K_GROUP / TILE_K;
  amx_configure();
  for (size_t panel = first, n; panel < last; panel += n) {
    const size_t group = panel / s->panels, k = panel - group * s->panels, channel = k * 2 * LANES;
    n = nmp_min(nmp_min(at_once, last - panel), s->panels - k);
    for (size_t i = 0; i < g.runs; i++) {
      amx_run(padded, &g, &b, nmp_padded_group(padded, group) + i * g.down,
              panels + group * s->group_bytes + k * s->panel_bytes, n, channels - channel,
              y + ((i * g.width * c->pitch + group * channels + channel) << c->y_wide));
    }
  }
  TILE_RELEASE();
}

static void load_signed(void *to, const void *x, size_t n, size_t plane) {
  (void)plane;
  memcpy(to, x, n);
}

static const nmp_gemm_product int8_product = {.element = 1,
                                              .planes = 1,
                                              .lanes = LANES,
                                              .k_group = NMP_K_GROUP,
                                              .k_groups = TILE_K / NMP_K_GROUP,
                                              .pixels = TILE_ROWS,
                                              .load = load_signed,
                                              .lines = amx_lines};
NMP_GEMM_KERNEL(int8)

NMP_ISA_END

/* Cycles by both, as the manuals have them: a product of tiles takes 16, VNNI makes 128 products in one; results take
 * as long as they are stored and loaded again by AMX. Few pixels are done as soon as their weights are read.
 */
static int amx_claims(const nmp_conv *c) {
  if (c->x_wide || c->w_wide || nmp_conv_is_depthwise(c)) {
    return 0;
  }
  const nmp_gemm_shape s = nmp_gemm_shape_of(c, &int8_product);
  const size_t across = (size_t)(s.h.stride / s.h_hop) * c->in, down = (size_t)(s.v.stride / s.v_hop) * s.row;
  const amx_grid g = amx_grid_of((size_t)s.h.out, (size_t)s.v.out, across, down);
  const uint64_t blocks = (uint64_t)s.images * g.runs * nmp_round_up(g.run, TILE_ROWS) / TILE_ROWS;
  const uint64_t columns = (uint64_t)c->groups * ((c->out / c->groups + LANES - 1) / LANES);
  const uint64_t tiles = s.segments * s.k_groups * NMP_K_GROUP / TILE_K;
  const uint64_t vnni = (uint64_t)nmp_conv_pixels(c) * c->out * (c->k + 8) / 128;
  return NMP_AMX_GAIN == 0 ||
         (nmp_conv_pixels(c) >= TILE_ROWS && blocks * columns * (16 * tiles + 44) * NMP_AMX_GAIN < 100 * vnni);
}

const nmp_conv_kernel *nmp_conv_amx(const nmp_conv *c) {
  return amx_claims(c) ? &int8 : NULL;
}
#endif
