/* Checks of the windows of convolutions and pooling. */
#ifndef NMP_OPS_COMMON_WINDOW_H
#define NMP_OPS_COMMON_WINDOW_H

#include "conv/axis.h"
#include "ops/common/check.h"

#define NMP_SIDE_MAX 32767 /* of strides, dilations and paddings */

/* The output size follows from the rest, and every coordinate fits int32. */
nmp_rule nmp_check_axis(const nmp_axis *axis);

/* Every window holds at least one pixel that is not padding. */
nmp_rule nmp_check_hits(const nmp_axis *axis);

#endif
