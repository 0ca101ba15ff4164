/* A pixel times strips of channels: a fully connected layer of batch 1. */
#include "conv/gemm/bands.h"

#ifdef NMP_BANDS
#include <string.h>

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Channels, as many as vectors have lanes. */
static size_t lanes_of(const nmp_conv *c, const nmp_product *p) {
  return (c->out + p->lanes - 1u) & ~(size_t)(p->lanes - 1u);
}

/* Bytes of all starts and shifts. */
static size_t head_bytes(size_t lanes) {
  return nmp_bands_align(lanes * (sizeof(int32_t) + 1));
}

int nmp_single_pack(const nmp_conv *c, const nmp_product *p, nmp_shape *s, uint8_t *to) {
  const size_t lanes = lanes_of(c, p), strip = NMP_STRIP * (size_t)p->lanes;
  int32_t *start = (int32_t *)(void *)to;
  int8_t *shift = (int8_t *)(start + lanes);
  memset(to, 0, head_bytes(lanes));
  for (size_t i = 0; i < c->out; i++) {
    int32_t by;
    if (!nmp_bands_prove(c, p, i, &start[i], &by)) {
      return 0;
    }
    shift[i] = (int8_t)by;
  }
  to += head_bytes(lanes);
  for (size_t first = 0, n; first < lanes; first += n, to += s->grains * n * p->grain) {
    n = smaller(strip, lanes - first);
    const size_t channels = smaller(n, c->out - first);
    if (channels < n || c->k * p->element % p->grain != 0) {
      memset(to, 0, s->grains * n * p->grain);
    }
    nmp_bands_pack_segment(c, p, s, first * c->k, channels, to, n * p->grain);
  }
  s->panels = (lanes + strip - 1) / strip;
  s->panel_bytes = s->grains * strip * p->grain;
  return 1;
}

/* x as the strips read it: in whole grains. */
static const uint8_t *load(const nmp_conv *c, const nmp_product *p, size_t plane) {
  const size_t bytes = c->k * (size_t)p->element;
  uint8_t *to = c->scratch;
  if (p->single_as_is && bytes % p->grain == 0) {
    return c->x;
  }
  if (p->single_as_is) {
    memcpy(to, c->x, bytes);
  } else {
    p->load(to, c->x, c->k, plane);
  }
  for (size_t i = 0; i < p->planes; i++) {
    memset(to + i * plane + bytes, 0, NMP_GRAIN);
  }
  return to;
}

void nmp_single_run(const nmp_conv *c, const nmp_product *p, size_t task, size_t tasks) {
  const uint8_t *packed = c->packed;
  const nmp_shape *s = c->packed;
  const size_t lanes = lanes_of(c, p), strip = NMP_STRIP * (size_t)p->lanes;
  const size_t first = nmp_bands_share(s->panels, task, tasks), last = nmp_bands_share(s->panels, task + 1, tasks);
  packed += nmp_panels_at(s);
  const nmp_single single = {.x = load(c, p, s->plane),
                             .plane = s->plane,
                             .grains = s->grains,
                             .start = (const int32_t *)(const void *)packed + first * strip,
                             .shift = (const int8_t *)packed + lanes * sizeof(int32_t) + first * strip,
                             .w = packed + head_bytes(lanes) + first * s->panel_bytes,
                             .y = (uint8_t *)c->y + (first * strip << c->y_wide),
                             .channels = smaller(c->out, last * strip) - first * strip,
                             .lo = c->lo,
                             .hi = c->hi,
                             .y_wide = c->y_wide};
  if (first < last) {
    p->single(&single);
  }
}
#endif
