/* vector256.h for the 128 bits of NEON. DOTPROD: the target has sdot, whose bytes are all signed. */
#define LANES 4
typedef int32x4_t vector;

static NMP_INLINE vector load(const void *p) {
  return vreinterpretq_s32_u8(vld1q_u8(p));
}

static NMP_INLINE void save(void *p, vector v) {
  vst1q_u8(p, vreinterpretq_u8_s32(v));
}

#define PART(bytes) ((bytes) < 8 ? 0 : (size_t)8)
static NMP_INLINE vector load_part(const void *p, size_t bytes) {
  (void)bytes;
  return vreinterpretq_s32_u8(vcombine_u8(vld1_u8(p), vdup_n_u8(0)));
}

static NMP_INLINE void save_part(void *p, vector v, size_t bytes) {
  (void)bytes;
  vst1_u8(p, vget_low_u8(vreinterpretq_u8_s32(v)));
}

static NMP_INLINE vector zero(void) {
  return vdupq_n_s32(0);
}

static NMP_INLINE int16x8_t as16(vector v) {
  return vreinterpretq_s16_s32(v);
}

static NMP_INLINE vector of16(int16x8_t v) {
  return vreinterpretq_s32_s16(v);
}

static NMP_INLINE int8x16_t as8(vector v) {
  return vreinterpretq_s8_s32(v);
}

static NMP_INLINE vector of8(int8x16_t v) {
  return vreinterpretq_s32_s8(v);
}

static NMP_INLINE vector set8(int32_t a) {
  return of8(vdupq_n_s8((int8_t)a));
}

static NMP_INLINE vector set16(int32_t a) {
  return of16(vdupq_n_s16((int16_t)a));
}

static NMP_INLINE vector set32(int32_t a) {
  return vdupq_n_s32(a);
}

static NMP_INLINE vector min16(vector a, vector b) {
  return of16(vminq_s16(as16(a), as16(b)));
}

static NMP_INLINE vector max16(vector a, vector b) {
  return of16(vmaxq_s16(as16(a), as16(b)));
}

static NMP_INLINE vector max8(vector a, vector b) {
  return of8(vmaxq_s8(as8(a), as8(b)));
}

static NMP_INLINE vector add16(vector a, vector b) {
  return of16(vaddq_s16(as16(a), as16(b)));
}

/* int16 as int32 */
static NMP_INLINE void save_wide(int32_t *to, vector v) {
  save(to, vmovl_s16(vget_low_s16(as16(v))));
  save(to + LANES, vmovl_high_s16(as16(v)));
}

/* int8 as int16, and int16 saturated to int8 */
static NMP_INLINE vector load_wide(const void *from) {
  return of16(vmovl_s8(vld1_s8(from)));
}

/* LANES of int16 as int32 */
static NMP_INLINE vector load_long(const void *from) {
  return vmovl_s16(vreinterpret_s16_u8(vld1_u8(from)));
}

/* LANES of int8 as int32 */
static NMP_INLINE vector load_longer(const void *from) {
  int8_t copy[8] = {0};
  memcpy(copy, from, LANES);
  return vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(copy))));
}

static NMP_INLINE void save_narrow(void *to, vector v) {
  vst1_s8(to, vqmovn_s16(as16(v)));
}

/* Halves of two vectors of int16; saturate16 undoes both. */
typedef struct pair {
  int16x4_t a, b;
} pair;

static NMP_INLINE pair pair_low(vector a, vector b) {
  return (pair){vget_low_s16(as16(a)), vget_low_s16(as16(b))};
}

static NMP_INLINE pair pair_high(vector a, vector b) {
  return (pair){vget_high_s16(as16(a)), vget_high_s16(as16(b))};
}

static NMP_INLINE pair set_pairs(int32_t a, int32_t b) {
  return (pair){vdup_n_s16((int16_t)a), vdup_n_s16((int16_t)b)};
}

static NMP_INLINE vector dot_pairs(vector sum, pair x, pair w) {
  return vmlal_s16(vmlal_s16(sum, x.a, w.a), x.b, w.b);
}

static NMP_INLINE vector multiply_low(vector sum, vector a, vector b) {
  return vmlal_s16(sum, vget_low_s16(as16(a)), vget_low_s16(as16(b)));
}

static NMP_INLINE vector multiply_high(vector sum, vector a, vector b) {
  return vmlal_high_s16(sum, as16(a), as16(b));
}

static NMP_INLINE vector saturate16(vector low, vector high) {
  return of16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high)));
}

static NMP_INLINE vector shift_all(vector a, int by) {
  return vshlq_s32(a, vdupq_n_s32(-by));
}

static NMP_INLINE vector add(vector a, vector b) {
  return vaddq_s32(a, b);
}

static NMP_INLINE vector shift_right(vector a, vector by) {
  return vshlq_s32(a, vnegq_s32(by));
}

static NMP_INLINE vector shift_right_8(vector a) {
  return vshrq_n_s32(a, 8);
}

#ifdef DOTPROD
#define HAS_QUADS 1
static NMP_INLINE vector dot_quads(vector sum, vector x, vector w) {
  return vdotq_s32(sum, as8(x), as8(w));
}
#else
#define HAS_QUADS 0
static NMP_INLINE vector dot_quads(vector sum, vector x, vector w) {
  (void)x;
  (void)w;
  return sum;
}
#endif

/* Lane i of `to`: byte i of each of 4 rows. */
static NMP_INLINE void interleave_quads(int32_t *to, const uint8_t *const *rows, size_t at) {
  const int8x16x2_t ab = vzipq_s8(as8(load(rows[0] + at)), as8(load(rows[1] + at)));
  const int8x16x2_t cd = vzipq_s8(as8(load(rows[2] + at)), as8(load(rows[3] + at)));
  for (int i = 0; i < 2; i++) {
    const int16x8x2_t all = vzipq_s16(vreinterpretq_s16_s8(ab.val[i]), vreinterpretq_s16_s8(cd.val[i]));
    save(to + i * 2 * LANES, of16(all.val[0]));
    save(to + i * 2 * LANES + LANES, of16(all.val[1]));
  }
}

static NMP_INLINE void save_some(void *to, vector v, size_t bytes) {
  uint8_t copy[16];
  save(copy, v);
  memcpy(to, copy, bytes);
}

/* The first n of 16 sums, saturated. */
static NMP_INLINE void store8(uint8_t *y, const vector sums[4], vector lo, vector hi, size_t n) {
  const int16x8_t low = as16(saturate16(sums[0], sums[1])), high = as16(saturate16(sums[2], sums[3]));
  const int8x16_t v = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
  const vector q = of8(vmaxq_s8(vminq_s8(v, as8(hi)), as8(lo)));
  if (n == 4 * LANES) {
    save(y, q);
  } else {
    save_some(y, q, n);
  }
}

static NMP_INLINE void store16(uint8_t *y, const vector sums[4], vector lo, vector hi, size_t n) {
  for (size_t i = 0; i < 4 && i * LANES < n; i += 2, y += 16) {
    const vector v = max16(min16(saturate16(sums[i], sums[i + 1]), hi), lo);
    if (n >= (i + 2) * LANES) {
      save(y, v);
    } else {
      save_some(y, v, (n - i * LANES) * 2);
    }
  }
}
