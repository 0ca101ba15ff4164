/* Parts of a C library that the firmware needs, for a compiler that has these functions but not their header. */
#ifndef NMP_LIBC_STRING_H
#define NMP_LIBC_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
size_t strlen(const char *text);

#endif
