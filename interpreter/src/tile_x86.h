/* The tiles of conv_bands.h for one instruction set, whose file defines vectors and then includes this between
 * NMP_TARGET_BEGIN and END:
 *
 *   V, LANES                  a vector of int32
 *   ZERO(), LOAD(p)           zeros; LANES int32 from anywhere
 *   STORE(p, v), ADD(a, b)
 *   BROADCAST(i)              of an int32
 *   DOT_BYTES(s, x, w)        s + products of 4 uint8 and 4 int8, where there is such an instruction
 *   DOT_WORDS(s, x, w)        s + products of 2 int16 and 2 int16
 *   SRA8(a)                   each lane by 8
 *   add_sums(to, from, shift) int64 to[LANES] += int32 from[LANES] << shift
 */
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__SANITIZE_ADDRESS__)
#define UNROLL /* it would compile for minutes */
#elif !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 64")
#elif __has_feature(address_sanitizer)
#define UNROLL /* likewise */
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif

/* Keeps a sum in one register: compilers that see more of its life than this may give it two, and the rest to memory.
 */
#define KEEP(v) __asm__("" : "+v"(v))

INLINE V grain_of(const uint8_t *x) {
  int32_t four;
  memcpy(&four, x, sizeof(four));
  return BROADCAST(four);
}

/* acc is [pixel][plane][vector]. */
INLINE void add_grain(V *acc, const nmp_tile *t, size_t offset, const uint8_t *w, const int bytes, const int planes,
                      const int rows, const int vectors) {
  V factors[2];
  UNROLL for (int v = 0; v < vectors; v++) {
    factors[v] = LOAD(w + v * (int)sizeof(V));
  }
  UNROLL for (int r = 0; r < rows; r++) {
    UNROLL for (int p = 0; p < planes; p++) {
      const V x = grain_of(t->x[r] + (size_t)p * t->plane + offset);
      UNROLL for (int v = 0; v < vectors; v++) {
        V *sum = &acc[(r * planes + p) * vectors + v];
        *sum = bytes ? DOT_BYTES(*sum, x, factors[v]) : DOT_WORDS(*sum, x, factors[v]);
        KEEP(*sum);
      }
    }
  }
}

/* Adds n grains. An addition has to wait for the one before: few sums go on in four places at a time. */
INLINE const uint8_t *add_grains(V *acc, const nmp_tile *t, size_t offset, size_t n, const uint8_t *w, const int bytes,
                                 const int planes, const int rows, const int vectors) {
  const int count = rows * planes * vectors, step = vectors * (int)sizeof(V);
  size_t i = 0;
  if (count <= 2) {
    V more[3][2];
    UNROLL for (int k = 0; k < 3 * count; k++) {
      more[k / count][k % count] = ZERO();
    }
    for (; i + 4 <= n; i += 4, w += 4 * step, offset += 4 * NMP_GRAIN) {
      add_grain(acc, t, offset, w, bytes, planes, rows, vectors);
      UNROLL for (int k = 0; k < 3; k++) {
        add_grain(more[k], t, offset + (size_t)(k + 1) * NMP_GRAIN, w + (k + 1) * step, bytes, planes, rows, vectors);
      }
    }
    UNROLL for (int k = 0; k < 3 * count; k++) {
      acc[k % count] = ADD(acc[k % count], more[k / count][k % count]);
    }
  }
  for (; i < n; i++, w += step, offset += NMP_GRAIN) {
    add_grain(acc, t, offset, w, bytes, planes, rows, vectors);
  }
  return w;
}

/* Sums start where the panel says, and fit. */
INLINE void tile_narrow(nmp_tile *t, const int bytes, const int planes, const int rows, const int vectors) {
  const uint8_t *w = (const uint8_t *)(t->panel + 1);
  V acc[NMP_ROWS_MAX * 2];
  UNROLL for (int i = 0; i < rows * planes * vectors; i++) {
    acc[i] = i / vectors % planes == 0 ? LOAD(t->panel->start + i % vectors * LANES) : ZERO();
  }
  for (size_t s = 0; s < t->segment_count; s++) {
    w = add_grains(acc, t, t->segments[s], t->grains, w, bytes, planes, rows, vectors);
  }
  if (planes == 2) {
    UNROLL for (int i = 0; i < rows * vectors; i++) {
      const int high = i / vectors * 2 * vectors + i % vectors;
      STORE(t->sums + i * LANES, ADD(acc[high], SRA8(acc[high + vectors])));
    }
  } else {
    UNROLL for (int i = 0; i < rows * vectors; i++) {
      STORE(t->sums + i * LANES, acc[i]);
    }
  }
}

