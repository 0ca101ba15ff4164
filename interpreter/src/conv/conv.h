/* A convolution as kernels see it: plain numbers and addresses. Instruction sets choose among ways of computing it.
 *
 * A fully connected layer is a 1x1 convolution over one row of pixels.
 */
#ifndef NMP_CONV_CONV_H
#define NMP_CONV_CONV_H

#include <stddef.h>

#include "base/util.h"
#include "conv/axis.h"
#include "kernels/kernels.h"

typedef struct nmp_conv nmp_conv;
struct nmp_conv {
  nmp_axis v, h; /* vertical, horizontal; one row for a fully connected layer */
  uint32_t images, groups;
  uint32_t in, out; /* channels of a pixel of x and of y */
  uint32_t pitch;   /* on PCs: elements from a pixel of y to the next, if the kernel is pitched */
  uint32_t k;       /* products of a sum: KH * KW * in / groups */
  uint8_t x_wide, w_wide, y_wide, bias_bits; /* read by nmp_x_wide, ...; 8, 16 or 32 */
#if NMP_CONV_ADD
  uint8_t adds; /* int8 y holds what is added to each result before it is clipped; where the kernel does that */
#endif
#if NMP_TWO_MEMORIES
  uint8_t slow; /* y lies in the slow memory */
#endif
  const void *x, *w, *bias; /* [N,H,W,in], [out,KH,KW,in/groups], [out] */
  const void *pad;          /* [in], what padding holds; NULL: zeros */
  void *y;                  /* [N,OH,OW,out] */
  const int8_t *exponents;  /* of w: shift of channel c = shift - exponents[c * exponent_step] */
  int shift;
  uint32_t exponent_step; /* 0: one exponent for all channels */
  int32_t lo, hi;
  const nmp_kernels *kernels;
  int64_t over;       /* where x and y overlap: the bytes from the start of x to that of y */
  void *scratch;      /* of all workers, of one of them in run() */
  const void *packed; /* what pack() wrote */
};

/* One way of computing some convolutions; the first that claims a shape and its widths is taken, at last the portable.
 * x, y, scratch and packed may be NULL in all but run; w, bias, exponents are there from the start.
 */
typedef struct nmp_conv_kernel nmp_conv_kernel;
struct nmp_conv_kernel {
  size_t (*packed)(const nmp_conv *c);       /* bytes of weights in an order of its own; NULL: it reads w */
  void (*pack)(const nmp_conv *c, void *to); /* `to` is aligned to 64 bytes where the arena is, at least to 16 */
  size_t (*scratch)(const nmp_conv *c);      /* bytes of a worker; NULL: none */
  size_t (*tasks)(const nmp_conv *c, size_t threads);        /* how many tasks are worth making, at least 1; NULL: 1 */
  void (*run)(const nmp_conv *c, size_t task, size_t tasks); /* share `task` of `tasks`, in any order, on any thread */
  /* Rows [first, last) of y, whose first one goes to c->y; of one image. NULL: it has no such function. */
  void (*rows)(const nmp_conv *c, size_t first, size_t last);
  uint8_t pitched; /* it obeys pitch; otherwise that is `out` */
  uint8_t adds;    /* it obeys `adds` of such a convolution; each element of y is read before it is written, once */
};

static inline int nmp_x_wide(const nmp_conv *c) {
  return NMP_ONE_WIDTH(NMP_ACTIVATION_BITS, c->x_wide);
}

static inline int nmp_y_wide(const nmp_conv *c) {
  return NMP_ONE_WIDTH(NMP_ACTIVATION_BITS, c->y_wide);
}

static inline int nmp_w_wide(const nmp_conv *c) {
  return NMP_ONE_WIDTH(NMP_WEIGHT_BITS, c->w_wide);
}

static inline int nmp_conv_adds(const nmp_conv *c) {
#if NMP_CONV_ADD == 1
  return c->adds;
#else
  (void)c;
  return 0;
#endif
}

/* True when y lies in the slow one of two memories: it is no place for what is read many times. */
static inline int nmp_conv_is_slow(const nmp_conv *c) {
#if NMP_TWO_MEMORIES
  return c->slow;
#else
  (void)c;
  return 0;
#endif
}

static inline size_t nmp_conv_pixels(const nmp_conv *c) {
  return (size_t)c->images * (size_t)c->v.out * (size_t)c->h.out;
}

static inline int nmp_conv_is_depthwise(const nmp_conv *c) {
  return NMP_CONV_DEPTHWISE && c->groups == c->in && c->groups == c->out;
}

/* int8 results have another range than all of int8 and, where nothing is added, its positive half. This build knows
 * that, or not. */
static inline int nmp_conv_has_range(const nmp_conv *c) {
  return !nmp_y_wide(c) && (c->hi != 127 || (c->lo != -128 && (c->lo != 0 || nmp_conv_adds(c))));
}

static inline int nmp_conv_knows_range(const nmp_conv *c) {
  return NMP_CONV_RANGES || !nmp_conv_has_range(c);
}

/* The pixels of x are the rows of a matrix product as they are. */
static inline int nmp_conv_is_product(const nmp_conv *c) {
  const int32_t pads = c->v.before | c->v.after | c->h.before | c->h.after;
  return c->k == c->in && c->groups == 1 && (c->v.stride | c->h.stride) == 1 && pads == 0; /* strides are positive */
}

/* The same of a convolution that this build has. */
static inline int nmp_conv_is_direct(const nmp_conv *c) {
  return !NMP_CONV_WINDOWS || nmp_conv_is_product(c);
}

/* Rows [first, last) of y as a convolution of its own, where there is one image and every window holds a pixel of x. */
static inline nmp_conv nmp_conv_rows(const nmp_conv *c, int32_t first, int32_t last) {
  nmp_conv p = *c;
  int32_t from;
  p.v = nmp_axis_part(&c->v, first, last, &from);
  p.x = (const uint8_t *)c->x + ((size_t)from * (size_t)c->h.in * c->in << c->x_wide);
  return p;
}

static inline int nmp_conv_shift(const nmp_conv *c, size_t channel) {
  return c->shift - c->exponents[channel * c->exponent_step];
}

/* 1 where a channel's sums are shifted to the left: y has finer steps than they. */
static inline int nmp_conv_lifts(const nmp_conv *c) {
  for (size_t i = 0; i < c->out; i++) {
    if (nmp_conv_shift(c, i) < 0) {
      return 1;
    }
  }
  return 0;
}

static inline int32_t nmp_conv_bias(const nmp_conv *c, size_t channel) {
  return c->bias_bits == 8    ? ((const int8_t *)c->bias)[channel]
         : c->bias_bits == 16 ? ((const int16_t *)c->bias)[channel]
                              : ((const int32_t *)c->bias)[channel];
}

#endif
