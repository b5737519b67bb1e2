// Sampled stacks of the host, and whether the device had work at that moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "report/model/run_data.h"

namespace rooflm::report {

struct HostStack {
  std::vector<std::string> frames{};  ///< the outermost first
  /// In sampling periods: a sample taken after three periods counts as three.
  std::size_t samples = 0;
  /// Of them, while nothing ran on the device; in steps that were timed alone none. A thread that waits while
  /// another one that starts work runs keeps no device waiting.
  std::size_t idle = 0;
  bool is_waiting = false;  ///< the threads did not run there: they waited
};

struct HostStacks {
  std::vector<HostStack>
      stacks{};  ///< each once, or twice where threads ran and waited there; most samples first
  std::size_t samples = 0, idle = 0;
  std::size_t outside = 0;  ///< periods of other samples: of other threads or moments
};

/// Samples of the threads that started what ran on the device (of all threads where no call is known),
/// between the first and the last step where there are any.
HostStacks host_stacks(const RunData& run);

/// The frames of a sample's name, the outermost first.
std::vector<std::string> frames_of(std::string_view text);

/// When threads ran, as samples tell, and whether in the recorder's own code or in what that called.
class RecorderSamples {
 public:
  /// Of the threads with these lanes.
  RecorderSamples(const RunData& run, const std::unordered_set<std::int64_t>& lanes);
  /// Whether most samples of a stretch are in the recorder.
  [[nodiscard]] bool are_most(std::int64_t start_ns, std::int64_t end_ns) const;

 private:
  std::vector<std::pair<std::int64_t, bool>> samples_{};  ///< when, and whether in it
};

}  // namespace rooflm::report
