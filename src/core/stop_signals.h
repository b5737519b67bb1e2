// SIGINT and SIGTERM: one behaviour for all commands.
//
// A command either keeps a StopSignals while it works and looks at it between two pieces of work, so that it
// can finish what it is at, keep what it has and clean up; or it has nothing to keep and ends at once. Either
// way the exit code is 128 + signal, as shells report a command that a signal ended. A second signal ends the
// process at once.
#pragma once

namespace rooflm::core {

/// Thrown between two pieces of work when a signal asked to stop. No std::exception, so that nobody takes it
/// for a failure.
struct Stopped {
  int signal = 0;
};

/// Exit code of a command that `signal` ended before its work was done.
constexpr int stopped_code(int signal) { return 128 + signal; }

/// Gives the calling thread a stack for handlers, which otherwise run wherever its stack pointer is. oneDNN's
/// compiled products (jit_avx_gemm_f32, long inner dimensions) point it into the heap while they run, and a
/// signal at that moment would overwrite what lies below. For every thread that may run such code; the thread
/// that takes the signals has one.
void give_signal_stack();

/// Takes SIGINT and SIGTERM from now on: without a StopSignals they end the process at once, but never while
/// a NewFile is being written: that is finished or removed first.
void take_stop_signals();

/// While one lives, the first signal is only remembered. May be nested.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The signal that asked to stop, or 0.
  [[nodiscard]] static int received();
  /// Throws Stopped when one did.
  static void check();
};

/// Between these calls a signal waits, also without a StopSignals. Thread-safe.
void hold_stop();
/// Ends the process if a signal waited and nobody else holds it.
void release_stop();

}  // namespace rooflm::core
