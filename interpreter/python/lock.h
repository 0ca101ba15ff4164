/* A mutex that no fork finds locked: fork() waits until it is free, so that the child may go on with what it guards.
 *
 * Whoever holds it must not wait for anything that a forking thread may hold, such as Python's GIL.
 */
#ifndef NMP_LOCK_H
#define NMP_LOCK_H

#ifndef _WIN32 /* where no process forks */
#include <pthread.h>
#endif

#include <algorithm>
#include <mutex>
#include <vector>

class Lock {
 public:
  Lock() {
    Known &known = all();
    const std::lock_guard<std::mutex> guard(known.mutex);
    known.locks.push_back(&mutex_);
  }

  ~Lock() {
    Known &known = all();
    const std::lock_guard<std::mutex> guard(known.mutex);
    known.locks.erase(std::find(known.locks.begin(), known.locks.end(), &mutex_));
  }

  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

  void lock() {
    mutex_.lock();
  }

  void unlock() {
    mutex_.unlock();
  }

 private:
  struct Known {
    std::mutex mutex;
    std::vector<std::mutex *> locks;
  };

  /* Never freed: nets may outlive whatever the end of a process destroys. */
  static Known &all() {
    static Known *const known = make();
    return *known;
  }

  static Known *make() {
#ifndef _WIN32
    pthread_atfork(take_all, leave_all, leave_all);
#endif
    return new Known;
  }

  static void take_all() {
    Known &known = all();
    known.mutex.lock();
    for (std::mutex *mutex : known.locks) {
      mutex->lock();
    }
  }

  static void leave_all() {
    Known &known = all();
    for (std::mutex *mutex : known.locks) {
      mutex->unlock();
    }
    known.mutex.unlock();
  }

  std::mutex mutex_;
};

#endif
