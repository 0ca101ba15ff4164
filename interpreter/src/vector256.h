/* What kernels of one source for several instruction sets call: 256 bits. Included between NMP_TARGET_BEGIN and END;
 * VNNI: the target has the dot products of VNNI.
 */
#define LANES 8     /* of 32 bits */
#define AT_ONCE 1   /* blocks of 4 vectors whose sums fit the registers */
#define HAS_MASKS 0 /* a part of a vector is loaded as fast as all of it */
#define HAS_ACROSS 1
typedef __m256i vector;

static NMP_INLINE vector load(const void *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}

/* The first n bytes, and zeros. */
static NMP_INLINE vector load_bytes(const void *p, size_t n) {
  uint8_t copy[32] = {0};
  memcpy(copy, p, n);
  return load(copy);
}

static NMP_INLINE void save(void *p, vector v) {
  _mm256_storeu_si256((__m256i *)p, v);
}

/* A part of a vector that is loaded as fast as all of it: PART(bytes) of as many. */
#define PART(bytes) ((bytes) < 16 ? 0 : (size_t)16)
static NMP_INLINE vector load_part(const void *p, size_t bytes) {
  (void)bytes;
  return _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

static NMP_INLINE void save_part(void *p, vector v, size_t bytes) {
  (void)bytes;
  _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(v));
}

static NMP_INLINE vector zero(void) {
  return _mm256_setzero_si256();
}

static NMP_INLINE vector set8(int32_t a) {
  return _mm256_set1_epi8((char)a);
}

static NMP_INLINE vector set16(int32_t a) {
  return _mm256_set1_epi16((short)a);
}

static NMP_INLINE vector set32(int32_t a) {
  return _mm256_set1_epi32(a);
}

/* The highest bit of each byte changed. */
static NMP_INLINE vector flip(vector v) {
  return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80));
}

static NMP_INLINE vector min16(vector a, vector b) {
  return _mm256_min_epi16(a, b);
}

static NMP_INLINE vector max16(vector a, vector b) {
  return _mm256_max_epi16(a, b);
}

static NMP_INLINE vector max8(vector a, vector b) {
  return _mm256_max_epi8(a, b);
}

static NMP_INLINE vector min8(vector a, vector b) {
  return _mm256_min_epi8(a, b);
}

static NMP_INLINE vector add16(vector a, vector b) {
  return _mm256_add_epi16(a, b);
}

/* int16 as int32 */
static NMP_INLINE void save_wide(int32_t *to, vector v) {
  save(to, _mm256_cvtepi16_epi32(_mm256_castsi256_si128(v)));
  save(to + LANES, _mm256_cvtepi16_epi32(_mm256_extracti128_si256(v, 1)));
}

/* int8 as int16, and int16 saturated to int8 */
static NMP_INLINE vector load_wide(const void *from) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)from));
}

/* LANES of int16 as int32 */
static NMP_INLINE vector load_long(const void *from) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)from));
}

/* LANES of int8 as int32 */
static NMP_INLINE vector load_longer(const void *from) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
}

static NMP_INLINE vector widen(vector lower_half) {
  return _mm256_cvtepi8_epi16(_mm256_castsi256_si128(lower_half));
}

static NMP_INLINE void save_narrow(void *to, vector v) {
  const vector bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(v, v), 0xD8);
  _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(bytes));
}

/* Pairs of int16 in the lower and upper half of each lane of 128 bits; saturate16 undoes both. */
typedef vector pair;

static NMP_INLINE pair pair_low(vector a, vector b) {
  return _mm256_unpacklo_epi16(a, b);
}

static NMP_INLINE pair pair_high(vector a, vector b) {
  return _mm256_unpackhi_epi16(a, b);
}

static NMP_INLINE pair set_pairs(int32_t a, int32_t b) {
  return set32((int32_t)((uint32_t)b << 16 | (uint32_t)a));
}

static NMP_INLINE vector saturate16(vector low, vector high) {
  return _mm256_packs_epi32(low, high);
}

static NMP_INLINE vector shift_all16(vector a, int by) {
  return _mm256_sra_epi16(a, _mm_cvtsi32_si128(by));
}

#define HAS_BYTE_PAIRS 1
/* Pairs of bytes as pair_low and pair_high have them of int16; saturate8 undoes both. */
static NMP_INLINE pair byte_pair_low(vector a, vector b) {
  return _mm256_unpacklo_epi8(a, b);
}

static NMP_INLINE pair byte_pair_high(vector a, vector b) {
  return _mm256_unpackhi_epi8(a, b);
}

static NMP_INLINE vector saturate8(vector low, vector high) {
  return _mm256_packs_epi16(low, high);
}

/* uint8 times int8, both products of a pair in int16. */
static NMP_INLINE vector multiply_byte_pairs(pair x, pair w) {
  return _mm256_maddubs_epi16(x, w);
}

static NMP_INLINE vector shift_all(vector a, int by) {
  return _mm256_sra_epi32(a, _mm_cvtsi32_si128(by));
}

static NMP_INLINE vector add(vector a, vector b) {
  return _mm256_add_epi32(a, b);
}

static NMP_INLINE vector shift_right(vector a, vector by) {
  return _mm256_srav_epi32(a, by);
}

static NMP_INLINE vector shift_right_8(vector a) {
  return _mm256_srai_epi32(a, 8);
}

