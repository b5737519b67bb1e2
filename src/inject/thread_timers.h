// A timer for each thread of this process, as often as what its samples cost allows.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

namespace rooflm::inject {

/// How often a thread is sampled, and what that costs it. Handlers find the one of their thread by the
/// address that the timer carries.
struct ThreadPace {
  std::atomic<std::uint32_t> periods{1};  ///< of the wanted rate, from one signal to the next
  std::atomic<std::uint32_t> cost_ns{
      0};                              ///< of a sample in its handler, a mean of the last ones; 0: none yet
  std::atomic<std::uint32_t> owed{0};  ///< periods whose samples were lost
  std::atomic<bool> is_taken{false};   ///< by a thread; looked at by the sampler alone

  /// Takes what one more sample has cost, at most four times the mean: the thread may have lost its processor
  /// meanwhile. The first one, whose code and memory nobody has touched before, counts a quarter. What was
  /// taken.
  std::uint32_t add_cost(std::uint64_t ns);
};

/// How many periods to wait between two samples that cost `cost_s` each, so that they take no more than
/// `budget` of a thread's time: a power of two, 64 at most. Fewer than `now` only where it leaves a third of
/// the budget free, so that the rate does not swing.
std::uint32_t periods_between(double cost_s, double period_s, double budget, std::uint32_t now);

/// For the sampler's thread.
class ThreadTimers {
 public:
  /// `budget`: the share of a thread's time that its samples may take.
  ThreadTimers(double hertz, double budget) : period_s_(1 / hertz), budget_(budget) {}
  ~ThreadTimers() { drop(); }
  ThreadTimers(const ThreadTimers&) = delete;
  ThreadTimers& operator=(const ThreadTimers&) = delete;

  /// Starts timers of threads that are new, where `wants` says so, ends those of threads that are gone, and
  /// sets how often each is sampled. `more_s`: what a sample costs outside of its handler.
  void look(const std::function<bool(std::uint32_t thread)>& wants, double more_s);
  /// A `part` of the budget, and samples at least so many periods apart.
  void slow_down(std::uint32_t part) { part_ = part; }
  /// Ends all.
  void drop();

 private:
  struct Timer {
    timer_t timer = nullptr;
    ThreadPace* pace = nullptr;
  };
  [[nodiscard]] Timer started(std::uint32_t thread) const;
  void set_pace(const Timer& timer, double more_s) const;
  static void end(const Timer& timer);

  double period_s_, budget_;
  std::uint32_t part_ = 1;
  std::map<std::uint32_t, Timer> timers_;  ///< by thread
};

}  // namespace rooflm::inject
