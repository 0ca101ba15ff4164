/* Number of threads that each step of a net is worth, found out in its first runs: what threads cost to meet and to
 * read each other's results depends on the machine, and what they bring on the step. No result depends on it.
 *
 * 1. Whole runs take turns with one thread, two, four and so on for all steps, and each step's time is taken. A run
 *    counts when those of WARM before it had as many threads: what it reads lies where it would lie, and a core that
 *    slept while there was one thread is awake.
 * 2. Each step gets the number of its least median. More threads have to earn it.
 * 3. Whole runs take turns with this mixture and with the same number for all steps; the least median stays.
 *
 * Machines have other things to do meanwhile, and other things at other times. So this begins again when AGAIN times as
 * many runs have gone by as it took; or, where threads were worth it, when runs take longer than with one thread then.
 *
 * A net is a class with
 *
 *   steps(threads)            std::vector of {first, last}: the ops [first, last) that so many threads run together
 *   set(first, threads)       nmp_set_threads
 *   run(first, last)          nmp_run_ops
 *   now()                     seconds
 */
#ifndef NMP_SHARES_H
#define NMP_SHARES_H

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "nmp.h"

template <typename Net>
class Shares {
 public:
  /* threads: of the pool; 0 and 1 are one. */
  Shares(Net net, size_t threads) : net_(std::move(net)), steps_(net_.steps(std::max<size_t>(threads, 1))) {
    for (size_t n = 1; n < threads; n *= 2) {
      choices_.emplace_back(steps_.size(), n);
    }
    choices_.emplace_back(steps_.size(), std::max<size_t>(threads, 1));
    decided_ = choices_.size() < 2;
    begin();
  }

  /* All ops once. */
  void run() {
    if (decided_ && choices_.size() > 1 && (++calm_ > AGAIN * measured_ || is_disappointing())) {
      choices_.resize(choices_.size() - mixed_);
      decided_ = false;
      begin();
    }
    if (!decided_) {
      measure();
    } else if (chosen_ > 0 && calm_ % SAMPLE == 0) {
      const double start = net_.now();
      net_.run(0, ops());
      samples_.push_back(net_.now() - start);
    } else {
      net_.run(0, ops());
    }
  }

  uint32_t ops() const {
    return steps_.empty() ? 0 : steps_.back().second;
  }

  bool decided() const {
    return decided_;
  }

  /* Threads of each step. */
  const std::vector<size_t> &chosen() const {
    return choices_[chosen_];
  }

 private:
  using Choice = std::vector<size_t>;
  static constexpr size_t ROUNDS = 9, ROUNDS_OF_LONG = 3; /* that count */
  static constexpr double LONG = 0.5;                     /* seconds of a part */
  static constexpr double WARM = 0.004;                   /* seconds, and one run at least */
  static constexpr size_t AGAIN = 50;
  static constexpr size_t SAMPLE = 8;    /* of so many runs one is timed later on */
  static constexpr double EARNED = 0.95; /* of a step's time with fewer threads */
  static constexpr double WHOLE = 0.97;  /* of a whole run's */

  void begin() {
    measured_ = calm_ = mixed_ = 0;
    samples_.clear();
    begin_part(false, steps_.size());
  }

  void begin_part(bool whole, size_t times) {
    whole_ = whole;
    turn_ = warming_ = 0;
    spent_ = 0;
    times_.assign(choices_.size(), std::vector<std::vector<double>>(times));
  }

  void set(const Choice &choice) {
    for (size_t i = 0; i < steps_.size(); i++) {
      net_.set(steps_[i].first, choice[i]);
    }
  }

