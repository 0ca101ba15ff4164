/* vector256.h for 512 bits. */
#define LANES 16
#define AT_ONCE 2
#define HAS_MASKS 1
#define HAS_ACROSS 0
typedef __m512i vector;

static NMP_INLINE vector load(const void *p) {
  return _mm512_loadu_si512(p);
}

/* The first n bytes, and zeros. */
static NMP_INLINE vector load_bytes(const void *p, size_t n) {
  return _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, p);
}

static NMP_INLINE void save(void *p, vector v) {
  _mm512_storeu_si512(p, v);
}

#define PART(bytes) (bytes)
static NMP_INLINE vector load_part(const void *p, size_t bytes) {
  return load_bytes(p, bytes);
}

static NMP_INLINE void save_part(void *p, vector v, size_t bytes) {
  _mm512_mask_storeu_epi8(p, ((__mmask64)1 << bytes) - 1, v);
}

static NMP_INLINE vector zero(void) {
  return _mm512_setzero_si512();
}

static NMP_INLINE vector set8(int32_t a) {
  return _mm512_set1_epi8((char)a);
}

static NMP_INLINE vector set16(int32_t a) {
  return _mm512_set1_epi16((short)a);
}

static NMP_INLINE vector set32(int32_t a) {
  return _mm512_set1_epi32(a);
}

/* The highest bit of each byte changed. */
static NMP_INLINE vector flip(vector v) {
  return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
}

static NMP_INLINE vector min16(vector a, vector b) {
  return _mm512_min_epi16(a, b);
}

static NMP_INLINE vector max16(vector a, vector b) {
  return _mm512_max_epi16(a, b);
}

static NMP_INLINE vector max8(vector a, vector b) {
  return _mm512_max_epi8(a, b);
}

static NMP_INLINE vector min8(vector a, vector b) {
  return _mm512_min_epi8(a, b);
}

static NMP_INLINE vector add16(vector a, vector b) {
  return _mm512_add_epi16(a, b);
}

/* int16 as int32 */
static NMP_INLINE void save_wide(int32_t *to, vector v) {
  save(to, _mm512_cvtepi16_epi32(_mm512_castsi512_si256(v)));
  save(to + LANES, _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(v, 1)));
}

/* int8 as int16, and int16 saturated to int8 */
static NMP_INLINE vector load_wide(const void *from) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)from));
}

/* LANES of int16 as int32 */
static NMP_INLINE vector load_long(const void *from) {
  return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)from));
}

/* LANES of int8 as int32 */
static NMP_INLINE vector load_longer(const void *from) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
}

static NMP_INLINE vector widen(vector lower_half) {
  return _mm512_cvtepi8_epi16(_mm512_castsi512_si256(lower_half));
}

static NMP_INLINE void save_narrow(void *to, vector v) {
  _mm256_storeu_si256((__m256i *)to, _mm512_cvtsepi16_epi8(v));
}

/* Pairs of int16 in the lower and upper half of each lane of 128 bits; saturate16 undoes both. */
typedef vector pair;

static NMP_INLINE pair pair_low(vector a, vector b) {
  return _mm512_unpacklo_epi16(a, b);
}

static NMP_INLINE pair pair_high(vector a, vector b) {
  return _mm512_unpackhi_epi16(a, b);
}

static NMP_INLINE pair set_pairs(int32_t a, int32_t b) {
  return set32((int32_t)((uint32_t)b << 16 | (uint32_t)a));
}

static NMP_INLINE vector saturate16(vector low, vector high) {
  return _mm512_packs_epi32(low, high);
}

static NMP_INLINE vector shift_all16(vector a, int by) {
  return _mm512_sra_epi16(a, _mm_cvtsi32_si128(by));
}

#define HAS_BYTE_PAIRS 1
/* Pairs of bytes as pair_low and pair_high have them of int16; saturate8 undoes both. */
static NMP_INLINE pair byte_pair_low(vector a, vector b) {
  return _mm512_unpacklo_epi8(a, b);
}