/* Adds the sums of 32 bits to those of 64. */
static void flush(nmp_tile *t, int planes, int rows, int vectors) {
  for (int i = 0; i < rows * planes * vectors; i++) {
    add_sums(t->wide + (i / planes / vectors * vectors + i % vectors) * LANES, t->sums + i * LANES,
             planes == 2 && i / vectors % 2 == 0 ? 8 : 0);
  }
}

/* Sums start from zero, in 32 bits as long as those hold them. */
INLINE void tile_wide(nmp_tile *t, const int planes, const int rows, const int vectors) {
  const uint8_t *w = (const uint8_t *)(t->panel + 1);
  V acc[NMP_ROWS_MAX * 2];
  size_t room = NMP_GRAINS_MAX;
  memset(t->wide, 0, sizeof(t->wide[0]) * (size_t)(rows * vectors * LANES));
  UNROLL for (int i = 0; i < rows * planes * vectors; i++) {
    acc[i] = ZERO();
  }
  for (size_t s = 0; s < t->segment_count; s++) {
    for (size_t done = 0, n; done < t->grains; done += n, room -= n) {
      if (room == 0) {
        UNROLL for (int i = 0; i < rows * planes * vectors; i++) {
          STORE(t->sums + i * LANES, acc[i]);
          acc[i] = ZERO();
        }
        flush(t, planes, rows, vectors);
        room = NMP_GRAINS_MAX;
      }
      n = t->grains - done < room ? t->grains - done : room;
      w = add_grains(acc, t, t->segments[s] + done * NMP_GRAIN, n, w, 0, planes, rows, vectors);
    }
  }
  UNROLL for (int i = 0; i < rows * planes * vectors; i++) {
    STORE(t->sums + i * LANES, acc[i]);
  }
  flush(t, planes, rows, vectors);
}

/* The tiles of proven panels, and of others. */
INLINE void bytes(nmp_tile *t, const int rows, const int vectors) {
  tile_narrow(t, 1, 1, rows, vectors);
}

INLINE void words(nmp_tile *t, const int rows, const int vectors) {
  tile_narrow(t, 0, 1, rows, vectors);
}

INLINE void planes(nmp_tile *t, const int rows, const int vectors) {
  tile_narrow(t, 0, 2, rows, vectors);
}

INLINE void wide_words(nmp_tile *t, const int rows, const int vectors) {
  tile_wide(t, 1, rows, vectors);
}

INLINE void wide_planes(nmp_tile *t, const int rows, const int vectors) {
  tile_wide(t, 2, rows, vectors);
}

static inline void load_bytes(void *to, const void *x, size_t n, size_t plane) {
  uint8_t *ys = to;
  const int8_t *xs = x;
  (void)plane;
  for (size_t i = 0; i < n; i++) {
    ys[i] = (uint8_t)(xs[i] ^ 0x80);
  }
}

static inline void load_words_8(void *to, const void *x, size_t n, size_t plane) {
  int16_t *ys = to;
  const int8_t *xs = x;
  (void)plane;
  for (size_t i = 0; i < n; i++) {
    ys[i] = xs[i];
  }
}

static inline void load_words_16(void *to, const void *x, size_t n, size_t plane) {
  (void)plane;
  memcpy(to, x, n * 2);
}

/* x = 256 * high + low, low is -128..127 */
static inline void load_planes(void *to, const void *x, size_t n, size_t plane) {
  int16_t *high = to, *low = (int16_t *)(void *)((uint8_t *)to + plane);
  const int16_t *xs = x;
  for (size_t i = 0; i < n; i++) {
    low[i] = (int8_t)(xs[i] & 0xFF);
    high[i] = (int16_t)((xs[i] - low[i]) >> 8);
  }
}

