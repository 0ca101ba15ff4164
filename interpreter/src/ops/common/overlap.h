/* A convolution whose result shares bytes with its input, `over` bytes after the input's first one. FORMAT.md says
 * which plans are legal.
 */
#ifndef NMP_OPS_COMMON_OVERLAP_H
#define NMP_OPS_COMMON_OVERLAP_H

#include "conv/conv.h"

int nmp_overlap_legal(const nmp_conv *c);

/* True when a kernel packs the weights of the convolution or of one of its bands. It may have laid out all of the
 * convolution with them, so that it cannot be run band by band: it gets a copy of the input.
 */
int nmp_overlap_packs(const nmp_conv *c);

/* Runs the kernel of each band, one after the other; for those that do not pack. */
extern const nmp_conv_kernel nmp_overlap_kernel;

#endif
