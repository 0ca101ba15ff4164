#include "ops/common/window.h"

nmp_rule nmp_check_axis(const nmp_axis *a) {
  NMP_REQUIRE(a->stride >= 1, "stride", a->stride, 1);
  NMP_REQUIRE(a->stride <= NMP_SIDE_MAX, "stride", a->stride, NMP_SIDE_MAX);
  NMP_REQUIRE(a->dilation >= 1, "dilation", a->dilation, 1);
  NMP_REQUIRE(a->dilation <= NMP_SIDE_MAX, "dilation", a->dilation, NMP_SIDE_MAX);
  NMP_REQUIRE(a->before >= 0, "padding", a->before, 0);
  NMP_REQUIRE(a->before <= NMP_SIDE_MAX, "padding", a->before, NMP_SIDE_MAX);
  NMP_REQUIRE(a->after >= 0, "padding", a->after, 0);
  NMP_REQUIRE(a->after <= NMP_SIDE_MAX, "padding", a->after, NMP_SIDE_MAX);
  NMP_REQUIRE(a->kernel >= 1, "kernel", a->kernel, 1);
  const int64_t padded = (int64_t)a->in + a->before + a->after;
  const int64_t extent = (int64_t)a->dilation * (a->kernel - 1) + 1;
  NMP_REQUIRE(padded <= INT32_MAX, "pixels with padding", padded, INT32_MAX);
  NMP_REQUIRE(extent <= padded, "extent of the kernel", extent, padded);
  const int32_t out = (int32_t)(padded - extent) / a->stride + 1;
  NMP_REQUIRE(a->out == out, "output size", a->out, out);
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
