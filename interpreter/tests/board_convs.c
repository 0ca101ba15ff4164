/* Convolutions of every level against the portable ones: random shapes with the corners that kernels care for, all
 * widths, biases, shifts and ranges; random and extreme values. Inputs and weights end where nothing can be read;
 * results and scratch are compared with the bytes around them. A padding constant is computed in the same way as zeros.
 * Where a kernel adds what y holds, every third int8 result of a dense one is a sum.
 *
 *   board_convs [count]
 *
 * The portable ones run beside those of each other level; against themselves where there is none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv/conv.h"
#include "dispatch.h"
#include "memory.h"
#include "nmp.h"

#define COUNT 1500 /* of convolutions, if none is named */
#define THREADS 3
#define ROOM 200000 /* most bytes of x, w and y */

static nmp_kernels portable, tested;
static unsigned compared, failed;

static uint32_t any(void) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

static uint32_t up_to(uint32_t most) {
  return any() % (most + 1);
}

static int32_t one_of(int32_t a, int32_t b, int32_t c, int32_t d) {
  return (const int32_t[]){a, b, c, d}[any() % 4];
}

static void *integers(int slot, size_t n, int wide, uint32_t extreme) {
  void *data = tail(slot, n << wide);
  const uint32_t all = extreme == 1 ? 0x80000000u : 0x7FFFFFFFu;
  for (size_t i = 0; i < n; i++) {
    const uint32_t value = extreme == 0 || extreme > 2 ? any() : all;
    if (wide) {
      ((int16_t *)data)[i] = (int16_t)(value >> 16);
    } else {
      ((int8_t *)data)[i] = (int8_t)(value >> 24);
    }
  }
  return data;
}

static nmp_axis axis(int32_t kernel) {
  nmp_axis a = {0, 0, kernel, one_of(1, 1, 2, 3), one_of(1, 1, 1, 2), 0, 0};
  const int32_t extent = a.dilation * (kernel - 1) + 1;
  a.before = (int32_t)up_to((uint32_t)extent + 3); /* some windows lie in the padding */
  a.after = (int32_t)up_to((uint32_t)extent + 3);
  a.in = 1 + (int32_t)up_to(12);
  if (a.in + a.before + a.after < extent) {
    a.in = extent;
  }
  a.out = (a.in + a.before + a.after - extent) / a.stride + 1;
  return a;
}

/* The numbers of a convolution. */
static nmp_conv shape(void) {
  nmp_conv c;
  memset(&c, 0, sizeof(c));
  const int32_t side = one_of(1, 1, 3, 2);
  c.images = 1 + up_to(1);
  switch (any() % 4) {
    case 0: /* a matrix product */
      c.v = (nmp_axis){1, 1, 1, 1, 1, 0, 0};
      c.h = (nmp_axis){1, 1, 1, 1, 1, 0, 0};
      c.h.in = c.h.out = one_of(1, 2, 1 + (int32_t)up_to(10), 1 + (int32_t)up_to(60));
      c.groups = 1;
      c.in = 1 + up_to((uint32_t)one_of(8, 40, 140, 700));
      c.out = 1 + up_to((uint32_t)one_of(8, 40, 70, 150));
      break;
    case 1: /* depthwise */
      c.v = axis(one_of(3, 3, 5, side));
      c.h = axis(one_of(3, 3, 5, c.v.kernel));
      c.groups = c.in = c.out = (uint32_t)one_of(4, 8, 1 + (int32_t)up_to(40), 64);
      break;
    default:
      c.v = axis(side);
      c.h = axis(one_of(side, side, 3, 5));
      c.groups = any() % 4 ? 1 : 1 + up_to(3);
      c.in = c.groups * (uint32_t)one_of(1, 3, 4 * (int32_t)(1 + up_to(7)), 1 + (int32_t)up_to(20));
      c.out = c.groups * (1 + up_to(12));
  }
  c.k = (uint32_t)(c.v.kernel * c.h.kernel) * (c.in / c.groups);
#if NMP_TWO_MEMORIES
  c.slow = any() % 2;
#endif
  return c;
}

static size_t read_bytes(const nmp_conv *c) {
  return (size_t)c->images * (size_t)c->v.in * (size_t)c->h.in * c->in << c->x_wide;
}

/* A kernel's run: packed and scratch from slots of exactly the sizes that it asks for. y lies inside a poisoned slot.
 */
static void compute(nmp_conv c, const nmp_kernels *kernels, int slot, size_t bytes) {
  c.kernels = kernels;
  const nmp_conv_kernel *kernel = kernels->conv(&c);
  const size_t tasks = kernel->tasks ? kernel->tasks(&c, THREADS) : 1;
  const size_t packed = kernel->packed ? kernel->packed(&c) : 0;
  const size_t scratch = kernel->scratch ? kernel->scratch(&c) : 0, kept = (packed + 63) / 64 * 64;
  if (packed > SLOT / 2 || scratch > SLOT / 2) {
    printf("packed %lu or scratch %lu is too much\n", (unsigned long)packed, (unsigned long)scratch);
    failed++;
    return;
  }
  uint8_t *work = tail(SCRATCH, (scratch + 15) / 16 * 16 + MARGIN), *to = tail(PACKED, kept + MARGIN);
  memset(work, 0xA5, scratch + MARGIN);
  memset(to, 0xA5, kept + MARGIN);
  c.scratch = work;
  c.y = (uint8_t *)memset(tail(slot, bytes + 2 * MARGIN), 0xA5, bytes + 2 * MARGIN) + MARGIN;
  for (size_t i = 0; i < bytes && c.adds; i++) { /* what is added */
    ((uint8_t *)c.y)[i] = (uint8_t)(i * 151 ^ i >> 5);
  }
  if (packed > 0) {
    kernel->pack(&c, to);
    c.packed = to;
  }
  for (size_t task = tasks; task-- > 0;) {
    kernel->run(&c, task, tasks);
  }
  for (size_t i = 0; i < MARGIN; i++) {
    if (work[scratch + i] != 0xA5 || to[kept + i] != 0xA5) {
      printf("wrote behind %s\n", work[scratch + i] != 0xA5 ? "its scratch" : "its packed weights");
      failed++;
      return;
    }
  }
}

