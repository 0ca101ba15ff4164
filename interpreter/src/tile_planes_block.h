/* The blocks of two planes, after tile_block.h: x = 256 high + low. They have PLANES_RUNS; acc is
 * [run][pixel][plane][vector].
 */

INLINE void planes_grain_of_runs(V *acc, const uint8_t *(*x)[2][2], size_t step, size_t three, const uint8_t *w,
                                 const int per, const int vectors) {
  V factors[2];
  UNROLL for (int v = 0; v < vectors; v++) {
    factors[v] = LOAD(w + v * (int)sizeof(V));
  }
  UNROLL for (int i = 0; i < 2 * PLANES_RUNS * per; i++) {
    const int r = i / 2, plane = i % 2;
    const V grain = grain_of(pixel_of(x[plane][r / per], step, three, r % per));
    UNROLL for (int v = 0; v < vectors; v++) {
      V *sum = &acc[i * vectors + v];
      *sum = DOT_WORDS(*sum, grain, factors[v]);
      KEEP(*sum);
    }
  }
  UNROLL for (int i = 0; i < 8; i++) {
    x[i / 4][i / 2 % 2][i % 2] += NMP_GRAIN;
    __asm__("" : "+r"(x[i / 4][i / 2 % 2][i % 2])); /* not a pointer for each pixel */
  }
}

/* high + floor(low / 256), in the places of the first sums. */
INLINE void join_planes(V *acc, const int count, const int vectors) {
  UNROLL for (int i = 0; i < count; i++) {
    const int high = i / vectors * 2 * vectors + i % vectors;
    acc[i] = ADD(acc[high], SRA8(acc[high + vectors]));
  }
}

INLINE uintptr_t add_planes(V *acc, const nmp_block *b, uintptr_t next, const int per, const int vectors) {
  const uint8_t *w = (const uint8_t *)(b->panel + 1);
  const size_t step = b->x_step, three = 3 * step;
  UNROLL for (int i = 0; i < 2 * PLANES_RUNS * per * vectors; i++) {
    acc[i] = i / vectors % 2 == 0 ? LOAD(b->panel->start + i % vectors * LANES) : ZERO();
  }
  for (size_t s = 0; s < b->segment_count; s++) {
    const uint8_t *x[2][2][2];
    UNROLL for (int i = 0; i < 8; i++) {
      x[i / 4][i / 2 % 2][i % 2] =
          b->x[i / 2 % 2] + b->segments[s] + (size_t)(i / 4) * b->plane + (size_t)(i % 2) * 4 * step;
    }
    for (size_t i = b->grains; i > 0; i--, w += vectors * (int)sizeof(V)) {
      planes_grain_of_runs(acc, x, step, three, w, per, vectors);
      if (vectors == 2) {
        _mm_prefetch((const void *)next, _MM_HINT_T1);
        next += b->next_step;
      }
    }
  }
  join_planes(acc, PLANES_RUNS * per * vectors, vectors);
  return next;
}

INLINE void planes_block(const nmp_block *blocks, const int per, const int vectors) {
  nmp_block b = *blocks;
  for (; b.count > 0; b.count--) {
    V acc[NMP_BLOCK_VECTORS];
    b.next = add_planes(acc, &b, b.next, per, vectors);
    finish_block(&b, acc, PLANES_RUNS * per, per, vectors);
    UNROLL for (int i = 0; i < 2; i++) {
      b.x[i] += b.x_hop;
      b.y[i] += b.y_hop;
    }
  }
}

#define PLANES_BLOCK(name, per, vectors)                     \
  static void name##_##per##_##vectors(const nmp_block *b) { \
    planes_block(b, per, vectors);                           \
  }
#define PLANES_BLOCK_NAME(name, per, vectors) name##_##per##_##vectors,

/* `planes_blocks`, of at most ONE or TWO pixels in a run */
#define PLANES_BLOCKS(ONE, TWO)                                                                                     \
  BLOCKS_##ONE(PLANES_BLOCK, planes_block, 1)                                                                       \
      BLOCKS_##TWO(PLANES_BLOCK, planes_block, 2) static const nmp_blocks planes_blocks = {                         \
          {ONE, TWO},                                                                                               \
          {{BLOCKS_##ONE(PLANES_BLOCK_NAME, planes_block, 1)}, {BLOCKS_##TWO(PLANES_BLOCK_NAME, planes_block, 2)}}, \
          PLANES_RUNS};
