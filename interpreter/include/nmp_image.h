/* A camera's frame as the integers of a model's input: decoded, cropped, resized and put on the input's grid.
 *
 * Integers only, no allocation, no globals. schema/FORMAT.md has the formula ("Frames of a camera"), numpy the same
 * bytes (nmpconv/data/camera.py). A program that calls none of this has none of it in flash.
 */
#ifndef NMP_IMAGE_H
#define NMP_IMAGE_H

#include "nmp.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NMP_IMAGE_SIDE_MAX 4096 /* pixels of a frame's side */
#define NMP_IMAGE_SHRINK_MAX 64 /* times that a side may shrink */

typedef enum nmp_image_format {
  NMP_IMAGE_GRAY = 0,      /* a byte a pixel */
  NMP_IMAGE_RGB888 = 1,    /* red, green, blue */
  NMP_IMAGE_RGB565 = 2,    /* 16 bits, the low byte first */
  NMP_IMAGE_RGB565_BE = 3, /* the high byte first, as many camera modules send it */
  NMP_IMAGE_YUYV = 4       /* two pixels in four bytes: Y, U, Y, V, of BT.601 with the full range */
} nmp_image_format;

typedef enum nmp_image_filter {
  NMP_IMAGE_BILINEAR = 0, /* a triangle over all pixels under it: what nmpconv prepares images with */
  NMP_IMAGE_AREA = 1      /* the mean of the pixels that an output pixel covers: fewer reads */
} nmp_image_filter;

/* bytes: of pixels. stride: bytes from a row to the next. left, top, width, height: what is taken of it, in pixels. */
typedef struct nmp_image_frame {
  const uint8_t *pixels;
  size_t bytes, stride;
  nmp_image_format format;
  uint32_t left, top, width, height;
} nmp_image_frame;

/* An input of a model; a bundle's header has it as NAME_INPUT_0_IMAGE. channels: 1 (gray) or 3. bgr: blue first.
 * The integer of a pixel p is (p * factor[c] + bias[c]) / 2^shift, rounded, within clip_min and clip_max.
 */
typedef struct nmp_image_input {
  uint32_t width, height, channels, bgr, bits, shift;
  int32_t clip_min, clip_max;
  int32_t factor[3], bias[3];
} nmp_image_input;

/* Elements of the scratch for what is taken of a frame. */
#define NMP_IMAGE_SCRATCH(width, channels) ((size_t)(width) * (channels))

/* Takes the largest part of a frame in its middle that has the input's proportions. */
nmp_status nmp_image_cover(nmp_image_frame *frame, const nmp_image_input *input);

/* Writes the input's integers, [height, width, channels]. to: `bytes` of them, aligned for their type, as nmp_input
 * gives them. scratch: `elements` of 32 bits, at least NMP_IMAGE_SCRATCH(frame->width, input->channels).
 * NMP_E_ARGUMENT where a size does not fit; nothing is written then.
 */
nmp_status nmp_image_fill(const nmp_image_frame *frame, const nmp_image_input *input, nmp_image_filter filter, void *to,
                          size_t bytes, uint32_t *scratch, size_t elements);

#ifdef __cplusplus
}
#endif

#endif
