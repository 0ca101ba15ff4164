/* Sliding windows along one axis, for convolution and pooling. */
#ifndef NMP_CONV_AXIS_H
#define NMP_CONV_AXIS_H

#include <stdint.h>

typedef struct nmp_axis {
  int32_t in, out; /* pixels */
  int32_t kernel, stride, dilation, before, after;
} nmp_axis;

/* Windows of one pixel each. */
static inline nmp_axis nmp_axis_of_pixels(int32_t pixels) {
  return (nmp_axis){.in = pixels, .out = pixels, .kernel = 1, .stride = 1, .dilation = 1, .before = 0, .after = 0};
}

/* The pixel, or a place in the padding, under element k of window number `position`. */
static inline int32_t nmp_pixel(const nmp_axis *axis, int32_t position, int32_t k) {
  return position * axis->stride - axis->before + k * axis->dilation;
}

/* Windows [first, last) as an axis of their own, which begins at the pixel `from`; each window holds a pixel. */
static inline nmp_axis nmp_axis_part(const nmp_axis *axis, int32_t first, int32_t last, int32_t *from) {
  const int32_t start = nmp_pixel(axis, first, 0), end = nmp_pixel(axis, last - 1, axis->kernel - 1) + 1;
  nmp_axis part = *axis;
  *from = start < 0 ? 0 : start;
  part.in = (end < axis->in ? end : axis->in) - *from;
  part.out = last - first;
  part.before = *from - start;
  part.after = end - *from - part.in;
  return part;
}

static inline int nmp_inside(const nmp_axis *axis, int32_t pixel) {
  return pixel >= 0 && pixel < axis->in;
}

/* The elements [first, last) of window number `position` that are pixels and not padding, first <= last <= kernel: none
 * of a window that lies in the padding. */
static inline void nmp_clip(const nmp_axis *axis, int32_t position, int32_t *first, int32_t *last) {
  const int32_t start = nmp_pixel(axis, position, 0), d = axis->dilation;
  *first = 0;
  *last = axis->kernel;
  if (start >= 0 && nmp_pixel(axis, position, axis->kernel - 1) < axis->in) {
    return; /* without the divisions: most windows */
  }
  const int32_t end = axis->in > start ? (axis->in - start - 1) / d + 1 : 0; /* elements before the end of the input */
  const int32_t begin = start < 0 ? (-start - 1) / d + 1 : 0;                /* elements before the first pixel */
  *last = end < axis->kernel ? end : axis->kernel;
  *first = begin < *last ? begin : *last;
}

#endif
