/* The middle of a frame becomes an input: nmp_image.h has other formats and a filter that reads fewer pixels. */
static inline void fill_from_frame(const nmp_view *to, const uint8_t *pixels, const nmp_image_input *input) {
  static uint32_t scratch[NMP_IMAGE_SCRATCH(FRAME_WIDTH, 3)];
  nmp_image_frame frame = {pixels, 2 * FRAME_WIDTH * FRAME_HEIGHT, 2 * FRAME_WIDTH, NMP_IMAGE_RGB565_BE, 0, 0,
                           FRAME_WIDTH, FRAME_HEIGHT};
  if (nmp_image_cover(&frame, input) == NMP_OK) {
    const size_t elements = sizeof(scratch) / sizeof(scratch[0]);
    nmp_image_fill(&frame, input, NMP_IMAGE_BILINEAR, to->data, to->bytes, scratch, elements);
  }
}
