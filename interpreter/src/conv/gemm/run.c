#include "conv/gemm/run.h"

#ifdef NMP_HAS_GEMM

/* Panels [first, last) times lines [line, end), of which the first one goes to y. */
static void run_lines(nmp_padded *padded, size_t first, size_t last, size_t line, size_t end, uint8_t *y) {
  const nmp_conv *c = padded->c;
  const nmp_gemm_shape *s = padded->s;
  const size_t lines = (size_t)s->v.out, bytes = ((size_t)s->h.out * c->pitch) << c->y_wide;
  for (size_t n; line < end && first < last; line += n, y += n * bytes) {
    const size_t image = s->images > 1 ? line / lines : 0;
    n = nmp_min(nmp_min(s->lines, end - line), (image + 1) * lines - line);
    nmp_padded_load(padded, image, line - image * lines, n);
    if (padded->p->lines) {
      padded->p->lines(padded, first, last, n, y);
    } else if (s->fits_int32 || s->exact) {
      nmp_gemm_run_blocks(padded, first, last, n, y);
    } else {
      nmp_gemm_run_tiles(padded, first, last, n, y);
    }
  }
}

/* Tasks share the panels where they are the larger part, otherwise the lines. */
void nmp_gemm_run(const nmp_conv *c, const nmp_gemm_product *p, size_t task, size_t tasks) {
  const nmp_gemm_shape *s = (const nmp_gemm_shape *)c->packed;
  if (s->gemv) {
    nmp_gemv_run(c, p, task, tasks);
    return;
  }
  const size_t all = s->images * (size_t)s->v.out, panels = c->groups * s->panels;
  nmp_padded padded = {.c = c, .p = p, .s = s, .bytes = (uint8_t *)c->scratch, .plane = s->plane};
  if (c->groups * s->group_bytes > all * s->row || all < tasks) {
    run_lines(&padded, nmp_gemm_share(panels, task, tasks), nmp_gemm_share(panels, task + 1, tasks), 0, all,
              (uint8_t *)c->y);
    return;
  }
  const size_t line = nmp_gemm_share(all, task, tasks);
  run_lines(&padded, 0, panels, line, nmp_gemm_share(all, task + 1, tasks),
            (uint8_t *)c->y + ((line * (size_t)s->h.out * c->pitch) << c->y_wide));
}

void nmp_gemm_rows(const nmp_conv *c, const nmp_gemm_product *p, size_t first, size_t last) {
  const nmp_gemm_shape *s = (const nmp_gemm_shape *)c->packed;
  if (s->gemv) {
    nmp_gemv_run(c, p, 0, 1);
    return;
  }
  const size_t lines = nmp_conv_is_direct(c) ? (size_t)c->h.out : 1; /* of a row */
  nmp_padded padded = {.c = c, .p = p, .s = s, .bytes = (uint8_t *)c->scratch, .plane = s->plane};
  run_lines(&padded, 0, c->groups * s->panels, first * lines, last * lines, (uint8_t *)c->y);
}
#endif
