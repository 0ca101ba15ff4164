/* Elements of x that an output pixel of a convolution sees. */
#ifndef NMP_CONV_PATCH_H
#define NMP_CONV_PATCH_H

#include "conv/conv.h"

/* The row y and column x of an output pixel, and the element where its image starts. */
typedef struct nmp_place {
  int32_t y, x;
  size_t image;
} nmp_place;

nmp_place nmp_locate(const nmp_conv *c, size_t pixel);

/* The address of a channel of an input pixel; of what padding holds in a channel, when c->pad is not NULL. */
static inline const uint8_t *nmp_element(const nmp_conv *c, nmp_place at, int32_t y, int32_t x, size_t channel) {
  const size_t pixel = at.image + ((size_t)y * (size_t)c->h.in + (size_t)x) * c->in;
  return (const uint8_t *)c->x + ((pixel + channel) << nmp_x_wide(c));
}

static inline const uint8_t *nmp_padding(const nmp_conv *c, size_t channel) {
  return (const uint8_t *)c->pad + (channel << nmp_x_wide(c));
}

/* Fills `times` places with the first, of so many bytes; times > 0. */
void nmp_repeat(uint8_t *place, size_t bytes, size_t times);

/* Copies the patch of one output pixel and group: KH * KW * in / groups elements. */
void nmp_gather(const nmp_conv *c, nmp_place at, size_t group, uint8_t *patch);

#endif
