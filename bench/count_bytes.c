/* A plug-in of QEMU: counts the bytes that a program on a Cortex-M reads and writes in up to four ranges of addresses
 * (range=FIRST:END, decimal). At each execution of the instruction at an address (mark=ADDRESS) it prints, on stderr,
 * what was moved in each of them since the one before. Declared here is what it calls of QEMU's plug-in interface,
 * version 1 (qemu-plugin.h).
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))
#define RANGES_MOST 4

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };
typedef void called_back(unsigned vcpu, void *data);
typedef void accessed(unsigned vcpu, uint32_t about, uint64_t address, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
unsigned qemu_plugin_mem_size_shift(uint32_t about);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, called_back *call,
                                            enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, accessed *call, enum qemu_plugin_cb_flags flags,
                                      enum qemu_plugin_mem_rw kind, void *data);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb *));

EXPORTED int qemu_plugin_version = 1;
EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv);

static struct range {
  uint64_t first, end, bytes;
} ranges[RANGES_MOST];
static size_t count;
static uint64_t mark;

static void move(unsigned vcpu, uint32_t about, uint64_t address, void *data) {
  (void)vcpu;
  (void)data;
  for (size_t i = 0; i < count; i++) {
    if (address >= ranges[i].first && address < ranges[i].end) {
      ranges[i].bytes += UINT64_C(1) << qemu_plugin_mem_size_shift(about);
    }
  }
}

static void report(unsigned vcpu, void *data) {
  (void)vcpu;
  (void)data;
  fprintf(stderr, "moved");
  for (size_t i = 0; i < count; i++) {
    fprintf(stderr, " %" PRIu64, ranges[i].bytes);
    ranges[i].bytes = 0;
  }
  fprintf(stderr, "\n");
  fflush(stderr);
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
  (void)id;
  for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
    qemu_plugin_register_vcpu_mem_cb(insn, move, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
    if (qemu_plugin_insn_vaddr(insn) == mark) {
      qemu_plugin_register_vcpu_insn_exec_cb(insn, report, QEMU_PLUGIN_CB_NO_REGS, NULL);
    }
  }
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; i++) {
    struct range *to = &ranges[count < RANGES_MOST ? count : 0];
    if (sscanf(argv[i], "range=%" SCNu64 ":%" SCNu64, &to->first, &to->end) == 2) {
      count++;
    } else if (sscanf(argv[i], "mark=%" SCNu64, &mark) != 1 || count > RANGES_MOST) {
      return 1;
    }
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
  return 0;
}
