// Where threads wait, seen from another thread: no signal is sent, so no call of theirs ends early.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "inject/python_threads.h"
#include "inject/stack_capture.h"

namespace rooflm::inject {

/// One thread at one place, from the first look that saw it there to the last.
struct Wait {
  std::uint32_t thread = 0;
  std::uint32_t place = 0;  ///< the number of its innermost frame
  std::uint64_t first_ns = 0, last_ns = 0;
  std::uint32_t periods = 0;  ///< of the rate, during which it waited
};

/// Looks at all threads at each tick of the sampler. A thread whose clock of processor time stands still has
/// not run, so it is where it was: only one that ran since, and has stopped, is looked at closely. The system
/// tells where (/proc/self/task/THREAD/syscall: stack pointer and program counter), the stack is copied as
/// that of a running thread, and the copy counts if the clock still stands after it.
///
/// For the sampler's thread.
class WaitingThreads {
 public:
  struct Takers {
    std::function<std::uint32_t(const CapturedStack&)> place_of;  ///< 0: it has no frame
    std::function<void(const Wait&)> take;
  };
  WaitingThreads(double hertz, double budget, bool native, Takers takers);

  /// From here on these are looked at. What was seen of the recorder's own is forgotten.
  void set_threads(const std::set<std::uint32_t>& threads, const std::set<std::uint32_t>& own);
  /// From here on Python's frames are noted, too.
  void set_python(const PythonLayout& layout, const PythonThreadList& list);
  /// One tick: more seldom where looking takes more than the budget of this thread's time, and at least so
  /// many ticks apart.
  void look(std::uint32_t apart = 1);
  /// Hands over what is known: nothing is waited for any more, or nobody wants to know now.
  void end();

 private:
  struct Thread {
    std::uint64_t used_ns = 0;         ///< its clock at the last look
    std::uint64_t looked_ns = 0;       ///< when that was, 0: never
    std::uint32_t before = 0;          ///< periods of the wait before it was first seen
    std::uint64_t since = 0;           ///< the tick at which its wait was first seen
    std::uint64_t next = 0;            ///< the tick before which it is left out
    std::uint32_t written = kAtFirst;  ///< periods after which the wait is handed over, while it goes on
    Wait wait{};                       ///< thread 0: none
  };
  static constexpr std::uint32_t kAtFirst = 32;
  void look_at(std::uint32_t number, Thread& thread);
  void extend(Thread& thread, std::uint64_t now_ns);
  [[nodiscard]] std::uint32_t periods_in(std::uint64_t ns) const;
  void finish(Thread& thread);
  [[nodiscard]] bool capture(std::uint32_t thread, std::uint64_t used_ns);

  double period_s_, budget_;
  bool native_, has_python_ = false, has_looked_at_python_ = false;
  Takers takers_;
  PythonLayout layout_{};
  PythonThreads python_;
  std::map<std::uint32_t, Thread> threads_{};
  std::unique_ptr<CapturedStack> stack_;
  std::uint64_t tick_ = 0, looked_ = 0;  ///< now, and when it looked last
  std::uint32_t periods_ = 1;            ///< ticks from one look to the next, by the budget
  double cost_s_ = 0;                    ///< of a look, a mean of the last ones
};

}  // namespace rooflm::inject
