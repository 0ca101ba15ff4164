/* gemv: a pixel times strips of channels: a fully connected layer of batch 1. */
#include "conv/gemm/panel.h"
#include "conv/gemm/run.h"

#ifdef NMP_HAS_GEMM
#include <string.h>

/* Channels, as many as vectors have lanes. */
static size_t gemv_lanes(const nmp_conv *c, const nmp_gemm_product *p) {
  return (c->out + p->lanes - 1u) & ~(size_t)(p->lanes - 1u);
}

/* Bytes of all starts and shifts. */
static size_t gemv_head(size_t lanes) {
  return nmp_round_up(lanes * (sizeof(int32_t) + 1), NMP_CACHE_LINE);
}

int nmp_gemv_pack(const nmp_conv *c, const nmp_gemm_product *p, nmp_gemm_shape *s, uint8_t *to) {
  const size_t lanes = gemv_lanes(c, p), strip = NMP_STRIP * (size_t)p->lanes;
  int32_t *start = (int32_t *)(void *)to;
  int8_t *shift = (int8_t *)(start + lanes);
  memset(to, 0, gemv_head(lanes));
  for (size_t i = 0; i < c->out; i++) {
    int32_t by;
    if (!nmp_gemm_fits_int32(c, p, i, &start[i], &by)) {
      return 0;
    }
    shift[i] = (int8_t)by;
  }
  to += gemv_head(lanes);
  for (size_t first = 0, n; first < lanes; first += n, to += s->k_groups * n * p->k_group) {
    n = nmp_min(strip, lanes - first);
    const size_t channels = nmp_min(n, c->out - first);
    if (channels < n || c->k * p->element % p->k_group != 0) {
      memset(to, 0, s->k_groups * n * p->k_group);
    }
    nmp_gemm_pack_segment(c, p, s, first * c->k, channels, to, n * p->k_group);
  }
  s->panels = (lanes + strip - 1) / strip;
  s->panel_bytes = s->k_groups * strip * p->k_group;
  return 1;
}

/* x as the strips read it: in whole k-groups. */
static const uint8_t *gemv_load(const nmp_conv *c, const nmp_gemm_product *p, size_t plane) {
  const size_t bytes = c->k * (size_t)p->element;
  uint8_t *to = c->scratch;
  if (p->gemv_as_is && bytes % p->k_group == 0) {
    return c->x;
  }
  if (p->gemv_as_is) {
    memcpy(to, c->x, bytes);
  } else {
    p->load(to, c->x, c->k, plane);
  }
  for (size_t i = 0; i < p->planes; i++) {
    memset(to + i * plane + bytes, 0, NMP_K_GROUP);
  }
  return to;
}

void nmp_gemv_run(const nmp_conv *c, const nmp_gemm_product *p, size_t task, size_t tasks) {
  const uint8_t *packed = c->packed;
  const nmp_gemm_shape *s = c->packed;
  const size_t lanes = gemv_lanes(c, p), strip = NMP_STRIP * (size_t)p->lanes;
  const size_t first = nmp_gemm_share(s->panels, task, tasks), last = nmp_gemm_share(s->panels, task + 1, tasks);
  packed += nmp_gemm_panels_at(s);
  const nmp_gemv v = {.x = gemv_load(c, p, s->plane),
                      .plane = s->plane,
                      .k_groups = s->k_groups,
                      .start = (const int32_t *)(const void *)packed + first * strip,
                      .shift = (const int8_t *)packed + lanes * sizeof(int32_t) + first * strip,
                      .w = packed + gemv_head(lanes) + first * s->panel_bytes,
                      .y = (uint8_t *)c->y + (first * strip << c->y_wide),
                      .channels = nmp_min(c->out, last * strip) - first * strip,
                      .lo = c->lo,
                      .hi = c->hi,
                      .y_wide = c->y_wide};
  if (first < last) {
    p->gemv(&v);
  }
}
#endif
