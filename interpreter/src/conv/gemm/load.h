/* Rows of the input as padded rows, in the form of the product: the rows of im2col without repetition. */
#ifndef NMP_CONV_GEMM_LOAD_H
#define NMP_CONV_GEMM_LOAD_H

#include "conv/gemm/shape.h"

#ifdef NMP_HAS_GEMM

typedef struct nmp_padded nmp_padded;
struct nmp_padded {
  const nmp_conv *c;
  const nmp_gemm_product *p;
  const nmp_gemm_shape *s;
  uint8_t *bytes, *patches; /* patches: behind the padded rows; or NULL */
  size_t plane;             /* bytes */
  int filled;               /* what is padding is there already */
};

/* Loads those that lines [line, line + lines) of an image see. */
void nmp_padded_load(nmp_padded *padded, size_t image, size_t line, size_t lines);

/* Bytes from what an output pixel sees to what the next one sees, beside it and below; of padded rows, and of patches
 * if there are.
 */
static inline size_t nmp_padded_across_rows(const nmp_padded *padded) {
  return (size_t)(padded->s->h.stride / padded->s->h_hop) * padded->c->in * padded->p->element;
}

static inline size_t nmp_padded_down_rows(const nmp_padded *padded) {
  return (size_t)(padded->s->v.stride / padded->s->v_hop) * padded->s->row * padded->p->element;
}

static inline size_t nmp_padded_across(const nmp_padded *padded) {
  return padded->s->patch ? padded->s->patch : nmp_padded_across_rows(padded);
}

static inline size_t nmp_padded_down(const nmp_padded *padded) {
  return padded->s->patch ? padded->s->patch * (size_t)padded->s->h.out : nmp_padded_down_rows(padded);
}

/* Place where the channels of a group begin, of the first output pixel. */
static inline const uint8_t *nmp_padded_group(const nmp_padded *padded, size_t group) {
  return padded->s->patch ? padded->patches
                          : padded->bytes + group * (padded->c->in / padded->c->groups) * padded->p->element;
}

#endif
#endif
