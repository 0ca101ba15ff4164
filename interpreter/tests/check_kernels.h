/* Declarations that the parts of check_kernels share. */
#ifndef CHECK_KERNELS_H
#define CHECK_KERNELS_H

#include "kernels/kernels.h"
#include "memory.h"

enum { RANDOM, LOWEST, HIGHEST, FILLS };
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

extern const char *level; /* the one under test */
extern int benchmark;
extern nmp_kernels portable, tested;

uint32_t next_random(void);

/* n integers of int8 (wide 0) or int16 (wide 1) at a slot's end. */
void *integers(int slot, size_t n, int wide, int fill);

/* The bytes of an output, poisoned, and some before them. */
void *poisoned(int slot, size_t bytes);

/* Counts and reports whether WANT and GOT are equal, poison included. */
void compare(const char *kernel, int widths, size_t n, size_t bytes);

double seconds(void);

/* check_conv.c: whole convolutions. */
void check_convs(void);

#endif
