/* The binding's pool: every task runs once, whatever the number of tasks and pools; workers that sleep are woken; a
 * forked process has workers of its own. Meant to be run under ThreadSanitizer.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "../python/pool.h"

static std::atomic<int> failures{0};

/* Written without atomics: the pool itself has to order these accesses. */
struct Job {
  std::vector<int> counts;
  std::vector<size_t> workers; /* tasks that each did: one at a time, or the sum is wrong */
};

static void count(void *context, size_t i, size_t worker) {
  Job *job = static_cast<Job *>(context);
  job->counts[i]++;
  job->workers[worker]++;
}

static void calls(size_t threads, int rounds) {
  Pool pool(threads);
  for (int round = 0; round < rounds; round++) {
    const size_t n = static_cast<size_t>(round) % 7;
    Job job{std::vector<int>(n, 0), std::vector<size_t>(threads, 0)};
    Pool::parallel(&pool, count, &job, n);
    for (int times : job.counts) {
      failures += times != 1;
    }
    failures += std::accumulate(job.workers.begin(), job.workers.end(), size_t{0}) != n;
    if (round % 500 == 499) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1)); /* workers fall asleep */
    }
  }
}

static bool forked() {
  Pool pool(2);
  Job job{std::vector<int>(4, 0), std::vector<size_t>(2, 0)};
  Pool::parallel(&pool, count, &job, 4);
  const pid_t child = fork();
  if (child == 0) {
    {
      Pool::parallel(&pool, count, &job, 4);
    }
    _exit(job.counts == std::vector<int>(4, 2) ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

int main() {
  {
    Pool unused(4);
  }
  std::vector<std::thread> users;
  for (size_t threads = 1; threads <= 3; threads++) {
    users.emplace_back(calls, threads, 3000);
  }
  for (std::thread &user : users) {
    user.join();
  }
  failures += !forked();
  std::printf("%d failures\n", failures.load());
  return failures != 0;
}
