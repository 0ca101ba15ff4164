/* The integers of an input are (number - offset) / scale, rounded. */
static inline void fill_from_numbers(const nmp_view *to, const float *numbers, float scale, float offset) {
  for (size_t i = 0; i < to->bytes * 8 / to->bits; i++) {
    const float q = (numbers[i] - offset) / scale;
    int32_t rounded = to->clip_max;
    if (q < (float)to->clip_max) {
      rounded = q > (float)to->clip_min ? (int32_t)(q < 0 ? q - 0.5f : q + 0.5f) : to->clip_min;
    }
    if (to->bits == 8) {
      ((int8_t *)to->data)[i] = (int8_t)rounded;
    } else {
      ((int16_t *)to->data)[i] = (int16_t)rounded;
    }
  }
}

static long element(const nmp_view *view, long i) {
  return view->bits == 8 ? ((const int8_t *)view->data)[i] : ((const int16_t *)view->data)[i];
}

/* Index of the largest element: the class, where the output is one score a class. */
static long largest(const nmp_view *view) {
  const long count = (long)(view->bytes * 8 / view->bits);
  long best = 0;
  for (long i = 1; i < count; i++) {
    best = element(view, i) > element(view, best) ? i : best;
  }
  return best;
}
