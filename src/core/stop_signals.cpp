// Remembers SIGINT and SIGTERM, or ends the process.
#include "core/stop_signals.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <vector>

namespace rooflm::core {
namespace {

// Static, because a C handler has no context argument; lock-free, so allowed in a handler.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int> g_received{0};
std::atomic<std::int64_t> g_first_ns{0};  // when that signal came; 0: none did
std::atomic<int> g_watchers{0};           // number of live StopSignals
std::atomic<int> g_holds{0};              // number of live NewFiles
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

/// clock_gettime is async-signal-safe.
std::int64_t now_ns() {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

/// To whoever pressed Ctrl-C at a terminal: a step, or planning, may take minutes.
void say_how_to_end() {
  constexpr std::string_view kText = "\nstopping after what is running now; Ctrl-C again ends it at once\n";
  const int interrupted = errno;
  termios terminal{};
  if (::tcgetattr(STDERR_FILENO, &terminal) == 0) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  }
  errno = interrupted;
}

extern "C" void on_stop(int signal) {
  const std::int64_t now = now_ns();
  std::int64_t first = 0;
  if (g_first_ns.compare_exchange_strong(first, now)) {
    g_received = signal;
    if (g_watchers > 0 && signal == SIGINT) say_how_to_end();
    if (g_watchers > 0 || g_holds > 0) return;
  } else if (now - first < kSameRequestNs) {
    return;
  }
  ::_exit(stopped_code(signal));
}

/// An alternate signal stack for a thread, unless it has one already (a sanitizer's, say).
class SignalStack {
 public:
  SignalStack() {
    stack_t present{};
    if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
    // The kernel saves all registers there: AMX tiles alone take 8 KiB.
    const long least = ::sysconf(_SC_MINSIGSTKSZ);
    memory_.resize(static_cast<std::size_t>(std::max(0L, least)) + kForTheHandler);
    const stack_t stack{.ss_sp = memory_.data(), .ss_flags = 0, .ss_size = memory_.size()};
    ::sigaltstack(&stack, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  ~SignalStack() {
    if (memory_.empty()) return;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    ::sigaltstack(&none, nullptr);
  }

 private:
  static constexpr std::size_t kForTheHandler = std::size_t{1} << 15U;
  std::vector<std::byte> memory_;
};

}  // namespace

void give_signal_stack() { thread_local const SignalStack stack; }

void take_stop_signals() {
  give_signal_stack();
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

StopSignals::StopSignals() {
  if (g_watchers++ == 0) g_first_ns = g_received = 0;
  take_stop_signals();
}

StopSignals::~StopSignals() { --g_watchers; }

int StopSignals::received() { return g_received; }

void StopSignals::check() {
  if (const int signal = received(); signal != 0) throw Stopped{signal};
}

void hold_stop() { ++g_holds; }

void release_stop() {
  if (--g_holds > 0 || g_watchers > 0) return;
  if (const int signal = g_received; signal != 0) ::_exit(stopped_code(signal));
}

}  // namespace rooflm::core
