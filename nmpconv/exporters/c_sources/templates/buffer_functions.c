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
