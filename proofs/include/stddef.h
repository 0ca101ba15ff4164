#ifndef PROOFS_STDDEF_H
#define PROOFS_STDDEF_H

#include <stdint.h>

typedef uintptr_t size_t;
#if PROOFS_ADDRESS == 32
typedef int ptrdiff_t;
#else
typedef long long ptrdiff_t;
#endif
#define NULL ((void *)0)

#endif
