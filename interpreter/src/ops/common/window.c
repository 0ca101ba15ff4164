#include "ops/common/window.h"

nmp_rule nmp_check_axis(const nmp_axis *a) {
  NMP_COMPARE(a->stride, >=, 1, "stride");
  NMP_COMPARE(a->stride, <=, NMP_SIDE_MAX, "stride");
  NMP_COMPARE(a->dilation, >=, 1, "dilation");
  NMP_COMPARE(a->dilation, <=, NMP_SIDE_MAX, "dilation");
  NMP_COMPARE(a->before, >=, 0, "padding");
  NMP_COMPARE(a->before, <=, NMP_SIDE_MAX, "padding");
  NMP_COMPARE(a->after, >=, 0, "padding");
  NMP_COMPARE(a->after, <=, NMP_SIDE_MAX, "padding");
  NMP_COMPARE(a->kernel, >=, 1, "kernel");
  const int64_t padded = (int64_t)a->in + a->before + a->after;
  const int64_t extent = (int64_t)a->dilation * (a->kernel - 1) + 1;
  NMP_COMPARE(padded, <=, INT32_MAX, "pixels with padding");
  NMP_COMPARE(extent, <=, padded, "extent of the kernel");
  const int32_t out = (int32_t)(padded - extent) / a->stride + 1;
  NMP_COMPARE(a->out, ==, out, "output size");
  return NMP_FINE;
}

nmp_rule nmp_check_hits(const nmp_axis *axis) {
  const int32_t end = nmp_pixel(axis, axis->out - 1, 0);
  NMP_REQUIRE(end < axis->in, "window that starts in the padding after the input", end, axis->in - 1);
  /* A window that starts on a pixel holds it; the others are those that start in the padding before. */
  for (int32_t position = 0; position < axis->out && nmp_pixel(axis, position, 0) < 0; position++) {
    int32_t first, last;
    nmp_clip(axis, position, &first, &last);
    NMP_REQUIRE(first < last, "window that sees only padding", position, 0);
  }
  return NMP_FINE;
}
