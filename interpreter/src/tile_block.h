/* The blocks of conv_bands.h for one instruction set, with the vectors of tile_x86.h, and
 *
 *   finish_block(b, acc, pixels, per, vectors)   stores acc, sums of [run][pixel][vector], as y
 */

/* The addresses of a run are those of its first and its fifth pixel, plus one, two or three steps: that many registers
 * there are.
 */
INLINE const uint8_t *pixel_of(const uint8_t *const *x, size_t step, size_t three, const int r) {
  return x[r / 4] + (r % 4 == 3 ? three : step * (size_t)(r % 4));
}

/* Adds a grain of each pixel, and goes on to the next. */
INLINE void add_grain_of_runs(V *acc, const uint8_t *(*x)[2], size_t step, size_t three, const uint8_t *w,
                              const int bytes, const int per, const int vectors) {
  V factors[2];
  UNROLL for (int v = 0; v < vectors; v++) {
    factors[v] = LOAD(w + v * (int)sizeof(V));
  }
  UNROLL for (int r = 0; r < 2 * per; r++) {
    const V grain = grain_of(pixel_of(x[r / per], step, three, r % per));
    UNROLL for (int v = 0; v < vectors; v++) {
      V *sum = &acc[r * vectors + v];
      *sum = bytes ? DOT_BYTES(*sum, grain, factors[v]) : DOT_WORDS(*sum, grain, factors[v]);
      KEEP(*sum);
    }
  }
  UNROLL for (int i = 0; i < 4; i++) {
    x[i / 2][i % 2] += NMP_GRAIN;
    __asm__("" : "+r"(x[i / 2][i % 2])); /* not a pointer for each pixel */
  }
}

/* A block's sums, from those that the panel starts with. Returns how far weights are fetched. */
INLINE uintptr_t add_block(V *acc, const nmp_block *b, uintptr_t next, const int bytes, const int per,
                           const int vectors) {
  const uint8_t *w = (const uint8_t *)(b->panel + 1);
  const size_t step = b->x_step, three = 3 * step;
  UNROLL for (int i = 0; i < 2 * per * vectors; i++) {
    acc[i] = LOAD(b->panel->start + i % vectors * LANES);
  }
  for (size_t s = 0; s < b->segment_count; s++) {
    const uint8_t *first = b->x[0] + b->segments[s], *second = b->x[1] + b->segments[s];
    const uint8_t *x[2][2] = {{first, first + 4 * step}, {second, second + 4 * step}};
    for (size_t i = b->grains; i > 0; i--, w += vectors * (int)sizeof(V)) {
      add_grain_of_runs(acc, x, step, three, w, bytes, per, vectors);
      if (vectors == 2) {
        _mm_prefetch((const void *)next, _MM_HINT_T1);
        next += b->next_step;
      }
    }
  }
  return next;
}

INLINE void block(const nmp_block *blocks, const int bytes, const int per, const int vectors) {
  nmp_block b = *blocks;
  for (; b.count > 0; b.count--) {
    V acc[NMP_BLOCK_VECTORS];
    b.next = add_block(acc, &b, b.next, bytes, per, vectors);
    finish_block(&b, acc, 2 * per, per, vectors);
    UNROLL for (int i = 0; i < 2; i++) {
      b.x[i] += b.x_hop;
      b.y[i] += b.y_hop;
    }
  }
}

#define BLOCK(bytes, per, vectors)                                    \
  static void block_##bytes##_##per##_##vectors(const nmp_block *b) { \
    block(b, bytes, per, vectors);                                    \
  }
#define BLOCK_NAME(bytes, per, vectors) block_##bytes##_##per##_##vectors,
#define BLOCKS_1(X, name, v) X(name, 1, v)
#define BLOCKS_3(X, name, v) BLOCKS_1(X, name, v) X(name, 2, v) X(name, 3, v)
#define BLOCKS_4(X, name, v) BLOCKS_3(X, name, v) X(name, 4, v)
#define BLOCKS_6(X, name, v) BLOCKS_4(X, name, v) X(name, 5, v) X(name, 6, v)
#define BLOCKS_7(X, name, v) BLOCKS_6(X, name, v) X(name, 7, v)
#define BLOCKS_8(X, name, v) BLOCKS_7(X, name, v) X(name, 8, v)

/* `name`, of at most ONE or TWO pixels in a run */
#define BLOCKS_NAMED(name, ONE, TWO, bytes)                                                    \
  BLOCKS_##ONE(BLOCK, bytes, 1) BLOCKS_##TWO(BLOCK, bytes, 2) static const nmp_blocks name = { \
      {ONE, TWO}, {{BLOCKS_##ONE(BLOCK_NAME, bytes, 1)}, {BLOCKS_##TWO(BLOCK_NAME, bytes, 2)}}, 2};
#define BLOCKS(ONE, TWO, bytes) BLOCKS_NAMED(blocks, ONE, TWO, bytes)
