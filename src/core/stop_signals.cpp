// Remembering SIGINT and SIGTERM, or ending the process.
#include "core/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace rooflm::core {
namespace {

// A C handler gets nothing but the number of the signal, so what it looks at is static. Lock-free, therefore
// allowed in a handler.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int> g_received{0};
std::atomic<int> g_watchers{0};  // StopSignals that live
std::atomic<int> g_holds{0};     // NewFiles that live
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void on_stop(int signal) {
  const bool is_first = g_received.exchange(signal) == 0;
  if (is_first && (g_watchers > 0 || g_holds > 0)) return;
  ::_exit(stopped_code(signal));
}

}  // namespace

void take_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

StopSignals::StopSignals() {
  if (g_watchers++ == 0) g_received = 0;
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
