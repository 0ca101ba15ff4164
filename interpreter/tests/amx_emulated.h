/* The tile instructions of AMX-INT8 in plain C, as Intel's manual defines them, and how often each was run: for
 * conv_amx.c with NMP_AMX_EMULATED. Each thread has tiles of its own.
 */
#ifndef NMP_TESTS_AMX_EMULATED_H
#define NMP_TESTS_AMX_EMULATED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NMP_APART __attribute__((noinline, unused))
#define AMX_TILES 8

/* Tiles; one that is not configured faults on a CPU. */
typedef struct amx_state {
  int configured;
  uint16_t bytes[AMX_TILES];
  uint8_t rows[AMX_TILES];
  uint8_t values[AMX_TILES][16][64];
} amx_state;

enum { AMX_LOADCONFIG, AMX_RELEASE, AMX_LOAD, AMX_STORE, AMX_DOT, AMX_KINDS };

/* Tiles of each thread, whatever includes this. */
__attribute__((weak)) __thread amx_state amx_tiles;
__attribute__((weak)) __thread unsigned long long amx_counts[AMX_KINDS];

#ifdef AMX_REPORT
#include <stdio.h>

/* Reports what the main thread ran, at the end of the program. */
static __attribute__((destructor)) void amx_report(void) {
  fprintf(stderr, "amx: %llu products of tiles\n", amx_counts[AMX_DOT]);
}
#endif

static inline void amx_need(int holds) {
  if (!holds) {
    abort(); /* #GP or #UD */
  }
}

static NMP_APART void TILE_CONFIGURE(const void *config) {
  const uint8_t *from = (const uint8_t *)config;
  memset(&amx_tiles, 0, sizeof(amx_tiles));
  amx_need(from[0] == 1 && from[1] == 0);
  amx_tiles.configured = 1;
  for (int i = 0; i < AMX_TILES; i++) {
    memcpy(&amx_tiles.bytes[i], from + 16 + 2 * i, 2);
    amx_tiles.rows[i] = from[48 + i];
    amx_need(amx_tiles.bytes[i] <= 64 && amx_tiles.rows[i] <= 16);
  }
  amx_counts[AMX_LOADCONFIG]++;
}

static NMP_APART void TILE_RELEASE(void) {
  memset(&amx_tiles, 0, sizeof(amx_tiles));
  amx_counts[AMX_RELEASE]++;
}

static NMP_APART void TILE_LOAD(int t, const void *base, long stride) {
  amx_need(amx_tiles.configured && amx_tiles.rows[t] > 0);
  memset(amx_tiles.values[t], 0, sizeof(amx_tiles.values[t]));
  for (int r = 0; r < amx_tiles.rows[t]; r++) {
    memcpy(amx_tiles.values[t][r], (const uint8_t *)base + r * stride, amx_tiles.bytes[t]);
  }
  amx_counts[AMX_LOAD]++;
}

static NMP_APART void TILE_STORE(int t, void *base, long stride) {
  amx_need(amx_tiles.configured && amx_tiles.rows[t] > 0);
  for (int r = 0; r < amx_tiles.rows[t]; r++) {
    memcpy((uint8_t *)base + r * stride, amx_tiles.values[t][r], amx_tiles.bytes[t]);
  }
  amx_counts[AMX_STORE]++;
}

/* sum += a * b: signed bytes, four of a row of a with four of a column of b */
static NMP_APART void TILE_DOT(int sum, int a, int b) {
  amx_need(amx_tiles.configured && sum != a && sum != b && a != b);
  amx_need(amx_tiles.rows[sum] == amx_tiles.rows[a] && amx_tiles.bytes[sum] == amx_tiles.bytes[b] &&
           amx_tiles.bytes[a] == 4 * amx_tiles.rows[b]);
  for (int m = 0; m < amx_tiles.rows[sum]; m++) {
    int32_t row[16];
    memcpy(row, amx_tiles.values[sum][m], sizeof(row));
    for (int k = 0; k < amx_tiles.rows[b]; k++) {
      const int8_t *x = (const int8_t *)amx_tiles.values[a][m] + 4 * k, *w = (const int8_t *)amx_tiles.values[b][k];
      for (int n = 0; n < amx_tiles.bytes[sum] / 4; n++) {
        const int32_t four = x[0] * w[4 * n] + x[1] * w[4 * n + 1] + x[2] * w[4 * n + 2] + x[3] * w[4 * n + 3];
        row[n] = (int32_t)((uint32_t)row[n] + (uint32_t)four); /* it wraps */
      }
    }
    memcpy(amx_tiles.values[sum][m], row, sizeof(row));
  }
  amx_counts[AMX_DOT]++;
}

#endif
