/* CPU levels: which kernels a handle uses. */
#ifndef NMP_CPU_H
#define NMP_CPU_H

#include "kernels.h"

/* Fills kernels (but not with NMP_FIXED_CPU) up to the level of this name, NULL: the best one of this machine. Returns
 * the level's own name; NULL when this build or machine does not have it.
 */
const char *nmp_cpu_select(const char *name, nmp_kernels *kernels);

#endif