/* Lists of tiles with 1.. pixels. */
#define TILES_2(X, name, v) X(name, 1, v) X(name, 2, v)
#define TILES_3(X, name, v) TILES_2(X, name, v) X(name, 3, v)
#define TILES_6(X, name, v) TILES_3(X, name, v) X(name, 4, v) X(name, 5, v) X(name, 6, v)
#define TILES_7(X, name, v) TILES_6(X, name, v) X(name, 7, v)
#define TILES_14(X, name, v) \
  TILES_7(X, name, v)        \
  X(name, 8, v) X(name, 9, v) X(name, 10, v) X(name, 11, v) X(name, 12, v) X(name, 13, v) X(name, 14, v)

#define TILE(name, rows, vectors)                      \
  static void name##_##rows##_##vectors(nmp_tile *t) { \
    name(t, rows, vectors);                            \
  }
#define TILE_NAME(name, rows, vectors) name##_##rows##_##vectors,

/* name_tiles: those of name(t, pixels, vectors) */
#define TILES(LIST, name) \
  LIST(TILE, name, 1)     \
  LIST(TILE, name, 2)     \
  static nmp_tile_fn *const name##_tiles[2][NMP_ROWS_MAX] = {{LIST(TILE_NAME, name, 1)}, {LIST(TILE_NAME, name, 2)}};

/* int8 goes as bytes or as words, INT8 pixels at a time where it has no blocks; times int16 by word_blocks. */
#define PRODUCTS(MANY, FEW, INT8, bytes_element, bytes_zero, load_int8, int8_tiles, int8_blocks, word_blocks,       \
                 int16_blocks, int8_single)                                                                         \
  static const nmp_product int8_product = {bytes_element,                                                           \
                                           1,                                                                       \
                                           bytes_zero,                                                              \
                                           LANES,                                                                   \
                                           NMP_GRAIN,                                                               \
                                           load_int8,                                                               \
                                           {{INT8, int8_tiles, nmp_bands_finish_any}, {INT8, int8_tiles, finish}},  \
                                           int8_blocks,                                                             \
                                           int8_single,                                                             \
                                           bytes_element == 1};                                                     \
  static const nmp_product int8_int16_product = {2,                                                                 \
                                                 1,                                                                 \
                                                 0,                                                                 \
                                                 LANES,                                                             \
                                                 NMP_GRAIN,                                                         \
                                                 load_words_8,                                                      \
                                                 {{2, wide_words_tiles, finish_wide}, {MANY, words_tiles, finish}}, \
                                                 word_blocks,                                                       \
                                                 single_words,                                                      \
                                                 0};                                                                \
  static const nmp_product int16_int8_product = {2,                                                                 \
                                                 1,                                                                 \
                                                 0,                                                                 \
                                                 LANES,                                                             \
                                                 NMP_GRAIN,                                                         \
                                                 load_words_16,                                                     \
                                                 {{2, wide_words_tiles, finish_wide}, {MANY, words_tiles, finish}}, \
                                                 word_blocks,                                                       \
                                                 single_words,                                                      \
                                                 1};                                                                \
  static const nmp_product int16_product = {2,                                                                      \
                                            2,                                                                      \
                                            0,                                                                      \
                                            LANES,                                                                  \
                                            NMP_GRAIN,                                                              \
                                            load_planes,                                                            \
                                            {{2, wide_planes_tiles, finish_wide}, {FEW, planes_tiles, finish}},     \
                                            int16_blocks,                                                           \
                                            single_planes,                                                          \
                                            0};                                                                     \
  NMP_BANDS_KERNEL(int8)                                                                                            \
  NMP_BANDS_KERNEL(int8_int16)                                                                                      \
  NMP_BANDS_KERNEL(int16_int8)                                                                                      \
  NMP_BANDS_KERNEL(int16)                                                                                           \
  static const nmp_conv_kernel *choose(const nmp_conv *c) {                                                         \
    static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16_int8, &int16}};             \
    return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];                        \
  }
