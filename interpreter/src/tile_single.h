/* A pixel times strips of conv_bands.h for one instruction set, with the vectors of tile_x86.h, and
 *
 *   XOR(a, b)
 *   JOINED                           if a dot product is one instruction
 *   finish_single(s, acc, vectors)   stores acc, sums of channels, as y
 */

enum { single_of_bytes, single_of_words, single_of_planes }; /* what a grain is */

#define SINGLE_SUMS 8 /* vectors of a plane; of both, half of the registers at most */

/* Adds some grains of x, each to sums of its own; acc is [grain][plane][vector]. Bytes of x are int8. */
INLINE void add_single(V *acc, const nmp_single *s, size_t at, const uint8_t *w, const int kind, const int grains,
                       const int vectors) {
  const int planes = kind == single_of_planes ? 2 : 1;
  UNROLL for (int g = 0; g < grains; g++, w += vectors * (int)sizeof(V)) {
    V factors[NMP_STRIP];
    UNROLL for (int v = 0; v < vectors && planes == 2; v++) {
      factors[v] = LOAD(w + v * (int)sizeof(V));
#ifdef JOINED
      KEEP(factors[v]); /* loads would take longer than products: compilers put one into each */
#endif
    }
    UNROLL for (int p = 0; p < planes; p++) {
      V x = grain_of(s->x + (size_t)p * s->plane + at + g * NMP_GRAIN);
      if (kind == single_of_bytes) {
        x = XOR(x, BROADCAST((int32_t)0x80808080));
      }
      UNROLL for (int v = 0; v < vectors; v++) {
        V *sum = &acc[(g * planes + p) * vectors + v];
        const V by = planes == 2 ? factors[v] : LOAD(w + v * (int)sizeof(V));
        *sum = kind == single_of_bytes ? DOT_BYTES(*sum, x, by) : DOT_WORDS(*sum, x, by);
        KEEP(*sum);
      }
    }
  }
}

/* A strip; each of its vectors has several sums, since an addition has to wait for the one before. Returns where its
 * weights end.
 */
INLINE const uint8_t *single_strip(const nmp_single *s, const int kind, const int vectors) {
  const int planes = kind == single_of_planes ? 2 : 1;
  const int sums = planes * SINGLE_SUMS < LANES ? planes * SINGLE_SUMS : LANES, most = sums / (planes * vectors);
  const int grains = most > 4 ? 4 : most, count = grains * planes * vectors;
  const size_t end = s->grains * NMP_GRAIN;
  const uint8_t *w = s->w;
  size_t at = 0;
  V acc[2 * SINGLE_SUMS];
  UNROLL for (int i = 0; i < count; i++) {
    acc[i] = i < vectors ? LOAD(s->start + i * LANES) : ZERO();
  }
  for (; at + (size_t)grains * NMP_GRAIN <= end;
       at += (size_t)grains * NMP_GRAIN, w += grains * vectors * (int)sizeof(V)) {
    add_single(acc, s, at, w, kind, grains, vectors);
  }
  for (; grains > 1 && at < end; at += NMP_GRAIN, w += vectors * (int)sizeof(V)) {
    add_single(acc, s, at, w, kind, 1, vectors);
  }
  UNROLL for (int i = count - 1; i >= planes * vectors; i--) {
    acc[i % (planes * vectors)] = ADD(acc[i % (planes * vectors)], acc[i]);
  }
  UNROLL for (int i = 0; i < vectors && planes == 2; i++) {
    acc[i] = ADD(acc[i], SRA8(acc[i + vectors]));
  }
  finish_single(s, acc, vectors);
  return w;
}

INLINE void single(const nmp_single *strips, const int kind) {
  nmp_single s = *strips;
  for (size_t n; s.channels > (NMP_STRIP - 1) * LANES; s.channels -= n) {
    n = s.channels < NMP_STRIP * LANES ? s.channels : NMP_STRIP * LANES;
    s.w = single_strip(&s, kind, NMP_STRIP);
    s.start += n;
    s.shift += n;
    s.y += n << s.y_wide;
  }
  if (s.channels > 2 * LANES) {
    single_strip(&s, kind, 3);
  } else if (s.channels > LANES) {
    single_strip(&s, kind, 2);
  } else if (s.channels > 0) {
    single_strip(&s, kind, 1);
  }
}

#define SINGLE(name)                               \
  static void single_##name(const nmp_single *s) { \
    single(s, single_of_##name);                   \
  }
SINGLE(words)
SINGLE(planes)
