/* Threads that steps get (shares.h), on nets that are made up: what a step takes with each number of threads is a
 * table, and the clock is the sum of what was run.
 */
#include <cstdio>
#include <string>

#include "../python/shares.h"

/* Seconds by the binary logarithm of the threads. */
using Costs = std::vector<std::vector<double>>;

struct World {
  Costs costs;
  std::vector<size_t> threads;
  double meeting = 0; /* more for each step that has other threads than the one before it */
  double waking = 0;  /* after one thread, seconds in which more of them take five times as long */
  double woken = 0;   /* when there were more of them again */
  double clock = 0;
  size_t runs = 0;
};

class MadeUp {
 public:
  explicit MadeUp(World *world) : world_(world) {}

  std::vector<std::pair<uint32_t, uint32_t>> steps(size_t threads) const {
    std::vector<std::pair<uint32_t, uint32_t>> found;
    for (uint32_t i = 0; i < world_->costs.size(); i++) {
      found.emplace_back(2 * i, 2 * i + 2);
    }
    world_->threads.assign(found.size(), threads);
    return found;
  }

  void set(uint32_t first, size_t threads) const {
    world_->woken = world_->threads[first / 2] == 1 && threads > 1 ? world_->clock : world_->woken;
    world_->threads[first / 2] = threads;
  }

  void run(uint32_t first, uint32_t last) const {
    world_->runs += last == 2 * world_->costs.size();
    for (size_t i = first / 2; i < last / 2; i++) {
      const size_t threads = world_->threads[i];
      const bool changes = i > 0 && world_->threads[i - 1] != threads;
      const bool wakes = threads > 1 && world_->clock < world_->woken + world_->waking;
      world_->clock += world_->costs[i][log2_of(threads)] * (wakes ? 5 : 1) + (changes ? world_->meeting : 0);
      world_->clock += noise() * 0.002;
    }
  }

  double now() const {
    return world_->clock;
  }

 private:
  static size_t log2_of(size_t n) {
    return n > 1 ? 1 + log2_of(n / 2) : 0;
  }

  /* Mostly little; at times so long that a mean would be of no use. */
  double noise() const {
    return world_->clock - static_cast<double>(static_cast<long>(world_->clock)) > 0.9 ? 100 : 0.1;
  }

  World *world_;
};

static int failures = 0;

static void expect(const char *what, const Costs &costs, size_t threads, double meeting,
                   const std::vector<size_t> &wanted, double waking = 0) {
  World world;
  world.costs = costs;
  world.meeting = meeting;
  world.waking = waking;
  Shares<MadeUp> shares(MadeUp(&world), threads);
  const size_t ops = 2 * costs.size();
  size_t runs = 0;
  for (; !shares.decided() && runs < 1000; runs++) {
    shares.run();
  }
  const bool same = shares.ops() == ops && world.runs == runs && world.threads == wanted && shares.chosen() == wanted;
  std::printf("%s %s after %zu runs\n", same ? "fine:" : "WRONG:", what, runs);
  failures += !same;
  for (size_t i = 0; threads > 1 && i < 1000 * runs && shares.decided(); i++) {
    shares.run(); /* all of this is found out again */
  }
  failures += threads > 1 && shares.decided();
  world.costs.assign(costs.size(), std::vector<double>(costs[0].size(), 1.0));
  for (runs = 0; !shares.decided() && runs < 1000; runs++) {
    shares.run();
  }
  failures += threads > 1 && shares.chosen() != std::vector<size_t>(costs.size(), 1);
}

/* Threads pay until the other core is busy; nobody waits for the next time that all is measured. */
static void expect_change() {
  World world;
  world.costs = {{0.01, 0.006}, {0.03, 0.016}};
  Shares<MadeUp> shares(MadeUp(&world), 2);
  size_t runs = 0;
  for (; !shares.decided(); runs++) {
    shares.run();
  }
  failures += shares.chosen() != std::vector<size_t>{2, 2};
  for (size_t i = 0; i < 10 * runs; i++) {
    shares.run();
    failures += !shares.decided(); /* as long as nothing changes */
  }
  world.costs = {{0.01, 0.02}, {0.03, 0.06}};
  size_t slow = 0;
  while (slow < 10 * runs && (!shares.decided() || shares.chosen()[0] == 2)) {
    shares.run();
    slow++;
  }
  std::printf("one thread again after %zu runs\n", slow);
  failures += shares.chosen() != std::vector<size_t>{1, 1} || slow > 3 * runs;
}

int main() {
  expect_change();
  expect("one thread", {{1}, {2}}, 1, 0, {1, 1});
  expect("threads that bring nothing", {{1, 1.1}, {1, 0.99}, {2, 2}}, 2, 0, {1, 1, 1});
  expect("threads that pay", {{1, 0.6}, {3, 1.6}}, 2, 0, {2, 2});
  expect("each its own", {{1, 0.6}, {1, 1.4}, {3, 1.6}}, 2, 0, {2, 1, 2});
  expect("mixtures that do not pay", {{1, 0.6}, {1, 1.1}, {3, 1.6}}, 2, 1, {2, 2, 2});
  expect("some threads", {{8, 5, 3, 4}, {8, 4, 2, 1}, {8, 9, 9, 9}}, 8, 0, {4, 8, 1});
  expect("three threads, of which the third brings nothing", {{8, 5}, {8, 9}}, 3, 0, {2, 1});
  expect("long runs", {{100, 60}, {100, 140}}, 2, 0, {2, 1});
  expect("a core that is slow for a while after sleep", {{0.0002, 0.0001}, {0.0002, 0.0001}}, 2, 0, {2, 2}, 0.0035);
  expect("short runs", {{0.01, 0.006}, {0.01, 0.014}}, 2, 0, {2, 1});
  std::printf("%d failures\n", failures);
  return failures != 0;
}
