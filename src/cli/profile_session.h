// A record that a command fills and then shows.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_record.h"
#include "cli/options/profile_options.h"
#include "cli/study_file.h"
#include "core/stop_signals.h"
#include "lab/ceilings/ceiling_book.h"
#include "lab/run.h"

namespace rooflm::cli {

/// One command's record, ceilings and output.
class ProfileSession {
 public:
  /// Throws core::InputError when the record cannot be made, core::UsageError when an output is one of the
  /// `inputs`, before anything is measured. `remeasure`: measure ceilings again even if they are cached. Of
  /// several ranks, only rank 0 measures ceilings and shows results.
  ProfileSession(const OutputOptions& output, const std::string& command, bool remeasure,
                 const std::vector<std::filesystem::path>& inputs, bool is_first = true);

  /// The question of a study, for readers of the record.
  void describe(const Study& study);
  [[nodiscard]] record::Writer& record() { return record_.writer(); }
  /// Runs all points until a signal asks to stop; returns that signal or 0. `all_oom` says whether none fit.
  /// The ceilings of their devices are measured first, or taken from the cache.
  int run(const std::vector<lab::Point>& points, const lab::RunSettings& settings, bool& all_oom);
  /// Completes the record, prints the views and writes the page.
  void show(const std::vector<std::string>& default_views);

 private:
  /// Traces and counts the points of a sweep, after all of them were timed. Returns a signal or 0.
  int look_inside(const std::vector<lab::Point>& points, const lab::RunSettings& settings,
                  std::vector<lab::RunOutcome>& outcomes);

  core::StopSignals signals_;  ///< first: whoever stops the command finds its record in order
  OutputOptions output_;
  bool is_first_;
  CommandRecord record_;
  lab::CeilingBook ceilings_;
  bool said_counters_ = false;  ///< why there are no hardware counters, once
};

}  // namespace rooflm::cli
