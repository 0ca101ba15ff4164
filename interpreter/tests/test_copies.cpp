/* A net that threads share by a lock, and copies of it that run meanwhile, while the process forks: always the same
 * bytes. Meant to be run under ThreadSanitizer.
 *
 *   test_copies model.nmp level
 */
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../python/lock.h"
#include "../python/pool.h"
#include "../python/shares.h"

static constexpr size_t THREADS = 2, USERS = 3, RUNS = 30;
static std::atomic<int> failures{0};

static void expect(bool fine, const char *what) {
  if (!fine) {
    std::printf("failed: %s\n", what);
    failures++;
  }
}

/* Zeros at a multiple of 64. */
class Block {
 public:
  explicit Block(size_t bytes) : bytes_(bytes), memory_(bytes + 64) {}

  uint8_t *data() {
    return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
  }

  size_t size() const {
    return bytes_;
  }

 private:
  size_t bytes_;
  std::vector<uint8_t> memory_;
};

struct Net {
  explicit Net(size_t arena) : memory(arena), pool(THREADS) {}

  void begin() {
    shares = std::make_unique<Shares<TimedNet>>(TimedNet(net), THREADS);
  }

  /* The first output for inputs of this byte. */
  std::string run(uint8_t value) {
    const std::lock_guard<Lock> guard(lock);
    nmp_view view;
    for (uint32_t i = 0; nmp_input(net, i, &view) == NMP_OK; i++) {
      std::memset(view.data, value, view.bytes);
    }
    shares->run();
    expect(nmp_output(net, 0, &view) == NMP_OK, "an output");
    return std::string(static_cast<const char *>(view.data), view.bytes);
  }

  Block memory;
  Pool pool;
  Lock lock;
  nmp_net *net = nullptr;
  std::unique_ptr<Shares<TimedNet>> shares;
};

static std::string content(const char *path) {
  std::string found;
  FILE *f = std::fopen(path, "rb");
  for (int c; f && (c = std::fgetc(f)) != EOF;) {
    found.push_back(static_cast<char>(c));
  }
  return f ? (std::fclose(f), found) : found;
}

static void use(Net *shared, size_t copy_bytes, uint8_t value, const std::string &wanted) {
  Net own(copy_bytes);
  expect(nmp_copy(&own.net, shared->net, own.memory.data(), own.memory.size(), &own.pool) == NMP_OK, "a copy");
  own.begin();
  for (size_t i = 0; i < RUNS; i++) {
    expect(shared->run(value) == wanted, "outputs of the shared net");
    expect(own.run(value) == wanted, "outputs of a copy");
  }
}

int main(int argc, char **argv) {
  if (argc != 3) {
    return 2;
  }
  const std::string data = content(argv[1]);
  Block file(data.size());
  std::memcpy(file.data(), data.data(), data.size());
  nmp_options options = {argv[2], Pool::parallel, nullptr, THREADS, nullptr};
  nmp_info info;
  if (nmp_inspect(file.data(), file.size(), &options, &info, nullptr) != NMP_OK) {
    return 2;
  }
  Net net(info.arena_bytes);
  options.pool = &net.pool;
  if (nmp_create(&net.net, file.data(), file.size(), net.memory.data(), net.memory.size(), &options, nullptr) !=
      NMP_OK) {
    return 2;
  }
  net.begin();
  std::vector<std::string> wanted;
  for (uint8_t i = 0; i < USERS; i++) {
    wanted.push_back(net.run(i));
  }
  expect(wanted[0] != wanted[1], "outputs that depend on the input");
  std::vector<std::thread> users;
  for (uint8_t i = 0; i < USERS; i++) {
    users.emplace_back(use, &net, info.arena_bytes - info.packed_bytes, i, wanted[i]);
  }
  for (int i = 0; i < 5; i++) {
    const pid_t child = fork();
    if (child == 0) {
      _exit(net.run(1) == wanted[1] ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    expect(status == 0, "outputs in a forked process");
  }
  for (std::thread &user : users) {
    user.join();
  }
  std::printf("%d failures\n", failures.load());
  return failures != 0;
}
