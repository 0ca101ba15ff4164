/* Matrix products in blocks of four pixels and two channels (conv_plain32_blocks.c), whose patches are gathered side by
 * side into the scratch. Depthwise 3x3 has a way of its own (conv_plain32_depthwise.c), and so have fewer than four
 * pixels of int8 (conv_plain32_gemv.c). Others, and other depthwise convolutions, are left to the portable way.
 */
#include "arch/plain32/conv_plain32.h"

#ifdef NMP_PLAIN32

#include "conv/patch.h"

#define PIXELS NMP_PLAIN32_PIXELS

/* True when each four neighbouring weights from a multiple of four on are at most `limit` in all. */
#define LIGHT(name, W)                                                                               \
  static int name(const W *w, size_t k, int32_t limit) {                                             \
    for (const W *end = w + k / 4 * 4; w < end; w += 4) {                                            \
      const int32_t a = w[0], b = w[1], c = w[2], d = w[3];                                          \
      const int32_t sum = (a < 0 ? -a : a) + (b < 0 ? -b : b) + (c < 0 ? -c : c) + (d < 0 ? -d : d); \
      if (sum > limit) {                                                                             \
        return 0;                                                                                    \
      }                                                                                              \
    }                                                                                                \
    return 1;                                                                                        \
  }

LIGHT(light_8, int8_t)
LIGHT(light_16, int16_t)

/* 255 * 128 is less than 2^15; 65533 * 2^15 is less than 2^31 by more than 16 bits. */
static int is_light(const nmp_conv *c, size_t channel) {
  return nmp_w_wide(c) ? light_16((const int16_t *)c->w + channel * c->k, c->k, 65533)
                       : light_8((const int8_t *)c->w + channel * c->k, c->k, 255);
}

static void look_at_weights(const nmp_conv *c, uint8_t *by_fours) {
  const size_t channels = nmp_plain32_out_per_group(c);
  for (size_t group = 0; group < c->groups && nmp_plain32_flags(c); group++) {
    for (size_t i = 0; i < channels; i += 2) {
      const size_t channel = group * channels + i;
      *by_fours++ = (uint8_t)(is_light(c, channel) && (i + 1 == channels || is_light(c, channel + 1)));
    }
  }
}

/* Place that the next element of a patch goes to. */
typedef struct cursor {
  uint8_t *to;
  int second; /* the high half of a word of two int8 factors */
} cursor;

/* n steps of TO, one pixel's place of each. */
#define EMIT(TO, STEP)            \
  {                               \
    TO *to = (TO *)(void *)t->to; \
    _Pragma("GCC unroll 4") for (; n > 0; n--, to += STEP)
#define EMITTED          \
  t->to = (uint8_t *)to; \
  }

/* n elements of a pixel's patch. */
static void emit(const nmp_conv *c, cursor *t, const uint8_t *x, size_t n) {
  const int8_t *narrow = (const int8_t *)x;
  const int16_t *wide = (const int16_t *)(const void *)x;
  if (nmp_x_wide(c)) {
    EMIT(int16_t, PIXELS) *to = *wide++;
    EMITTED
  } else if (nmp_w_wide(c)) {
    EMIT(int8_t, PIXELS) *to = *narrow++;
    EMITTED
  } else if (t->second) {
    EMIT(int32_t, PIXELS / 2) *to -= *narrow++ * 65536;
    EMITTED
  } else {
    EMIT(int32_t, PIXELS / 2) *to = *narrow++;
    EMITTED
  }
}

static void emit_zeros(const nmp_conv *c, cursor *t, size_t n) {
  if (nmp_x_wide(c)) {
    EMIT(int16_t, PIXELS) *to = 0;
    EMITTED
  } else if (nmp_w_wide(c)) {
    EMIT(int8_t, PIXELS) *to = 0;
    EMITTED
  } else if (t->second) {
    t->to += n * (PIXELS / 2) * sizeof(int32_t);
  } else {
    EMIT(int32_t, PIXELS / 2) *to = 0;
    EMITTED
  }
}

