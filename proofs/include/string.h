#ifndef PROOFS_STRING_H
#define PROOFS_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);

#endif
