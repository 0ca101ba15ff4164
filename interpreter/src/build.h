/* What a build has. These are the defaults: everything, as the target allows. `nmpconv bundle` writes this file anew
 * for one model, and -D overrides one line. A file that needs more than there is is refused with NMP_E_NOT_BUILT.
 */
#ifndef NMP_BUILD_H
#define NMP_BUILD_H

#include <stdint.h>

/* 1: the kernels of the best CPU level of the compiler's target, called directly. 0: chosen at create, for PCs. */
#ifndef NMP_FIXED_CPU
#if defined(__x86_64__) || defined(__aarch64__) || defined(_M_X64) || defined(_M_ARM64)
#define NMP_FIXED_CPU 0
#else
#define NMP_FIXED_CPU 1
#endif
#endif

/* 1: ops are decoded once, at create, where memory is plenty. 0: each time that they run. */
#ifndef NMP_KEEP_OPS
#define NMP_KEEP_OPS (UINTPTR_MAX > UINT32_MAX)
#endif

/* The ops, a part of NMP_OPS (gen/nmp_params.h). */
#ifndef NMP_BUILD_OPS
#define NMP_BUILD_OPS NMP_OPS
#endif

#endif
