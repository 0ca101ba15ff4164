#include "agent.h"

#include <string.h>

enum request { HELLO = 1, BEGIN, DATA, LOAD, INPUT, RUN, PROFILE, DIGESTS, READ, RESET, SPEED };
enum { REPLY = 0x80, PROGRESS = 0xFE, REFUSED = 0xFF };

/* Statuses of the link; those below 60 are the interpreter's. */
enum refusal { E_REQUEST = 60, E_NOT_LOADED, E_MEMORY, E_INCOMPLETE, E_DIGEST, E_RANGE, E_INPUT };

#define HEADER 64 /* of the model's memory: how far an upload is, for after a reset */
#define MAGIC 0x3150554Eu
#define MARGIN 64 /* bytes of the ring that are not announced */

typedef struct upload {
  uint32_t magic, size, crc; /* of the whole file, as announced */
  uint32_t received, prefix; /* bytes, and their CRC-32 */
} upload;

static upload upload_of(const agent *a) {
  upload u;
  memcpy(&u, a->board.model, sizeof(u));
  return u;
}

static void keep(agent *a, upload u) {
  memcpy(a->board.model, &u, sizeof(u));
}

static uint8_t *file_of(const agent *a) {
  return a->board.model + HEADER;
}

static size_t align(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

static void send(agent *a, uint8_t type, uint16_t seq, const uint8_t *payload, size_t bytes) {
  uint8_t line[FRAME_ENCODED + 2];
  a->board.put(a->board.to, line, frame_encode(line, type, seq, payload, bytes));
}

static void reply(agent *a, const frame *f, const uint8_t *payload, size_t bytes) {
  send(a, (uint8_t)(f->type | REPLY), f->seq, payload, bytes);
}

static uint8_t *put_text(uint8_t *to, const char *text) {
  size_t bytes = strlen(text);
  bytes = bytes < 48 ? bytes : 48;
  memcpy(to, text, bytes);
  to[bytes] = 0;
  return to + bytes + 1;
}

static void refuse(agent *a, const frame *f, const nmp_fault *fault) {
  uint8_t payload[2 + 8 + 8 + 4 + 4 + 49];
  uint8_t *p = frame_put(payload, f->type, 1);
  p = frame_put(p, (uint64_t)fault->status, 1);
  p = frame_put(p, (uint64_t)fault->found, 8);
  p = frame_put(p, (uint64_t)fault->allowed, 8);
  p = frame_put(p, (uint64_t)(int64_t)fault->op, 4);
  p = frame_put(p, (uint64_t)(int64_t)fault->tensor, 4);
  p = put_text(p, fault->what ? fault->what : "");
  send(a, REFUSED, f->seq, payload, (size_t)(p - payload));
}

static void refuse_link(agent *a, const frame *f, enum refusal why, const char *what, uint64_t found,
                        uint64_t allowed) {
  nmp_fault fault = {.status = (nmp_status)why,
                     .op = -1,
                     .tensor = -1,
                     .found = (int64_t)found,
                     .allowed = (int64_t)allowed,
                     .what = what};
  refuse(a, f, &fault);
}

static void hello(agent *a, const frame *f) {
  uint8_t payload[FRAME_PAYLOAD];
  const agent_config *b = &a->board;
  a->ran = 0;
  uint8_t *p = frame_put(payload, AGENT_PROTOCOL, 1);
  p = frame_put(p, AGENT_CHUNK, 2);
  p = frame_put(p, b->ring_bytes > MARGIN ? b->ring_bytes - MARGIN : 0, 4);
  p = frame_put(p, b->clock_hz, 4);
  p = frame_put(p, b->counter_hz, 4);
  p = frame_put(p, b->model_bytes > HEADER ? b->model_bytes - HEADER : 0, 4);
  p = frame_put(p, b->arena_bytes, 4);
  p = frame_put(p, b->program_bytes, 4);
  p = put_text(p, nmp_version());
  p = put_text(p, b->board);
  p = put_text(p, b->cpu);
  p = put_text(p, b->counter);
  reply(a, f, payload, (size_t)(p - payload));
}

static void reply_received(agent *a, const frame *f, uint32_t received) {
  uint8_t payload[4];
  frame_put(payload, received, 4);
  reply(a, f, payload, sizeof(payload));
}

/* An upload of the same file goes on where it was, even after a reset: then the memory proves itself by its CRC. */
static void begin(agent *a, const frame *f) {
  uint32_t size = frame_u32(f->payload), crc = frame_u32(f->payload + 4);
  if (a->board.model_bytes < HEADER || size > a->board.model_bytes - HEADER) {
    uint32_t most = a->board.model_bytes < HEADER ? 0 : (uint32_t)(a->board.model_bytes - HEADER);
    refuse_link(a, f, E_MEMORY, "bytes of memory for the model", size, most);
    return;
  }
  upload u = upload_of(a);
  if (u.magic != MAGIC || u.size != size || u.crc != crc || u.received > size ||
      frame_crc32(0, file_of(a), u.received) != u.prefix) {
    u = (upload){MAGIC, size, crc, 0, 0};
    keep(a, u);
    a->net = NULL;
  }
  reply_received(a, f, u.received);
}

static void data(agent *a, const frame *f) {
  upload u = upload_of(a);
  uint32_t offset = frame_u32(f->payload), bytes = (uint32_t)f->bytes - 4;
  if (u.magic != MAGIC || u.size > a->board.model_bytes - HEADER || u.received > u.size) {
    refuse_link(a, f, E_INCOMPLETE, "an upload has to begin first", 0, 0);
    return;
  }
  if (offset > u.size || bytes > u.size - offset) {
    refuse_link(a, f, E_RANGE, "offset of the data", (uint64_t)offset + bytes, u.size);
    return;
  }
  if (offset <= u.received && offset + bytes > u.received) {
    uint32_t known = u.received - offset;
    memcpy(file_of(a) + u.received, f->payload + 4 + known, bytes - known);
    u.prefix = frame_crc32(u.prefix, f->payload + 4 + known, bytes - known);
    u.received = offset + bytes;
    keep(a, u);
  }
  reply_received(a, f, u.received);
}

/* True of an input that comes from the host before each run; a state stays in the arena. */
static int is_fed(const agent *a, uint32_t i) {
  return nmp_state_of(a->net, i) < 0;
}

/* Inputs and the ops' ticks lie behind the model. */
static nmp_status stage(agent *a, uint32_t size, nmp_fault *fault) {
  nmp_view view;
  size_t bytes = 0, at = HEADER + align(size);
  for (uint32_t i = 0; i < a->info.inputs; i++) {
    nmp_input(a->net, i, &view);
    bytes += is_fed(a, i) ? view.bytes : 0; /* inputs lie apart in the arena, so the sum is bounded by its size */
  }
  size_t needed = at + align(bytes) + (size_t)a->info.ops * 8;
  if (needed > a->board.model_bytes) {
    *fault = (nmp_fault){(nmp_status)E_MEMORY,
                         -1,
                         -1,
                         (int64_t)needed,
                         (int64_t)a->board.model_bytes,
                         "bytes of memory for the model and its inputs"};
    return fault->status;
  }
  a->inputs = a->board.model + at;
  a->input_bytes = bytes;
  a->ticks = a->inputs + align(bytes);
  a->ran = 0;
  memset(a->inputs, 0, needed - at);
  return NMP_OK;
}

static void load(agent *a, const frame *f) {
  upload u = upload_of(a);
  nmp_fault fault;
  uint8_t payload[20];
  if (u.magic != MAGIC || u.size > a->board.model_bytes - HEADER || u.received != u.size) {
    refuse_link(a, f, E_INCOMPLETE, "bytes of the model received", u.received, u.size);
    return;
  }
  uint32_t crc = frame_crc32(0, file_of(a), u.size);
  if (crc != u.crc) { /* nothing of it can be trusted: the next upload starts anew */
    a->net = NULL;
    keep(a, (upload){0, 0, 0, 0, 0});
  }
  if (crc != u.crc || crc != frame_u32(f->payload)) {
    refuse_link(a, f, E_DIGEST, "digest of the model", crc, frame_u32(f->payload));
    return;
  }
  if (a->net == NULL) {
    nmp_status status = nmp_inspect(file_of(a), u.size, NULL, &a->info, &fault);
    if (status == NMP_OK) {
      status = nmp_create(&a->net, file_of(a), u.size, a->board.arena, a->board.arena_bytes, NULL, &fault);
    }
    if (status == NMP_OK) {
      status = stage(a, u.size, &fault);
    }
    if (status != NMP_OK) {
      a->net = NULL;
      refuse(a, f, &fault);
      return;
    }
  }
  nmp_reset(a->net);
  uint8_t *p = frame_put(payload, a->info.arena_bytes, 4);
  p = frame_put(p, a->info.ops, 4);
  p = frame_put(p, a->info.tensors, 4);
  p = frame_put(p, a->input_bytes, 4);
  reply(a, f, payload, (size_t)(p - payload));
}

static void input(agent *a, const frame *f) {
  uint32_t offset = frame_u32(f->payload);
  size_t bytes = f->bytes - 4;
  if (offset > a->input_bytes || bytes > a->input_bytes - offset) {
    refuse_link(a, f, E_RANGE, "offset in the inputs", (uint64_t)offset + bytes, a->input_bytes);
    return;
  }
  a->ran = 0;
  memcpy(a->inputs + offset, f->payload + 4, bytes);
  reply_received(a, f, offset + (uint32_t)bytes);
}

static void feed(agent *a) {
  const uint8_t *from = a->inputs;
  nmp_view view;
  for (uint32_t i = 0; i < a->info.inputs; i++) {
    nmp_input(a->net, i, &view);
    if (is_fed(a, i)) {
      memcpy(view.data, from, view.bytes);
      from += view.bytes;
    }
  }
}

static uint64_t run_op(agent *a, uint32_t op) {
  a->board.cycles(1);
  nmp_run_ops(a->net, op, op + 1);
  uint64_t ticks = a->board.cycles(0);
  frame_put(a->ticks + 8 * (size_t)op, ticks, 8);
  return ticks;
}

static uint32_t outputs_crc(agent *a) {
  nmp_view view;
  uint32_t crc = 0;
  for (uint32_t i = 0; i < a->info.outputs; i++) {
    nmp_output(a->net, i, &view);
    crc = frame_crc32(crc, view.data, view.bytes);
  }
  return crc;
}

/* The digests of model and inputs that a request for a run names, and an op count that the model has. A request that
 * was carried out already is answered as before: a long run would otherwise be asked for several times. */
static int runnable(agent *a, const frame *f, uint32_t last) {
  uint32_t crc = upload_of(a).crc, fed = frame_crc32(0, a->inputs, a->input_bytes);
  if (crc != frame_u32(f->payload)) {
    refuse_link(a, f, E_DIGEST, "digest of the model", crc, frame_u32(f->payload));
  } else if (fed != frame_u32(f->payload + 4)) {
    refuse_link(a, f, E_INPUT, "digest of the inputs", fed, frame_u32(f->payload + 4));
  } else if (last > a->info.ops) {
    refuse_link(a, f, E_RANGE, "ops of the model", last, a->info.ops);
  } else if (a->ran == f->seq + 1u) {
    reply(a, f, a->reply, a->replied);
  } else {
    a->ran = 0;
    return 1;
  }
  return 0;
}

/* Answers a run with what was put into a->reply. */
static void reply_run(agent *a, const frame *f, const uint8_t *end) {
  a->ran = f->seq + 1u;
  a->replied = (size_t)(end - a->reply);
  reply(a, f, a->reply, a->replied);
}

static void run(agent *a, const frame *f) {
  uint32_t last = frame_u32(f->payload + 8);
  uint64_t ticks = 0;
  uint8_t progress[4];
  if (!runnable(a, f, last)) {
    return;
  }
  feed(a);
  for (uint32_t op = 0; op < last; op++) {
    frame_put(progress, op, 4);
    send(a, PROGRESS, f->seq, progress, sizeof(progress));
    ticks += run_op(a, op);
  }
  uint32_t crc = last == a->info.ops ? outputs_crc(a) : 0;
  reply_run(a, f, frame_put(frame_put(a->reply, ticks, 8), crc, 4));
}

static void profile(agent *a, const frame *f) {
  uint32_t first = frame_u32(f->payload);
  if (first > a->info.ops) {
    refuse_link(a, f, E_RANGE, "ops of the model", first, a->info.ops);
    return;
  }
  uint32_t count = a->info.ops - first;
  count = count < AGENT_CHUNK / 8 ? count : AGENT_CHUNK / 8;
  reply(a, f, a->ticks + 8 * (size_t)first, 8 * (size_t)count);
}

/* CRC-32 of tensors right after the ops that make them: ops first, first + 1, ... and a tensor for each. */
static void digests(agent *a, const frame *f) {
  uint8_t *p = a->reply, progress[4];
  uint32_t first = frame_u32(f->payload + 8), count = (uint32_t)(f->bytes - 12) / 4;
  nmp_view view;
  if (first > a->info.ops) {
    refuse_link(a, f, E_RANGE, "ops of the model", first, a->info.ops);
    return;
  }
  if (!runnable(a, f, first + count)) {
    return;
  }
  feed(a);
  for (uint32_t op = 0; op < first + count; op++) {
    frame_put(progress, op, 4);
    send(a, PROGRESS, f->seq, progress, sizeof(progress));
    run_op(a, op);
    if (op >= first) {
      uint32_t tensor = frame_u32(f->payload + 12 + 4 * (size_t)(op - first));
      if (nmp_tensor_at(a->net, tensor, &view) != NMP_OK) {
        refuse_link(a, f, E_RANGE, "tensors of the model", tensor, a->info.tensors);
        return;
      }
      p = frame_put(p, frame_crc32(0, view.data, view.bytes), 4);
    }
  }
  reply_run(a, f, p);
}

static void read(agent *a, const frame *f) {
  uint8_t payload[4 + AGENT_CHUNK];
  uint32_t tensor = frame_u32(f->payload), offset = frame_u32(f->payload + 4), bytes = frame_u32(f->payload + 8);
  nmp_view view;
  if (nmp_tensor_at(a->net, tensor, &view) != NMP_OK) {
    refuse_link(a, f, E_RANGE, "tensors of the model", tensor, a->info.tensors);
    return;
  }
  if (bytes > AGENT_CHUNK || offset > view.bytes || bytes > view.bytes - offset) {
    refuse_link(a, f, E_RANGE, "offset in the tensor", (uint64_t)offset + bytes, view.bytes);
    return;
  }
  frame_put(payload, offset, 4);
  memcpy(payload + 4, (const uint8_t *)view.data + offset, bytes);
  reply(a, f, payload, 4 + (size_t)bytes);
}

static void reset(agent *a, const frame *f) {
  keep(a, (upload){0, 0, 0, 0, 0});
  a->net = NULL;
  a->ran = 0;
  reply(a, f, NULL, 0);
}

/* Tells the rates that the line has; at one of them it goes on, behind the answer. Rate 0 only asks. */
static void speed(agent *a, const frame *f) {
  const agent_config *b = &a->board;
  uint8_t payload[4 * AGENT_RATES], *p = payload;
  uint32_t rate = frame_u32(f->payload), known = rate == 0;
  for (uint32_t i = 0; i < b->rate_count; i++) {
    p = frame_put(p, b->rates[i], 4);
    known |= b->rates[i] == rate;
  }
  if (!known) {
    refuse_link(a, f, E_RANGE, "bits a second of the line", rate, b->rate_count ? b->rates[b->rate_count - 1] : 0);
    return;
  }
  reply(a, f, payload, (size_t)(p - payload));
  if (rate != 0) {
    b->set_rate(rate);
    a->faster = rate != b->rates[0];
  }
}

static const struct command {
  void (*handle)(agent *a, const frame *f);
  uint16_t least, most; /* bytes of the payload */
  uint8_t loaded;       /* needs a model */
} commands[] = {
    [HELLO] = {hello, 0, 0, 0},     [BEGIN] = {begin, 8, 8, 0},        [DATA] = {data, 5, 260, 0},
    [LOAD] = {load, 4, 4, 0},       [INPUT] = {input, 5, 260, 1},      [RUN] = {run, 12, 12, 1},
    [PROFILE] = {profile, 4, 4, 1}, [DIGESTS] = {digests, 16, 268, 1}, [READ] = {read, 12, 12, 1},
    [RESET] = {reset, 0, 0, 0},     [SPEED] = {speed, 4, 4, 0},
};

static void serve(agent *a, const frame *f) {
  if (f->type == 0 || f->type >= sizeof(commands) / sizeof(commands[0])) {
    refuse_link(a, f, E_REQUEST, "type of the request", f->type, SPEED);
    return;
  }
  const struct command *c = &commands[f->type];
  if (f->bytes < c->least || f->bytes > c->most) {
    refuse_link(a, f, E_REQUEST, "bytes of the request", f->bytes, c->most);
  } else if (c->loaded && a->net == NULL) {
    refuse_link(a, f, E_NOT_LOADED, "a model has to be loaded first", 0, 0);
  } else {
    c->handle(a, f);
  }
}

void agent_init(agent *a, const agent_config *board) {
  memset(a, 0, sizeof(*a));
  a->board = *board;
}

void agent_push(agent *a, uint8_t byte) {
  frame f;
  if (frame_push(&a->parser, byte, &f)) {
    serve(a, &f);
  } else if (a->faster && a->parser.zeros >= AGENT_ZEROS) { /* who speaks there does so at another rate */
    a->faster = 0;
    a->board.set_rate(a->board.rates[0]);
  }
}
