/* The integers of an input are (number - offset) / scale, rounded half up. `step` numbers share each of the `count`
 * scales and offsets.
 */
static inline void fill_from_numbers(const nmp_view *to, const float *numbers, const float *scales,
                                     const float *offsets, size_t count, size_t step) {
  for (size_t i = 0; i < to->bytes * 8 / to->bits; i++) {
    const size_t unit = i / step % count;
    const float q = (numbers[i] - offsets[unit]) / scales[unit];
    int32_t rounded = to->clip_max;
    if (q < (float)to->clip_max) {
      const int32_t whole = q > (float)to->clip_min ? (int32_t)q : to->clip_min; /* towards 0 */
      const float rest = q > (float)to->clip_min ? q - (float)whole : 0;
      rounded = whole + (rest >= 0.5f) - (rest < -0.5f);
    }
    if (to->bits == 8) {
      ((int8_t *)to->data)[i] = (int8_t)rounded;
    } else {
      ((int16_t *)to->data)[i] = (int16_t)rounded;
    }
  }
}
