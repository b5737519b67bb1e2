// Stopping a training run politely: SIGINT and SIGTERM ask, a second one kills.
#pragma once

namespace rooflm::train {

/// While it lives, the first SIGINT or SIGTERM is only remembered; the second has its default effect and ends
/// the process at once. The destructor gives both signals their default effect again. At most one at a time:
/// a C handler has no other place for its flag than a static.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The signal that asked to stop, or 0.
  [[nodiscard]] static int received();
};

}  // namespace rooflm::train
