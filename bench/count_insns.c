/* A plug-in of QEMU: counts the instructions of a program. In user emulation a call of getpgid(MARK) is a mark. On a
 * Cortex-M it is each execution of the instruction at an address (mark=ADDRESS, decimal). At each mark the plug-in
 * prints, on stderr, what ran since the one before: how many instructions, and the blocks that have most of them (on a
 * Cortex-M: all), with how often each ran, how often another one than the next in memory followed (on a Cortex-M), its
 * number of instructions, address, and bytes in hexadecimal. Declared here is what it calls of QEMU's plug-in
 * interface, version 1 (qemu-plugin.h).
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
typedef void called_back(unsigned vcpu, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, called_back *call,
                                          enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, called_back *call,
                                            enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, enum qemu_plugin_op op, void *counter,
                                              uint64_t n);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id,
                                          void (*call)(qemu_plugin_id_t, unsigned vcpu, int64_t number, uint64_t,
                                                       uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                                       uint64_t));

EXPORTED int qemu_plugin_version = 1;
EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv);

#define GETPGID 155 /* of AArch64 */
#define MARK 0x6e6d70
#define HOTTEST 64
#define MOST (1u << 20)

typedef struct block {
  uint64_t times, taken, insns, address, bytes;
  uint8_t code[];
} block;

static block *blocks[MOST], *before; /* before: the block that ran last */
static size_t count;
static uint64_t mark;
static int in_machine;

/* Bytes. In a machine instructions are Thumb's: before the end of a page QEMU looks one halfword ahead, and takes that
 * for a part of the instruction.
 */
static size_t size_of(const struct qemu_plugin_insn *insn) {
  const uint8_t *code = qemu_plugin_insn_data(insn);
  return !in_machine ? qemu_plugin_insn_size(insn) : code[1] >= 0xe8 ? 4 : 2;
}

static int hotter(const void *a, const void *b) {
  const block *first = *(block *const *)a, *second = *(block *const *)b;
  const uint64_t x = first->times * first->insns, y = second->times * second->insns;
  return x < y ? 1 : x > y ? -1 : 0;
}

static void report(void) {
  uint64_t all = 0;
  for (size_t i = 0; i < count; i++) {
    all += blocks[i]->times * blocks[i]->insns;
  }
  fprintf(stderr, "mark %" PRIu64 "\n", all);
  qsort(blocks, count, sizeof(block *), hotter);
  for (size_t i = 0; i < count; i++) {
    block *b = blocks[i];
    if ((i < HOTTEST || in_machine) && b->times > 0) {
      fprintf(stderr, "block %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIx64 " ", b->times, b->taken, b->insns,
              b->address);
      for (size_t k = 0; k < b->bytes; k++) {
        fprintf(stderr, "%02x", b->code[k]);
      }
      fprintf(stderr, "\n");
    }
    b->times = b->taken = 0;
  }
}

static void entered(unsigned vcpu, void *data) {
  block *b = data;
  (void)vcpu;
  if (before != NULL && b->address != before->address + before->bytes) {
    before->taken++;
  }
  b->times++;
  before = b;
}

static void marked(unsigned vcpu, void *data) {
  (void)vcpu, (void)data;
  report();
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  const size_t insns = qemu_plugin_tb_n_insns(tb);
  size_t bytes = 0;
  (void)id;
  for (size_t i = 0; i < insns; i++) {
    bytes += size_of(qemu_plugin_tb_get_insn(tb, i));
  }
  block *b = count < MOST ? calloc(1, sizeof(block) + bytes) : NULL;
  if (b == NULL) {
    fprintf(stderr, "too many blocks\n");
    exit(3);
  }
  b->insns = insns;
  b->bytes = bytes;
  b->address = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
  uint8_t *to = b->code;
  for (size_t i = 0; i < insns; i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
    memcpy(to, qemu_plugin_insn_data(insn), size_of(insn));
    to += size_of(insn);
    if (in_machine && qemu_plugin_insn_vaddr(insn) == mark) {
      qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, QEMU_PLUGIN_CB_NO_REGS, NULL);
    }
  }
  blocks[count++] = b;
  if (in_machine) {
    qemu_plugin_register_vcpu_tb_exec_cb(tb, entered, QEMU_PLUGIN_CB_NO_REGS, b);
  } else {
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &b->times, 1);
  }
}

static void called(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t argument, uint64_t a2, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
  (void)id, (void)vcpu, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
  if (number == GETPGID && argument == MARK) {
    report();
  }
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
  (void)info;
  if (argc == 1 && strncmp(argv[0], "mark=", 5) == 0) {
    in_machine = 1;
    mark = strtoull(argv[0] + 5, NULL, 10);
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
