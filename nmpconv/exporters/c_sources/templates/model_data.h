/* @NAME@: written by nmpconv bundle. */
#ifndef MODEL_DATA_H
#define MODEL_DATA_H

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_BYTES @BYTES@
#define MODEL_ARENA_BYTES @ARENA@ /* enough RAM for a run; nmp_inspect tells what this build needs to the byte */
@PORTS@
#define MODEL_HAS_TEST_VECTOR @VECTORS@

/* The model and the arena begin at multiples of 16. */
#if defined(__GNUC__) || defined(__clang__)
#define MODEL_ALIGNED __attribute__((aligned(16)))
#elif defined(_MSC_VER)
#define MODEL_ALIGNED __declspec(align(16))
#elif defined(__ICCARM__)
#define MODEL_ALIGNED _Pragma("data_alignment=16")
#else
#error "tell this compiler how to align model_data to 16 bytes"
#endif

extern const unsigned char model_data[MODEL_BYTES];

#ifdef __cplusplus
}
#endif

#endif
