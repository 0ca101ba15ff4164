/* Times of a run with one thread, with several for all steps, and with as many as each step is worth (shares.h).
 * The three take turns, so that what disturbs the machine disturbs all of them: medians over the rounds.
 *
 *   bench_threads threads rounds model.nmp ...
 */
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "../python/pool.h"
#include "../python/shares.h"

static constexpr double TURN = 0.006; /* seconds */

static std::vector<uint64_t> load(const char *path, size_t *bytes) {
  FILE *f = fopen(path, "rb");
  if (f == nullptr || fseek(f, 0, SEEK_END) != 0) {
    perror(path);
    exit(2);
  }
  *bytes = static_cast<size_t>(ftell(f));
  rewind(f);
  std::vector<uint64_t> data(*bytes / 8 + 3);
  *bytes = fread(data.data(), 1, *bytes, f);
  fclose(f);
  return data;
}

/* At a multiple of 64. */
template <typename T>
static void *aligned(std::vector<T> &memory) {
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + ((64 - at % 64) % 64) / sizeof(T);
}

class Candidate {
 public:
  Candidate(const std::vector<uint64_t> &file, size_t bytes, size_t threads, bool decides)
      : decides_(decides),
        file_(file),
        pool_(threads),
        options_{nullptr, threads > 1 ? Pool::parallel : nullptr, &pool_, threads} {
    file_.resize(bytes / 8 + 16);
    void *model = aligned(file_);
    memmove(model, file.data(), bytes);
    nmp_info info;
    if (nmp_inspect(model, bytes, &options_, &info, nullptr) != NMP_OK) {
      exit(2);
    }
    arena_.resize(info.arena_bytes / 8 + 16);
    if (nmp_create(&net_, model, bytes, aligned(arena_), info.arena_bytes, &options_, nullptr) != NMP_OK) {
      exit(2);
    }
    shares_ = std::make_unique<Shares<TimedNet>>(TimedNet(net_), threads);
    while (decides && !shares_->decided()) {
      run();
    }
  }

  /* Milliseconds of a run. The first two come after another candidate's and do not count. */
  double turn() {
    run();
    run();
    const double start = TimedNet::now();
    size_t runs = 0;
    for (double now = start; now < start + TURN; now = TimedNet::now(), runs++) {
      run();
    }
    return (TimedNet::now() - start) / static_cast<double>(runs) * 1e3;
  }

  void tell() const {
    if (shares_->decided()) {
      const std::vector<size_t> &chosen = shares_->chosen();
      const auto alone = static_cast<size_t>(std::count(chosen.begin(), chosen.end(), size_t{1}));
      printf("  %zu of %zu steps are shared\n", chosen.size() - alone, chosen.size());
    }
  }

 private:
  /* As the binding does; the others keep what they have. */
  void run() {
    if (decides_) {
      shares_->run();
    } else {
      nmp_run(net_);
    }
  }

  const bool decides_;
  std::vector<uint64_t> file_, arena_;
  Pool pool_;
  nmp_options options_;
  nmp_net *net_ = nullptr;
  std::unique_ptr<Shares<TimedNet>> shares_;
};

static double quantile(std::vector<double> &times, double part) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(part * static_cast<double>(times.size() - 1))];
}

int main(int argc, char **argv) {
  const int threads = argc > 3 ? atoi(argv[1]) : 0, rounds = argc > 3 ? atoi(argv[2]) : 0;
  if (threads < 2 || rounds < 1) {
    fprintf(stderr, "usage: bench_threads threads rounds model.nmp ...\n");
    return 2;
  }
  const auto several = static_cast<size_t>(threads);
  for (int i = 3; i < argc; i++) {
    size_t bytes;
    const std::vector<uint64_t> file = load(argv[i], &bytes);
    Candidate one(file, bytes, 1, true), all(file, bytes, several, false), decided(file, bytes, several, true);
    const std::array<Candidate *, 3> candidates = {&one, &all, &decided};
    std::array<std::vector<double>, 3> times;
    for (size_t turn = 0; turn < 3 * static_cast<size_t>(rounds); turn++) {
      const size_t which = (turn + turn / 3) % 3;
      times[which].push_back(candidates[which]->turn());
    }
    printf("%s\n", argv[i]);
    const double alone = quantile(times[0], 0.5);
    for (size_t k = 0; k < 3; k++) {
      const double median = quantile(times[k], 0.5);
      printf("  %-28s %9.4f ms, 10 %% below %9.4f, 10 %% above %9.4f, %5.3f of one thread's\n",
             k == 0   ? "one thread"
             : k == 1 ? "all threads for all steps"
                      : "as many as a step is worth",
             median, quantile(times[k], 0.1), quantile(times[k], 0.9), median / alone);
    }
    decided.tell();
  }
  return 0;
}
