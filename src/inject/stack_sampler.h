// Samples where the threads of this process are in their code.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "inject/stack_capture.h"
#include "inject/stack_nodes.h"
#include "inject/stream_writer.h"
#include "inject/thread_timers.h"
#include "inject/unwinder.h"
#include "inject/waiting_threads.h"

namespace rooflm::inject {

/// A timer for each thread, of the processor time that the thread takes (thread_timers.h): its signal comes
/// only to a thread that runs, and interrupts no call that waits. The handler keeps registers and the top of
/// the stack (stack_capture.h); a thread of the sampler's own follows them and writes addresses down, and
/// names of files they are in. It also looks where threads wait (waiting_threads.h).
///
/// The signal is SIGURG, since nothing happens to a program that gets one it does not expect: one may be on
/// its way while the program becomes another (execve). Where the program handles it by itself nothing is
/// sampled.
class StackSampler {
 public:
  struct Wishes {
    double hertz = 0;  ///< 0: never
    bool native = true;
    bool waiting = true;   ///< threads that wait, too
    double budget = 0.01;  ///< the most of a thread's time that its samples may take: then they are fewer
                           /// ROOFLM_RECORD_STACKS, "100", "100,python", "100,python,running,0.02": what is
                           /// noted, and the budget.
    static Wishes from_text(const std::string& text);
  };

  /// `is_on`: whether samples are kept now; it has to stay. A reason in `why`, and nothing, where this
  /// process cannot be sampled.
  static std::unique_ptr<StackSampler> start(StreamWriter& writer, Wishes wishes,
                                             const std::atomic<bool>& is_on, std::string& why);
  /// From here on samples cost no more than a quarter of the budget, and are at most a quarter as many; or as
  /// before. Each counts for as many as were left out.
  void slow_down(bool slow);
  ~StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;

  /// Ends all timers; what was noted is written.
  void stop();
  /// Around a fork, which starts anew after each signal, and for which the sampler's thread has to hold
  /// nothing. In the child there are neither timers nor the thread.
  static void before_fork();
  static void after_fork(bool is_child);

  /// From here on Python's frames are noted, too. False where this process has no interpreter to be found:
  /// then nothing is noted any more, since whoever asked samples all threads by himself.
  bool set_python(const PythonLayout& layout);
  /// From here on they are noted of threads that wait, too.
  void set_python_threads(const PythonThreadList& list);
  /// That thread is the recorder's.
  void leave_out(std::uint32_t thread);
  /// Waits until places in Python's code have no name, half a second at least. False at the end. The thread
  /// that calls is not sampled.
  bool wait_for_unnamed();
  /// A place in Python's code that nobody has named yet, {code, bytes from there}: each once.
  bool next_unnamed(std::array<std::uintptr_t, 2>& place);

 private:
  StackSampler(StreamWriter& writer, Wishes wishes, const std::atomic<bool>& is_on);
  void run();
  void drain();
  void note_cost();
  void look_at_threads();
  void look_at_waiting();
  /// Of the innermost frame, 0: there is none.
  std::uint32_t place_of(const CapturedStack& stack);
  void write(const CapturedStack& stack);
  void note_place(const std::array<std::uintptr_t, 2>& place);
  void note_files(const std::vector<std::uintptr_t>& addresses);

  StreamWriter& writer_;
  Wishes wishes_;
  Unwinder unwinder_;
  StackNodes nodes_;
  ThreadTimers timers_;
  WaitingThreads waiting_;
  const std::atomic<bool>& is_on_;
  /// Seconds: of being interrupted, and, of all samples, of taking and of following them.
  double signal_s_ = 0, taking_s_ = 0, following_s_ = 0;
  std::uint64_t samples_ = 0;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> files_;  ///< addresses of code, in order
  std::mutex mutex_;                                              ///< of what follows
  std::condition_variable wake_, naming_wake_;
  std::set<std::uint32_t> own_threads_;
  std::atomic<bool> has_new_own_{false}, is_slow_{false};
  PythonLayout layout_{};
  std::optional<PythonThreadList> python_threads_;  ///< not looked at yet
  int named_times_ = 0;
  std::set<std::array<std::uintptr_t, 2>> places_;      ///< of Python's code
  std::vector<std::array<std::uintptr_t, 2>> unnamed_;  ///< of them
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace rooflm::inject
