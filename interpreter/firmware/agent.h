/* The agent: commands of the device link over the interpreter. It knows no board; see PROTOCOL.md for the commands. */
#ifndef NMP_AGENT_H
#define NMP_AGENT_H

#include "frame.h"
#include "nmp.h"

#define AGENT_PROTOCOL 1
#define AGENT_CHUNK 256 /* bytes of data in a frame */
#define AGENT_RATES 16
#define AGENT_ZEROS 16 /* in a row that end no right frame: the line is at its first rate again */

/* Functions and memory that a board gives the agent. Memory is aligned to 64 bytes and may survive a reset. */
typedef struct agent_config {
  const char *board, *cpu;
  const char *counter; /* "cycles", "instructions" or "ns" if cycles() counts just these; else the counter's name */
  uint32_t clock_hz;   /* of the processor */
  uint32_t counter_hz; /* of cycles() */
  uint32_t ring_bytes; /* that the board takes in while the agent is busy */
  uint32_t program_bytes;
  uint8_t *model, *arena;
  size_t model_bytes, arena_bytes;
  uint64_t (*cycles)(int start); /* see board_cycles */
  void (*put)(void *to, const uint8_t *data, size_t bytes);
  void *to;
  const uint32_t *rates; /* bits a second of a line that has several: the one that it starts with, then faster ones */
  uint32_t rate_count;   /* at most AGENT_RATES; 0: it has one, or none */
  void (*set_rate)(uint32_t rate); /* once all that was put has left */
} agent_config;

typedef struct agent {
  agent_config board;
  frame_parser parser;
  int faster;   /* than the rate that the line starts with */
  nmp_net *net; /* NULL until LOAD */
  nmp_info info;
  uint8_t *inputs;    /* staged, after the model: a run may overwrite those in the arena */
  size_t input_bytes; /* of all inputs, one after another */
  uint8_t *ticks;     /* 8 bytes per op, of the last run */
  uint32_t ran;       /* seq + 1 of the run whose reply is kept; 0 for none */
  size_t replied;
  uint8_t reply[AGENT_CHUNK];
} agent;

void agent_init(agent *a, const agent_config *board);

/* Takes one byte of the line; a request is answered before this returns. */
void agent_push(agent *a, uint8_t byte);

#endif
