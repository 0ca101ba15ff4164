#include "conv/gemm/shape.h"

#include "conv/gemm/split_words.h"

#ifdef NMP_HAS_GEMM
#include <string.h>

#define PADDED_BYTES 131072u /* of padded rows, when the weights are as many */
#define TASK_MACS 131072u    /* less is not worth a task */

size_t nmp_gemm_padded_rows(const nmp_gemm_shape *s, size_t lines) {
  return ((lines - 1) * (size_t)s->v.stride + (size_t)((s->v.kernel - 1) * s->v.dilation)) / (size_t)s->v_hop + 1;
}

size_t nmp_gemm_patches(const nmp_gemm_shape *s, size_t lines) {
  return s->patch ? lines * (size_t)s->h.out * s->patch + NMP_PADDED_SLACK : 0;
}

static size_t shape_plane(const nmp_gemm_shape *s, const nmp_gemm_product *p, size_t lines) {
  const size_t across = (size_t)(s->h.stride / s->h_hop) * (s->row / s->width) * p->element;
  const size_t slack = NMP_PADDED_SLACK + (p->pixels > 0 ? (p->pixels - 1u) * across : 0);
  return nmp_round_up(nmp_gemm_padded_rows(s, lines) * s->row * p->element + slack + nmp_gemm_patches(s, lines),
                      NMP_CACHE_LINE);
}

/* Lines whose padded rows have as many bytes as the weights, since all weights are read for each such part. */
static size_t shape_lines(const nmp_conv *c, const nmp_gemm_product *p, const nmp_gemm_shape *s) {
  const size_t weights = c->groups * s->group_bytes, lines = (size_t)s->v.out;
  const size_t bytes = weights < NMP_GEMM_L1 ? NMP_GEMM_L1 : nmp_min(weights, PADDED_BYTES);
  const size_t one = shape_plane(s, p, 1) * p->planes;
  const size_t patches = (size_t)s->h.out * s->patch;
  const size_t each = (size_t)(s->v.stride / s->v_hop) * s->row * p->element * p->planes + patches;
  const size_t most = bytes > one ? 1 + (bytes - one) / each : 1;
  const size_t times = (lines + most - 1) / most;
  return (lines + times - 1) / times;
}

/* Pixels of x that no window sees are left out of the padded rows where there is much to leave out. */
static int32_t shape_hop(const nmp_axis *axis, size_t bytes) {
  return axis->kernel == 1 && bytes >= 128 ? axis->stride : 1;
}

/* Windows are copied where that saves k-groups, or brings some together that would be alone. */
static void shape_patches(const nmp_conv *c, const nmp_gemm_product *p, nmp_gemm_shape *s) {
  const size_t k_groups = (c->k * p->element + p->k_group - 1) / p->k_group;
  const int alone = s->k_groups == 1 && s->segments > 1;
  if (p->patches && c->groups == 1 && s->h.dilation == 1 && s->per_segment * p->element <= NMP_PATCH_ROW &&
      (alone || k_groups < s->segments * s->k_groups)) {
    s->segments = 1;
    s->per_segment = c->k;
    s->k_groups = k_groups;
    s->patch = k_groups * p->k_group;
  }
}

static void shape_panels(const nmp_conv *c, const nmp_gemm_product *p, nmp_gemm_shape *s) {
  const size_t channels = c->out / c->groups, k_groups = s->segments * s->k_groups;
  const size_t lane = nmp_is_split_words(p) ? nmp_split_words_lane(k_groups) : k_groups * nmp_gemm_lane(p);
  const size_t vectors = (channels + p->lanes - 1) / p->lanes;
  s->panels = (vectors + 1) / 2;
  s->panel_bytes = sizeof(nmp_gemm_panel) + 2 * p->lanes * lane;
  s->group_bytes = s->panels * sizeof(nmp_gemm_panel) + vectors * p->lanes * lane;
}

nmp_gemm_shape nmp_gemm_shape_of(const nmp_conv *c, const nmp_gemm_product *p) {
  nmp_gemm_shape s;
  memset(&s, 0, sizeof(s));
  s.v = c->v;
  s.h = c->h;
  s.images = c->images;
  if (nmp_conv_is_direct(c)) {
    const int32_t pixels = (int32_t)nmp_conv_pixels(c);
    s.v = nmp_axis_of_pixels(pixels);
    s.h = nmp_axis_of_pixels(1);
    s.images = 1;
  }
  s.h_hop = shape_hop(&s.h, c->in * p->element);
  const size_t reach = (size_t)(s.h.out - 1) * (size_t)s.h.stride + (size_t)(s.h.kernel - 1) * (size_t)s.h.dilation;
  s.width = reach / (size_t)s.h_hop + 1;
  s.row = s.width * c->in;
  s.v_hop = shape_hop(&s.v, s.row * p->element);
  s.whole = s.h_hop == 1 && s.v_hop == 1 && s.h.before == 0 && s.width == (size_t)s.h.in;
  s.segments = (size_t)s.v.kernel;
  s.per_segment = (size_t)s.h.kernel * c->in;
  if (c->groups > 1 || s.h.dilation > 1) {
    s.segments *= (size_t)s.h.kernel;
    s.per_segment = c->in / c->groups;
  }
  s.k_groups = (s.per_segment * p->element + p->k_group - 1) / p->k_group;
  s.k_groups = p->k_groups ? nmp_round_up(s.k_groups, p->k_groups) : s.k_groups;
  shape_patches(c, p, &s);
  shape_panels(c, p, &s);
  s.lines = shape_lines(c, p, &s);
  s.plane = shape_plane(&s, p, s.lines);
  return s;
}

size_t nmp_gemm_packed(const nmp_conv *c, const nmp_gemm_product *p) {
  const nmp_gemm_shape s = nmp_gemm_shape_of(c, p);
  return nmp_gemm_panels_at(&s) + c->groups * s.group_bytes;
}

size_t nmp_gemm_scratch(const nmp_conv *c, const nmp_gemm_product *p) {
  const nmp_gemm_shape s = nmp_gemm_shape_of(c, p);
  return s.plane * p->planes;
}

size_t nmp_gemm_tasks(const nmp_conv *c, size_t threads) {
  const uint64_t tasks = (uint64_t)nmp_conv_pixels(c) * c->out * c->k / TASK_MACS;
  return tasks < 1 ? 1 : tasks < threads ? (size_t)tasks : threads;
}
#endif