static NMP_INLINE pair byte_pair_high(vector a, vector b) {
  return _mm512_unpackhi_epi8(a, b);
}

static NMP_INLINE vector saturate8(vector low, vector high) {
  return _mm512_packs_epi16(low, high);
}

/* uint8 times int8, both products of a pair in int16. */
static NMP_INLINE vector multiply_byte_pairs(pair x, pair w) {
  return _mm512_maddubs_epi16(x, w);
}

static NMP_INLINE vector shift_all(vector a, int by) {
  return _mm512_sra_epi32(a, _mm_cvtsi32_si128(by));
}

static NMP_INLINE vector add(vector a, vector b) {
  return _mm512_add_epi32(a, b);
}

static NMP_INLINE vector shift_right(vector a, vector by) {
  return _mm512_srav_epi32(a, by);
}

static NMP_INLINE vector shift_right_8(vector a) {
  return _mm512_srai_epi32(a, 8);
}

#define HAS_QUADS 1
static NMP_INLINE vector dot_quads(vector sum, vector x, vector w) {
  return _mm512_dpbusd_epi32(sum, x, w);
}

static NMP_INLINE vector dot_pairs(vector sum, vector x, vector w) {
  return _mm512_dpwssd_epi32(sum, x, w);
}

static NMP_INLINE vector multiply_low(vector sum, vector a, vector b) {
  return dot_pairs(sum, pair_low(a, zero()), pair_low(b, zero()));
}

static NMP_INLINE vector multiply_high(vector sum, vector a, vector b) {
  return dot_pairs(sum, pair_high(a, zero()), pair_high(b, zero()));
}

/* Dwords as a matrix of 4 x 4, transposed. */
static NMP_INLINE vector transposed(vector v) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
}

static NMP_INLINE void interleave_quads(int32_t *to, const vector rows[4]) {
  vector x[4];
  for (int i = 0; i < 4; i++) {
    x[i] = transposed(rows[i]);
  }
  const vector ab = _mm512_unpacklo_epi8(x[0], x[1]), ab2 = _mm512_unpackhi_epi8(x[0], x[1]);
  const vector cd = _mm512_unpacklo_epi8(x[2], x[3]), cd2 = _mm512_unpackhi_epi8(x[2], x[3]);
  save(to, _mm512_unpacklo_epi16(ab, cd));
  save(to + LANES, _mm512_unpackhi_epi16(ab, cd));
  save(to + 2 * LANES, _mm512_unpacklo_epi16(ab2, cd2));
  save(to + 3 * LANES, _mm512_unpackhi_epi16(ab2, cd2));
}

static NMP_INLINE void interleave_pairs(int32_t *to, vector a, vector b) {
  const vector order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  a = _mm512_permutexvar_epi64(order, a);
  b = _mm512_permutexvar_epi64(order, b);
  save(to, _mm512_unpacklo_epi16(a, b));
  save(to + LANES, _mm512_unpackhi_epi16(a, b));
}

static NMP_INLINE void store8(uint8_t *y, const vector sums[4], vector lo, vector hi, size_t n) {
  vector v = _mm512_packs_epi16(_mm512_packs_epi32(sums[0], sums[1]), _mm512_packs_epi32(sums[2], sums[3]));
  v = _mm512_max_epi8(_mm512_min_epi8(v, hi), lo);
  v = transposed(v);
  if (n == 4 * LANES) {
    save(y, v);
  } else {
    _mm512_mask_storeu_epi8(y, ((__mmask64)1 << n) - 1, v);
  }
}

static NMP_INLINE void store16(uint8_t *y, const vector sums[4], vector lo, vector hi, size_t n) {
  const vector order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  for (size_t i = 0; i < 4 && i * LANES < n; i += 2, y += 64) {
    vector v = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(sums[i], sums[i + 1]));
    v = _mm512_max_epi16(_mm512_min_epi16(v, hi), lo);
    if (n >= (i + 2) * LANES) {
      save(y, v);
    } else {
      _mm512_mask_storeu_epi16(y, ((__mmask32)1 << (n - i * LANES)) - 1, v);
    }
  }
}
