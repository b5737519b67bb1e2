// Progress of a list of long tasks: the current one, and the time left.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace rooflm::lab {

class WorkLeft {
 public:
  explicit WorkLeft(std::size_t all) : all_(all) {}

  /// One more is begun, so the one before is done: "[3/12] `what` (about 1:20 left)" on standard error. Time
  /// left is the mean of those that are done times those that are not; it is said from the second on, and of
  /// ten seconds or more.
  void begin(std::string_view what);
  /// How many were begun.
  [[nodiscard]] std::size_t begun() const { return begun_; }

 private:
  std::size_t all_, begun_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Seconds that are left when `done` of `all` took `elapsed_s`, at the same pace.
double seconds_left(double done, double all, double elapsed_s);

}  // namespace rooflm::lab
