// Stopping a training run politely: SIGINT and SIGTERM ask, a second one kills.
#include "train/signals.h"

#include <csignal>

namespace rooflm::train {
namespace {

// The C handler's one static: a handler gets nothing but the number of the signal.
volatile std::sig_atomic_t g_received = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

extern "C" void remember_signal(int signal) {
  g_received = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  handle(SIGINT, remember_signal);
  handle(SIGTERM, remember_signal);
}

StopSignals::~StopSignals() {
  handle(SIGINT, SIG_DFL);
  handle(SIGTERM, SIG_DFL);
}

int StopSignals::received() { return g_received; }

}  // namespace rooflm::train