/* True when a level computes it in the same way whatever the padding holds. */
static int same_way(nmp_conv c, const nmp_kernels *kernels) {
  const nmp_conv_kernel *kernel = kernels->conv(&c);
  c.pad = NULL;
  return kernels->conv(&c) == kernel;
}

static void check(const char *level) {
  static int8_t exponents[1024];
  nmp_conv c = shape();
  const uint32_t widths = any(), values = any(), extreme = any() % 5;
  c.x_wide = widths & 1;
  c.w_wide = widths >> 1 & 1;
  c.y_wide = widths >> 2 & 1;
  c.bias_bits = (uint8_t)one_of(8, 16, 32, 8);
  if (nmp_conv_is_depthwise(&c) && widths >> 3 & 1) { /* as nets have them */
    c.w_wide = c.y_wide = c.x_wide;
    c.bias_bits = 8;
  }
  const size_t x_bytes = read_bytes(&c), w = (size_t)c.out * c.k, y_bytes = nmp_conv_pixels(&c) * c.out << c.y_wide;
  if (x_bytes > ROOM || w > ROOM / 2 || y_bytes > ROOM) {
    return;
  }
  c.x = integers(A, x_bytes >> c.x_wide, c.x_wide, extreme);
  /* Weights are aligned to 64 bytes; one more way of ending at the end is as good. */
  c.w = integers(B, w, c.w_wide, any() % 5);
  c.pad = values & 1 ? integers(PAD, c.in, c.x_wide, any() % 5) : NULL;
  int32_t *bias = tail(TABLE, c.out * sizeof(int32_t));
  const int spread = values >> 1 & 1 ? 8 : 31;
  for (size_t i = 0; i < c.out; i++) {
    const int32_t b = (int32_t)any() >> up_to((uint32_t)spread);
    exponents[i] = (int8_t)up_to(values >> 2 & 1 ? 62 : 6);
    if (c.bias_bits == 8) {
      ((int8_t *)(void *)bias)[i] = (int8_t)b;
    } else if (c.bias_bits == 16) {
      ((int16_t *)(void *)bias)[i] = (int16_t)b;
    } else {
      bias[i] = b;
    }
  }
  c.bias = bias;
  c.exponents = exponents;
  c.exponent_step = values >> 3 & 1;
  c.shift = values >> 2 & 1 ? 47 : 6 + (int)up_to(c.x_wide + c.w_wide ? 24 : 12);
  const int32_t most = c.y_wide ? 32767 : 127;
  c.lo = one_of(-most - 1, 0, 0, -most / 3);
  c.hi = one_of(most, most, most, most / 2);
  c.kernels = &tested;
  c.adds = (uint8_t)(any() % 3 == 0 && !(c.x_wide | c.w_wide | c.y_wide) && !nmp_conv_is_depthwise(&c));
  c.adds = c.adds && tested.conv(&c)->adds;
  compute(c, &portable, WANT, y_bytes);
  compute(c, &tested, GOT, y_bytes);
  compared++;
  if (!same_way(c, &tested) || !same_way(c, &portable)) {
    failed++;
    printf("%s computes %d channels, kernel %dx%d, in another way for its padding\n", level, (int)c.in, (int)c.v.kernel,
           (int)c.h.kernel);
  }
  if (memcmp(tail(WANT, y_bytes + 2 * MARGIN), tail(GOT, y_bytes + 2 * MARGIN), y_bytes + 2 * MARGIN) != 0) {
    failed++;
    printf(
        "%s differs: x %dx%dx%dx%d out %d groups %d kernel %dx%d widths %d%d%d bias %d shift %d lo %d hi %d adds %d\n",
        level, (int)c.images, (int)c.v.in, (int)c.h.in, (int)c.in, (int)c.out, (int)c.groups, (int)c.v.kernel,
        (int)c.h.kernel, c.x_wide, c.w_wide, c.y_wide, c.bias_bits, c.shift, (int)c.lo, (int)c.hi, c.adds);
  }
}

int main(int argc, char **argv) {
#if !__STDC_HOSTED__
  argc = 0; /* a board has no command line */
#endif
  const int count = argc > 1 ? atoi(argv[1]) : COUNT;
  (void)tail(A, 0); /* a board starts here */
  nmp_kernels_portable(&portable);
  const char *name;
  for (size_t level = 0; (name = nmp_cpu_level(level)) != NULL; level++) {
    nmp_cpu_select(name, &tested);
    printf("%s\n", name);
    for (int i = 0; i < count && (level > 0 || nmp_cpu_level(1) == NULL); i++) {
      check(name);
    }
  }
  printf("%u comparisons, %u differ\n", compared, failed);
  return failed > 0;
}
