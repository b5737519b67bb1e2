// When the steps of a run end early: a signal, or a step that takes too long.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/stop_signals.h"
#include "core/units.h"
#include "lab/notes.h"
#include "lab/run.h"
#include "measure/sampling.h"
#include "ranks/transport.h"

namespace rooflm::lab {

class StepWatch {
 public:
  explicit StepWatch(const RunSettings& settings) : settings_(&settings) {}

  /// Before a step: the signal that asked to stop, or 0. Of several ranks all get the same.
  int asked_to_stop(int step) {
    signal_ = core::StopSignals::received();
    if (settings_->ranks != nullptr) {
      settings_->ranks->set_step(step);
      settings_->ranks->set_op("agreeing whether to go on");
      signal_ = ranks::most(*settings_->ranks, signal_);
    }
    began_s_ = measure::now_s();
    return signal_;
  }

  /// Whether a step may go on: not for long after a signal, nor longer than one may take.
  bool goes_on() {
    const bool is_too_long = began_s_ && measure::now_s() - *began_s_ > settings_->longest_step_s;
    is_left_ = is_too_long || core::StopSignals::is_overdue();
    return !is_left_;
  }

  /// No more steps. Whether that was before there were enough, of which `reason` then says why.
  bool end(std::string& reason) {
    began_s_.reset();
    if (reason != "interrupted") return false;
    if (is_left_) signal_ = core::StopSignals::received();
    if (signal_ == 0) {
      reason = fmt::format("a step takes longer than {}", core::format_seconds(settings_->longest_step_s));
      note("  {}: not timed", reason);
    }
    return true;
  }

  [[nodiscard]] int signal() const { return signal_; }
  /// Whether a step was left in its middle. The ranks of a job have parted then.
  [[nodiscard]] bool is_left() const { return is_left_; }

 private:
  const RunSettings* settings_;
  int signal_ = 0;
  std::optional<double> began_s_;  ///< while steps are timed
  bool is_left_ = false;
};

}  // namespace rooflm::lab
