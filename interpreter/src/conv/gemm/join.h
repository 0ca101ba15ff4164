/* int16 times int16, exact, in 3/4 of an instruction a product: two sums of 32 bits that are joined to one of 47.
 *
 * `low` adds x * w as words and wraps: it is the sum S modulo 2^32. `high` adds products of high bytes, of
 *
 *   x = 256 xh + 128 + xe,   w = 256 wh + wl
 *
 * 2^16 sum((xh + 1/2) wh) is S but for sum(xe 256 wh + x wl), less than 2^31 for as many as NMP_JOIN_GRAINS grains
 * whatever x and w are. So S is the one number near to 2^16 high that is low modulo 2^32:
 *
 *   S = 2^16 high + d,   d = low - 2^16 high as int32
 *
 * Further products go on from floor(S / 2^16) in the place of high.
 *
 * In a band, 4 elements are their words and then the bytes xh + 128. For 4 products of all channels of a panel there
 * are a vector of words for the first two, one for the others, and one of bytes. Before every NMP_JOIN_GRAINS of these
 * comes what high has to be increased by, -(128 - 1/2) sum(wh).
 */
#ifndef NMP_CONV_GEMM_JOIN_H
#define NMP_CONV_GEMM_JOIN_H

#include "conv/gemm/bands.h"

#ifdef NMP_BANDS

#define NMP_JOIN_ELEMENT 3 /* bytes of an element in the band */
#define NMP_JOIN_GRAIN 12
#define NMP_JOIN_GRAINS 42

static inline int nmp_is_joined(const nmp_product *p) {
  return p->element == NMP_JOIN_ELEMENT;
}

/* Whether this is a convolution for it: pixels are whole grains, S fits into 47 bits, and there are several pixels: one
 * is done as soon as its weights are read, which are less without their high bytes.
 */
int nmp_join_fits(const nmp_conv *c);

/* Bytes of the weights of a lane. */
size_t nmp_join_lane(size_t grains);

/* Channels [first, first + channels) of `lanes`, from a panel that is all zeros on. */
void nmp_join_pack(const nmp_conv *c, size_t first, size_t channels, size_t lanes, nmp_panel *panel);

/* n elements of the band. */
void nmp_join_zeros(uint8_t *to, size_t n);

#endif
#endif