static void gather(const nmp_conv *c, nmp_place at, size_t group, cursor t) {
  const size_t per_group = c->in / c->groups, first = group * per_group;
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t iy = nmp_pixel(&c->v, at.y, ky);
    int32_t run;
    for (int32_t kx = 0; kx < c->h.kernel; kx += run) {
      const int32_t ix = nmp_pixel(&c->h, at.x, kx);
      run = 1;
      if (nmp_inside(&c->v, iy) && nmp_inside(&c->h, ix)) {
        if (c->h.dilation == 1 && c->groups == 1) {
          run = c->h.kernel - kx < c->h.in - ix ? c->h.kernel - kx : c->h.in - ix;
        }
        emit(c, &t, nmp_element(c, at, iy, ix, first), (size_t)run * per_group);
      } else if (c->pad) {
        emit(c, &t, nmp_padding(c, first), per_group);
      } else {
        emit_zeros(c, &t, per_group);
      }
    }
  }
}

/* Pixels of int8 that are patches as they are. */
static void pair_pixels(const nmp_conv *c, const int8_t *first, size_t pixels, int32_t *to) {
  const size_t k = c->k;
  const int8_t *second = first + (pixels > 1 ? k : 0), *third = second + (pixels > 2 ? k : 0);
  const int8_t *fourth = third + (pixels > 3 ? k : 0);
  _Pragma("GCC unroll 4") for (size_t i = 0; i < k; i++, to += 2) {
    to[0] = first[i] - second[i] * 65536;
    to[1] = third[i] - fourth[i] * 65536;
  }
}

/* Pixels that are not there are copies of the last one. */
static void gather_all(const nmp_conv *c, size_t pixel, size_t pixels, size_t group, uint8_t *patches) {
  if (!nmp_x_wide(c) && !nmp_w_wide(c) && nmp_conv_is_direct(c)) {
    pair_pixels(c, (const int8_t *)c->x + pixel * c->k, pixels, (int32_t *)(void *)patches);
    return;
  }
  for (size_t p = 0; p < PIXELS; p++) {
    const int paired = !nmp_plain32_is_wide(c);
    const size_t place = paired ? p / 2 * sizeof(int32_t) : p << nmp_x_wide(c);
    const cursor t = {.to = patches + place, .second = paired && p % 2};
    gather(c, nmp_locate(c, pixel + (p < pixels ? p : pixels - 1)), group, t);
  }
}

static void run_channels(const nmp_conv *c, const uint8_t *patches, const uint8_t *by_fours, size_t pixel,
                         size_t pixels, size_t group) {
  nmp_channels_plain32 *compute = nmp_x_wide(c)   ? nmp_w_wide(c) ? nmp_conv_plain32_16x16 : nmp_conv_plain32_16x8
                                  : nmp_w_wide(c) ? nmp_conv_plain32_8x16
                                                  : nmp_conv_plain32_8x8;
  const size_t channels = nmp_plain32_out_per_group(c), first = group * channels;
  compute(c, patches, by_fours ? by_fours + group * nmp_plain32_pairs(c) : NULL, pixel, pixels, first,
          first + channels);
}

static void plain32_run(const nmp_conv *c, size_t task, size_t tasks) {
  uint8_t *patches = c->scratch, *by_fours = nmp_plain32_flags(c) ? patches + nmp_plain32_patches_bytes(c) : NULL;
  const size_t all = nmp_conv_pixels(c);
  (void)task;
  (void)tasks;
  look_at_weights(c, by_fours);
  for (size_t pixel = 0; pixel < all; pixel += PIXELS) {
    const size_t pixels = all - pixel < PIXELS ? all - pixel : PIXELS;
    for (size_t group = 0; group < c->groups; group++) {
      gather_all(c, pixel, pixels, group, patches);
      run_channels(c, patches, by_fours, pixel, pixels, group);
    }
  }
}

const nmp_conv_kernel *nmp_conv_plain32(const nmp_conv *c) {
  static const nmp_conv_kernel plain32 = {.scratch = nmp_plain32_blocks_scratch, .run = plain32_run, .adds = 1};
  static const nmp_conv_kernel gemv = {.run = nmp_conv_plain32_gemv, .adds = 1};
  const nmp_conv_kernel *depthwise = nmp_conv_plain32_depthwise(c);
  return depthwise                  ? depthwise
         : nmp_plain32_is_blocks(c) ? &plain32
         : nmp_plain32_is_gemv(c)   ? &gemv
                                    : nmp_conv_portable(c);
}

#endif
