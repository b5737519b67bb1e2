// The options for the number of timed steps, which mean the same in bench, profile and study.
#pragma once

#include <cstddef>
#include <string>

#include "cli/command_line.h"
#include "lab/run.h"

namespace rooflm::cli {

/// As typed; an empty text is not given.
struct StoppingOptions {
  std::string steps, precision, min_steps, max_steps, max_seconds;
  bool yes = false;  ///< long sweeps begin
  /// `otherwise`: the default, for help.
  void add_to(CommandLine& line, const std::string& otherwise);
  /// Whether a number of steps or a precision was asked for.
  [[nodiscard]] bool is_given() const { return !steps.empty() || !precision.empty(); }
  /// Sets min_steps, max_steps, precision and max_seconds. `--steps` is exact and has no limit of seconds
  /// unless one is given. Throws core::UsageError for bad values and for `--steps` beside a precision or
  /// bounds of steps.
  void apply(lab::RunSettings& settings) const;
  /// Throws core::UsageError for a sweep that takes hours and for which nobody said `--yes`.
  void require_consent(std::size_t points) const;
};

/// The end of a sweep of which no configuration fits: core::OutOfMemory, which says so.
[[noreturn]] void throw_nothing_fits(std::size_t points);

}  // namespace rooflm::cli
