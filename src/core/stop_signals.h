// SIGINT and SIGTERM: the same behaviour for all commands.
//
// A command with results to keep holds a StopSignals while it works and checks it between two pieces of work,
// so it can finish the current piece, save and clean up. Any other command ends at once. Either way the exit
// code is 128 + signal, as shells report it. A second signal ends the process at once, unless it comes within
// kSameRequestNs of the first.
#pragma once

#include <cstdint>

namespace rooflm::core {

/// Thrown between two pieces of work if a signal asked to stop. Not a std::exception, so nothing mistakes it
/// for a failure.
struct Stopped {
  int signal = 0;
};

/// A signal that comes this soon after the first is the same request: `timeout` signals its child and then
/// the process group, and launch passes on what its ranks get from the terminal, too.
inline constexpr std::int64_t kSameRequestNs = 200'000'000;

/// A piece of work that a signal finds running may take this long to end and be kept. What can be left in its
/// middle is left then (StopSignals::is_overdue).
inline constexpr std::int64_t kToEndNs = 1'000'000'000;

/// Exit code of a command that `signal` ended before it was done.
constexpr int stopped_code(int signal) { return 128 + signal; }

/// Gives the calling thread an alternate stack for signal handlers, which otherwise run at the current stack
/// pointer. oneDNN's JIT-compiled GEMMs (jit_avx_gemm_f32, long inner dimensions) temporarily point it into
/// the heap, where a handler would overwrite data. Call it on every thread that may run such code; the thread
/// that handles the signals has one.
void give_signal_stack();

/// Installs the handlers of SIGINT and SIGTERM. Without a StopSignals they end the process at once, but not
/// while a NewFile is being written: it is finished or removed first.
void take_stop_signals();

/// While one exists, the first signal is only remembered. May be nested.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The signal that asked to stop, or 0.
  [[nodiscard]] static int received();
  /// Whether that was more than kToEndNs ago.
  [[nodiscard]] static bool is_overdue();
  /// Throws Stopped when one did.
  static void check();
};

/// Blocks ending the process until release_stop, also without a StopSignals. Thread-safe.
void hold_stop();
/// Ends the process if a signal is pending and nothing else holds it.
void release_stop();

}  // namespace rooflm::core
