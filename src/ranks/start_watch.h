// A start that takes long says what it waits for.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "ranks/place.h"

namespace rooflm::ranks {

/// While one exists, a thread counts the time of a start. After kNoteSeconds rank 0 writes to standard error
/// what it waits for and for how long at most. After `place.start_patience_s` the thread calls `at_limit`,
/// where there is one.
class StartWatch {
 public:
  static constexpr double kNoteSeconds = 5;

  /// `waits_for`: "MPI to start".
  StartWatch(const Place& place, std::string waits_for, std::function<void()> at_limit = {});

 private:
  std::jthread thread_;
};

}  // namespace rooflm::ranks
