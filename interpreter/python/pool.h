/* Threads for nmp_options.parallel. Workers start with the first call, spin for a moment after each one, since the next
 * op of a run comes soon, and then sleep. One call at a time; several pools may work side by side.
 *
 * Each thread has a share of the tasks, the same one in every call: what it wrote is still in its core's cache when the
 * next op reads it. Who is done with his own takes what others have not begun. A share's ticket is the number of the
 * call and the share's next task. A task is taken by moving the ticket on, which fails when the call is another one by
 * then; so nobody waits for workers that are late. Fewer tasks than threads are for the first threads; the others see
 * nothing of the call.
 */
#ifndef NMP_POOL_H
#define NMP_POOL_H

#ifndef _WIN32 /* where no process forks */
#include <pthread.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

class Pool {
 public:
  using Task = void (*)(void *context, size_t i, size_t worker);

  /* threads: with the caller's, so that one fewer is started. */
  explicit Pool(size_t threads) : threads_(threads) {
#ifndef _WIN32
    static const int once = pthread_atfork(nullptr, nullptr, [] { forks().fetch_add(1); });
    (void)once;
#endif
  }

  ~Pool() {
    leave_if_forked();
  }

  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  /* An nmp_parallel_for. */
  static void parallel(void *pool, Task task, void *context, size_t n) {
    static_cast<Pool *>(pool)->run(task, context, n);
  }

 private:
  static constexpr std::chrono::microseconds SPIN{40};

  static std::atomic<unsigned> &forks() {
    static std::atomic<unsigned> count{0};
    return count;
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }

  /* State that the threads share. */
  class Crew {
   public:
    explicit Crew(size_t threads) : shares_(threads), wakes_(threads) {
      for (size_t i = 1; i < threads; i++) {
        workers_.emplace_back([this, i] { work(i); });
      }
    }

    ~Crew() {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
      }
      for (std::condition_variable &wake : wakes_) {
        wake.notify_all();
      }
      for (std::thread &worker : workers_) {
        worker.join();
      }
    }

    void run(Task task, void *context, size_t n) {
      const uint64_t call = ((shares_[0].ticket.load() >> 32) + 1) << 32;
      const size_t called = std::max<size_t>(1, std::min(n, shares_.size()));
      for (size_t i = 0; i < called_; i++) {
        shares_[i].ticket.fetch_or(CLOSED); /* no task of the last call can be taken from here on */
      }
      called_ = called;
      task_.store(task);
      context_.store(context);
      count_.store(n);
      done_.store(0);
      for (size_t i = 0; i < called; i++) {
        shares_[i].ticket.store(call | begin(i, n));
      }
      for (size_t i = 1; i < called && sleepers_.load() > 0; i++) {
        if (shares_[i].asleep.load()) {
          std::lock_guard<std::mutex> lock(mutex_);
          wakes_[i].notify_one();
        }
      }
      take_all(0);
      for (int i = 0; done_.load() < n; i++) {
        if (i < 1000) {
          pause();
        } else {
          std::this_thread::yield(); /* for a worker that waits for this core */
        }
      }
    }

   private:
    static constexpr uint64_t CLOSED = 0xffffffff;

    struct alignas(64) Share {
      std::atomic<uint64_t> ticket{CLOSED};
      std::atomic<bool> asleep{false};
    };

    /* The first task of a share of n; all of them are before those of shares that are not called. */
    size_t begin(size_t share, size_t n) const {
      const size_t called = std::min(n, shares_.size());
      return share < called ? n * share / called : n;
    }

    /* Does one task of a share; false when there is none to take. */
    bool take(size_t share, size_t worker) {
      std::atomic<uint64_t> &next = shares_[share].ticket;
      uint64_t ticket = next.load();
      const Task task = task_.load();
      void *context = context_.load();
      const size_t end = begin(share + 1, count_.load());
      while ((ticket & CLOSED) < end && (ticket & CLOSED) != CLOSED) {
        const uint64_t call = ticket >> 32;
        if (next.compare_exchange_weak(ticket, ticket + 1)) {
          task(context, ticket & CLOSED, worker);
          done_.fetch_add(1);
          return true;
        }
        if (ticket >> 32 != call) {
          return true; /* task, context and end are those of another call: look again */
        }
      }
      return false;
    }

    void take_all(size_t worker) {
      for (size_t i = 0; i < shares_.size(); i++) {
        while (take((worker + i) % shares_.size(), worker)) {
        }
      }
    }

    void work(size_t worker) {
      const std::atomic<uint64_t> &ticket = shares_[worker].ticket;
      for (;;) {
        const uint64_t seen = ticket.load() >> 32;
        take_all(worker);
        const auto end = std::chrono::steady_clock::now() + SPIN;
        while (ticket.load() >> 32 == seen && std::chrono::steady_clock::now() < end) {
          for (int i = 0; i < 16 && ticket.load() >> 32 == seen; i++) {
            pause();
          }
        }
        if (ticket.load() >> 32 == seen && !sleep(worker, seen)) {
          return;
        }
      }
    }

    /* Until there is another call; false when it is time to stop. */
    bool sleep(size_t worker, uint64_t seen) {
      const std::atomic<uint64_t> &ticket = shares_[worker].ticket;
      std::unique_lock<std::mutex> lock(mutex_);
      shares_[worker].asleep.store(true);
      sleepers_.fetch_add(1);
      wakes_[worker].wait(lock, [&] { return stop_ || ticket.load() >> 32 != seen; });
      sleepers_.fetch_sub(1);
      shares_[worker].asleep.store(false);
      return !stop_;
    }

    std::vector<Share> shares_;
    std::atomic<Task> task_{nullptr};
    std::atomic<void *> context_{nullptr};
    std::atomic<size_t> count_{0}, done_{0}, sleepers_{0};
    size_t called_ = 0; /* shares of the last call */
    std::mutex mutex_;
    std::vector<std::condition_variable> wakes_;
    bool stop_ = false; /* under mutex_ */
    std::vector<std::thread> workers_;
  };

  /* A forked process has the pool's memory but none of its workers: it starts its own and leaves the others alone. */
  void leave_if_forked() {
    if (crew_ && fork_ != forks().load()) {
      (void)crew_.release();
    }
  }

  void run(Task task, void *context, size_t n) {
    leave_if_forked();
    if (!crew_) {
      fork_ = forks().load();
      crew_ = std::make_unique<Crew>(threads_);
    }
    crew_->run(task, context, n);
  }

  const size_t threads_;
  unsigned fork_ = 0;
  std::unique_ptr<Crew> crew_;
};

#endif
