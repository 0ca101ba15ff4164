/* Packed weights of a convolution: its shape, the places of segments, then panels, or strips for one pixel. */
#include "conv/gemm/panel.h"
#include "conv/gemm/run.h"

#ifdef NMP_HAS_GEMM
#include <string.h>

/* The distances of segments from an output pixel's address, in bytes. */
static void pack_segments(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s, uint32_t *to) {
  const size_t columns = s->segments / (size_t)s->v.kernel;
  for (size_t i = 0; i < s->segments; i++) {
    const size_t ky = i / columns, kx = i % columns;
    to[i] = (uint32_t)((ky * (size_t)s->v.dilation * s->row + kx * (size_t)s->h.dilation * c->in) * p->element);
  }
}

void nmp_gemm_pack(const nmp_conv *c, const nmp_gemm_product *p, void *to) {
  nmp_gemm_shape s = nmp_gemm_shape_of(c, p);
  const size_t channels = c->out / c->groups, most = 2 * (size_t)p->lanes;
  uint8_t *panels = (uint8_t *)to + nmp_gemm_panels_at(&s);
  pack_segments(c, p, &s, (uint32_t *)(void *)((uint8_t *)to + nmp_gemm_segments_at()));
  s.gemv = p->gemv != NULL && nmp_conv_is_direct(c) && nmp_conv_pixels(c) == 1 && nmp_gemv_pack(c, p, &s, panels);
  /* In short segments blocks have no time for addresses. */
  s.fits_int32 = p->blocks != NULL && s.k_groups > (p->planes == 2 && !p->bytes ? 2 : 0);
  for (size_t group = 0; group < c->groups && !s.gemv; group++) {
    for (size_t panel = 0; panel < s.panels; panel++) {
      const size_t n = nmp_min(most, channels - panel * most), vectors = n > p->lanes ? 2 : 1;
      nmp_gemm_panel *at = (nmp_gemm_panel *)(void *)(panels + group * s.group_bytes + panel * s.panel_bytes);
      nmp_gemm_pack_panel(c, p, &s, group * channels + panel * most, n, vectors, at);
      s.fits_int32 = s.fits_int32 && at->fits_int32;
    }
  }
  s.exact = p->exact != NULL && !s.fits_int32 && channels % p->lanes == 0;
  memcpy(to, &s, sizeof(s));
}
#endif
