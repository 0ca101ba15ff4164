/* A convolution as padded rows, segments and panels. Nothing here depends on the weights but on their number.
 *
 * Rows of the input are copied once, with their padding, into the scratch, in the form that the product wants: on
 * x86-64 int8 as uint8 (plus 128) for the byte instructions, otherwise int16; int16 times int16 as two planes, x = 256
 * high + low, or as split words. Every output pixel then sees segments of neighbouring elements, at the same distances
 * from its own address. Weights are packed in panels: for one k-group of a segment after the other, those of all
 * channels of the panel.
 *
 * Where segments are so short that much of their last k-groups would be empty, the windows of output pixels are copied
 * out of the padded rows one behind the other (im2col). Then there is one segment.
 */
#ifndef NMP_CONV_GEMM_SHAPE_H
#define NMP_CONV_GEMM_SHAPE_H

#include "conv/gemm/gemm.h"

#ifdef NMP_HAS_GEMM

/* A line is a row of output pixels; one pixel where the pixels of x are the rows of the matrix as they are. */
typedef struct nmp_gemm_shape {
  nmp_axis v, h;
  uint32_t images;
  int32_t v_hop, h_hop;                    /* rows and pixels of x from one of the padded rows to the next */
  size_t width;                            /* pixels of a padded row */
  size_t row;                              /* elements of it */
  size_t segments, per_segment;            /* elements */
  size_t k_groups;                         /* of a segment */
  size_t panels, panel_bytes, group_bytes; /* of a group; of all its panels */
  size_t patch;                            /* bytes of an output pixel's window, if all are copied; or 0 */
  size_t lines, plane;                     /* of the padded rows that are there at a time; bytes */
  int whole;                               /* rows of x are padded rows as they are */
  int fits_int32;                          /* all panels do, and the product has blocks; known once packed */
  int exact;                               /* they do not, and the product has blocks for that; likewise */
  int gemv;                                /* it is one pixel, and fits_int32, too: panels are strips */
} nmp_gemm_shape;

#define NMP_GEMM_L1 16384u   /* bytes of weights that are used for one tile after the other */
#define NMP_PATCH_ROW 16u    /* bytes of a row of a window that is copied, at most */
#define NMP_PADDED_SLACK 64u /* bytes behind the padded rows that a k-group may reach */

nmp_gemm_shape nmp_gemm_shape_of(const nmp_conv *c, const nmp_gemm_product *p);

/* Bytes of the weights of a lane and a k-group. */
static inline size_t nmp_gemm_lane(const nmp_gemm_product *p) {
  return p->bytes ? 2u * p->k_group : p->k_group;
}

/* Padded rows that are under the windows of some lines. */
size_t nmp_gemm_padded_rows(const nmp_gemm_shape *s, size_t lines);

/* Bytes of the patches of some lines, behind the padded rows. */
size_t nmp_gemm_patches(const nmp_gemm_shape *s, size_t lines);

/* Packed are the shape, the distances of segments, and the panels. */
static inline size_t nmp_gemm_segments_at(void) {
  return nmp_round_up(sizeof(nmp_gemm_shape), NMP_CACHE_LINE);
}

static inline size_t nmp_gemm_panels_at(const nmp_gemm_shape *s) {
  return nmp_gemm_segments_at() + nmp_round_up(s->segments * sizeof(uint32_t), NMP_CACHE_LINE);
}

#endif
#endif
