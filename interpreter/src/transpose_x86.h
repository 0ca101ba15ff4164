/* Matrices of 8 x 8 elements are transposed in registers. Included between NMP_TARGET_BEGIN and END, after the loops.
 */
#define SIDE 8
#define LINE 64 /* bytes of a line of a cache, which the rows of a block fill */

/* 8 rows of 8 bytes, x_stride apart, become the columns of y. */
static NMP_INLINE void turn_8(uint8_t *y, size_t y_stride, const uint8_t *x, size_t x_stride) {
  __m128i v[8], w[4];
  for (size_t i = 0; i < 8; i++) {
    v[i] = _mm_loadl_epi64((const __m128i *)(const void *)(x + i * x_stride));
  }
  for (size_t i = 0; i < 4; i++) {
    w[i] = _mm_unpacklo_epi8(v[2 * i], v[2 * i + 1]);
  }
  v[0] = _mm_unpacklo_epi16(w[0], w[1]);
  v[1] = _mm_unpackhi_epi16(w[0], w[1]);
  v[2] = _mm_unpacklo_epi16(w[2], w[3]);
  v[3] = _mm_unpackhi_epi16(w[2], w[3]);
  for (size_t i = 0; i < 4; i++) {
    const __m128i a = v[i / 2], b = v[2 + i / 2];
    const __m128i two = i % 2 ? _mm_unpackhi_epi32(a, b) : _mm_unpacklo_epi32(a, b);
    _mm_storel_epi64((__m128i *)(void *)(y + 2 * i * y_stride), two);
    _mm_storel_epi64((__m128i *)(void *)(y + (2 * i + 1) * y_stride), _mm_unpackhi_epi64(two, two));
  }
}

static NMP_INLINE void turn_16(int16_t *y, size_t y_stride, const int16_t *x, size_t x_stride) {
  __m128i v[8], w[8];
  for (size_t i = 0; i < 8; i++) {
    v[i] = _mm_loadu_si128((const __m128i *)(const void *)(x + i * x_stride));
  }
  for (size_t i = 0; i < 4; i++) { /* rows 2i and 2i + 1 */
    w[i] = _mm_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    w[4 + i] = _mm_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (size_t half = 0; half < 8; half += 4) { /* columns 0..3 and 4..7 */
    const __m128i a = _mm_unpacklo_epi32(w[half], w[half + 1]), b = _mm_unpackhi_epi32(w[half], w[half + 1]);
    const __m128i c = _mm_unpacklo_epi32(w[half + 2], w[half + 3]), d = _mm_unpackhi_epi32(w[half + 2], w[half + 3]);
    _mm_storeu_si128((__m128i *)(void *)(y + half * y_stride), _mm_unpacklo_epi64(a, c));
    _mm_storeu_si128((__m128i *)(void *)(y + (half + 1) * y_stride), _mm_unpackhi_epi64(a, c));
    _mm_storeu_si128((__m128i *)(void *)(y + (half + 2) * y_stride), _mm_unpacklo_epi64(b, d));
    _mm_storeu_si128((__m128i *)(void *)(y + (half + 3) * y_stride), _mm_unpackhi_epi64(b, d));
  }
}

/* The last matrix of a row or a column has some of the one before. */
#define FAST_TRANSPOSE(bits, X)                                                                \
  static NMP_TRANSPOSE(fast_transpose_##bits) {                                                \
    const size_t block = LINE / sizeof(X);                                                     \
    if (rows < SIDE || n < SIDE) {                                                             \
      transpose_##bits(y, x, x_stride, rows, n);                                               \
      return;                                                                                  \
    }                                                                                          \
    for (size_t top = 0; top < rows; top += block) {                                           \
      for (size_t left = 0; left < n; left += SIDE) {                                          \
        const size_t i = left + SIDE <= n ? left : n - SIDE;                                   \
        for (size_t row = top; row < rows && row < top + block; row += SIDE) {                 \
          const size_t r = row + SIDE <= rows ? row : rows - SIDE;                             \
          turn_##bits((X *)y + i * rows + r, rows, (const X *)x + r * x_stride + i, x_stride); \
        }                                                                                      \
      }                                                                                        \
    }                                                                                          \
  }

FAST_TRANSPOSE(8, uint8_t)
FAST_TRANSPOSE(16, int16_t)

static void transposes(nmp_kernels *kernels) {
  kernels->transpose[0] = fast_transpose_8;
  kernels->transpose[1] = fast_transpose_16;
}