  /* One of the runs in a row with the same threads, of which the last one counts; and the first round does not. */
  void measure() {
    const size_t choice = turn_ % choices_.size();
    const double start = net_.now();
    if (warming_ == 0) {
      set(choices_[choice]);
      since_ = start;
    }
    const bool last_one = warming_ > 0 && start >= since_ + WARM, counts = last_one && turn_ >= choices_.size();
    warming_ = last_one ? 0 : warming_ + 1;
    double last = start;
    if (whole_) {
      net_.run(0, ops());
    }
    for (size_t i = 0; i < steps_.size(); i++) {
      if (!whole_) {
        net_.run(steps_[i].first, steps_[i].second);
      }
      if (counts && (!whole_ || i == 0)) {
        const double now = net_.now();
        times_[choice][i].push_back(now - last);
        last = now;
      }
    }
    measured_++;
    spent_ += net_.now() - start;
    if (last_one && ++turn_ % choices_.size() == 0 && is_enough(turn_ / choices_.size())) {
      decide();
    }
  }

  /* True when the choice takes longer now than one thread did. */
  bool is_disappointing() {
    if (samples_.size() < ROUNDS || calm_ < measured_) {
      return false;
    }
    const bool found = median(samples_) > alone_;
    samples_.clear();
    return found;
  }

  /* Rounds of nets that take long are few, and steady for it. */
  bool is_enough(size_t rounds) const {
    return rounds > ROUNDS || (rounds > ROUNDS_OF_LONG && spent_ > LONG);
  }

  static double median(std::vector<double> &times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  /* The choice of the least time of step i, where each has to take less than this part of one with fewer threads. */
  size_t best_of(size_t i, double part) {
    size_t best = 0;
    double least = median(times_[0][i]);
    for (size_t k = 1; k < choices_.size(); k++) {
      const double took = median(times_[k][i]);
      if (took < least * (best == 0 ? part : 1)) {
        best = k;
        least = took;
      }
    }
    return best;
  }

  void decide() {
    if (whole_) {
      alone_ = median(times_[0][0]);
      chosen_ = best_of(0, WHOLE);
      decided_ = true;
      set(choices_[chosen_]);
      return;
    }
    Choice mixture;
    for (size_t i = 0; i < steps_.size(); i++) {
      mixture.push_back(choices_[best_of(i, EARNED)][i]);
    }
    if (std::find(choices_.begin(), choices_.end(), mixture) == choices_.end()) {
      choices_.push_back(std::move(mixture));
      mixed_ = 1;
    }
    begin_part(true, 1);
  }

  Net net_;
  const std::vector<std::pair<uint32_t, uint32_t>> steps_;
  std::vector<Choice> choices_; /* the first one is a thread for each step; the last one, if mixed_, the mixture */
  std::vector<std::vector<std::vector<double>>> times_; /* [choice][step], or of whole runs [choice][0] */
  size_t chosen_ = 0, mixed_ = 0;
  size_t turn_ = 0, warming_ = 0;  /* choices of this part that were timed; runs of the present one */
  size_t measured_ = 0, calm_ = 0; /* runs that were measured, and since then */
  double spent_ = 0, alone_ = 0;   /* seconds of this part; of a run with one thread */
  double since_ = 0;               /* when the present choice was set */
  std::vector<double> samples_;    /* of runs since then */
  bool whole_ = false, decided_ = false;
};

/* A net of the C API. */
class TimedNet {
 public:
  explicit TimedNet(nmp_net *net) : net_(net) {}

  std::vector<std::pair<uint32_t, uint32_t>> steps(size_t threads) const {
    std::vector<std::pair<uint32_t, uint32_t>> found;
    for (uint32_t first = 0, last; nmp_set_threads(net_, first, threads) == NMP_OK; first = last) {
      last = first + nmp_together(net_, first);
      found.emplace_back(first, last);
    }
    return found;
  }

  void set(uint32_t first, size_t threads) const {
    (void)nmp_set_threads(net_, first, threads);
  }

  void run(uint32_t first, uint32_t last) const {
    (void)nmp_run_ops(net_, first, last);
  }

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  nmp_net *net_;
};

#endif
