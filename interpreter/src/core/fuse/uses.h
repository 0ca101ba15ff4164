/* Questions of the planners about a verified model: who reads a tensor, what lies where. */
#ifndef NMP_CORE_FUSE_USES_H
#define NMP_CORE_FUSE_USES_H

#include "core/model.h"

/* True when somebody besides op `reader` reads what op `maker` makes. */
int nmp_is_wanted(const nmp_model *m, uint32_t maker, uint32_t reader, uint64_t *budget);

size_t nmp_tensor_bytes(const nmp_tensor *t);

/* Activations that lie in the same bytes of the arena, or in some of them. */
int nmp_share_bytes(const nmp_tensor *a, const nmp_tensor *b);

#endif