#ifdef VNNI
#define HAS_QUADS 1
static NMP_INLINE vector dot_quads(vector sum, vector x, vector w) {
  return _mm256_dpbusd_avx_epi32(sum, x, w);
}

static NMP_INLINE vector dot_pairs(vector sum, vector x, vector w) {
  return _mm256_dpwssd_avx_epi32(sum, x, w);
}
#else
#define HAS_QUADS 0
/* In the same register: compilers may add to another one, and copy each sum back. */
static NMP_INLINE vector dot_pairs(vector sum, vector x, vector w) {
  const vector products = _mm256_madd_epi16(x, w);
  __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
  return sum;
}

static NMP_INLINE vector dot_quads(vector sum, vector x, vector w) {
  (void)x;
  (void)w;
  return sum;
}
#endif

static NMP_INLINE vector multiply_low(vector sum, vector a, vector b) {
  return dot_pairs(sum, pair_low(a, zero()), pair_low(b, zero()));
}

static NMP_INLINE vector multiply_high(vector sum, vector a, vector b) {
  return dot_pairs(sum, pair_high(a, zero()), pair_high(b, zero()));
}

/* Lane i of `to`: byte i of each of 4 rows. In dwords, lanes of 128 bits are left by the unpacking as rows of a matrix;
 * it is transposed before.
 */
static NMP_INLINE void interleave_quads(int32_t *to, const vector rows[4]) {
  const vector order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  vector x[4];
  for (int i = 0; i < 4; i++) {
    x[i] = _mm256_permutevar8x32_epi32(rows[i], order);
  }
  const vector ab = _mm256_unpacklo_epi8(x[0], x[1]), ab2 = _mm256_unpackhi_epi8(x[0], x[1]);
  const vector cd = _mm256_unpacklo_epi8(x[2], x[3]), cd2 = _mm256_unpackhi_epi8(x[2], x[3]);
  save(to, _mm256_unpacklo_epi16(ab, cd));
  save(to + LANES, _mm256_unpackhi_epi16(ab, cd));
  save(to + 2 * LANES, _mm256_unpacklo_epi16(ab2, cd2));
  save(to + 3 * LANES, _mm256_unpackhi_epi16(ab2, cd2));
}

/* Lane i of `to`: element i of each of 2 rows of int16. */
static NMP_INLINE void interleave_pairs(int32_t *to, vector a, vector b) {
  a = _mm256_permute4x64_epi64(a, 0xD8);
  b = _mm256_permute4x64_epi64(b, 0xD8);
  save(to, _mm256_unpacklo_epi16(a, b));
  save(to + LANES, _mm256_unpackhi_epi16(a, b));
}

static NMP_INLINE void save_some(void *to, vector v, size_t bytes) {
  uint8_t copy[32];
  save(copy, v);
  memcpy(to, copy, bytes);
}

/* The first n of 32 sums, saturated. */
static NMP_INLINE void store8(uint8_t *y, const vector sums[4], vector lo, vector hi, size_t n) {
  const vector order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  vector v = _mm256_packs_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
  v = _mm256_max_epi8(_mm256_min_epi8(v, hi), lo);
  v = _mm256_permutevar8x32_epi32(v, order);
  if (n == 4 * LANES) {
    save(y, v);
  } else {
    save_some(y, v, n);
  }
}

static NMP_INLINE void store16(uint8_t *y, const vector sums[4], vector lo, vector hi, size_t n) {
  for (size_t i = 0; i < 4 && i * LANES < n; i += 2, y += 32) {
    vector v = _mm256_permute4x64_epi64(_mm256_packs_epi32(sums[i], sums[i + 1]), 0xD8);
    v = _mm256_max_epi16(_mm256_min_epi16(v, hi), lo);
    if (n >= (i + 2) * LANES) {
      save(y, v);
    } else {
      save_some(y, v, (n - i * LANES) * 2);
    }
  }
}

/* 2 or 4 vectors of sums, saturated, `advance` bytes from each other. */
static NMP_INLINE void save_across(uint8_t *y, size_t advance, const vector sums[4], vector lo, vector hi, size_t count,
                                   int y_wide) {
  const vector order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (size_t i = 0; y_wide && i < count; i += 2, y += 2 * advance) {
    vector v = _mm256_permute4x64_epi64(_mm256_packs_epi32(sums[i], sums[i + 1]), 0xD8);
    v = _mm256_max_epi16(_mm256_min_epi16(v, hi), lo);
    _mm_storeu_si128((__m128i *)(void *)y, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(void *)(y + advance), _mm256_extracti128_si256(v, 1));
  }
  if (y_wide) {
    return;
  }
  vector v = _mm256_packs_epi32(sums[0], sums[1]);
  v = _mm256_packs_epi16(v, count > 2 ? _mm256_packs_epi32(sums[2], sums[3]) : v);
  v = _mm256_permutevar8x32_epi32(_mm256_max_epi8(_mm256_min_epi8(v, hi), lo), order);
  const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
  _mm_storel_epi64((__m128i *)(void *)y, low);
  _mm_storeh_pi((__m64 *)(void *)(y + advance), _mm_castsi128_ps(low));
  if (count > 2) {
    _mm_storel_epi64((__m128i *)(void *)(y + 2 * advance), high);
    _mm_storeh_pi((__m64 *)(void *)(y + 3 * advance), _mm_castsi128_ps(high));
  }
}
