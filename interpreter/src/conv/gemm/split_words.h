/* Split words: int16 times int16, exact, in 3/4 of an instruction a product. A split accumulator of two sums of 32 bits
 * is joined to a sum of 47.
 *
 * `low` adds x * w as words and wraps: it is the sum S modulo 2^32. `high` adds products of high bytes, of
 *
 *   x = 256 xh + 128 + xe,   w = 256 wh + wl
 *
 * 2^16 sum((xh + 1/2) wh) is S but for sum(xe 256 wh + x wl), less than 2^31 for as many as NMP_SPLIT_WORDS_GROUPS
 * k-groups whatever x and w are. So S is the one number near to 2^16 high that is low modulo 2^32:
 *
 *   S = 2^16 high + d,   d = low - 2^16 high as int32
 *
 * Further products go on from floor(S / 2^16) in the place of high.
 *
 * In padded rows, 4 elements are their words and then the bytes xh + 128. For 4 products of all channels of a panel
 * there are a vector of words for the first two, one for the others, and one of bytes. Before every
 * NMP_SPLIT_WORDS_GROUPS of these comes what high has to be increased by, -(128 - 1/2) sum(wh).
 */
#ifndef NMP_CONV_GEMM_SPLIT_WORDS_H
#define NMP_CONV_GEMM_SPLIT_WORDS_H

#include "conv/gemm/gemm.h"

#ifdef NMP_HAS_GEMM

#define NMP_SPLIT_WORDS_ELEMENT 3 /* bytes of an element in padded rows */
#define NMP_SPLIT_WORDS_GROUP 12  /* bytes of a k-group */
#define NMP_SPLIT_WORDS_GROUPS 42 /* k-groups until the sums are joined */

static inline int nmp_is_split_words(const nmp_gemm_product *p) {
  return p->element == NMP_SPLIT_WORDS_ELEMENT;
}

/* True of a convolution for them: pixels are whole k-groups, S fits into 47 bits, and there are several pixels:
 * one is done as soon as its weights are read, which are less without their high bytes.
 */
int nmp_split_words_claim(const nmp_conv *c);

/* Bytes of the weights of a lane. */
size_t nmp_split_words_lane(size_t k_groups);

/* Channels [first, first + channels) of `lanes`, from a panel that is all zeros on. Its fits_int32: so do the joined
 * sums after the first part of their shift.
 */
void nmp_split_words_pack(const nmp_conv *c, size_t first, size_t channels, size_t lanes, nmp_gemm_panel *panel);

/* n elements of padded rows that are zero. */
void nmp_split_words_zeros(uint8_t *to, size_t n);

#endif
#endif
