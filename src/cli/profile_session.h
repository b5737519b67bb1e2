// A record that a command fills and then shows.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/machine_ceilings.h"
#include "cli/profile_options.h"
#include "record/writer.h"

namespace rooflm::cli {

/// The record of one command: kept under -o, otherwise in a temporary folder that goes away with this. The
/// environment is in it from the start.
class ProfileSession {
 public:
  /// Throws core::InputError when the record cannot be made, before anything is measured.
  ProfileSession(const OutputOptions& output, const std::string& command);
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;
  ~ProfileSession();

  /// What a study asks, for whoever reads the record.
  void describe(const std::string& title, const std::string& question);
  [[nodiscard]] record::Writer& record() { return *writer_; }
  /// Measures what this machine can do, or takes what is kept from an earlier time, and adds it to the
  /// record: of the processor and of every GPU that the points name. Before run().
  void measure_ceilings(const std::vector<Point>& points, int threads, bool remeasure);
  /// Runs all points until a signal asks to stop; returns that signal or 0. `all_oom` says whether none fit.
  int run(const std::vector<Point>& points, const ProfileSettings& settings, bool& all_oom);
  /// Completes the record, prints the views and writes the page.
  void show(const std::vector<std::string>& default_views);

 private:
  OutputOptions output_;
  std::filesystem::path folder_;  ///< temporary; empty when the record is kept
  std::filesystem::path path_;
  std::unique_ptr<record::Writer> writer_;
  CeilingBook ceilings_;
  bool said_counters_ = false;  ///< why there are no hardware counters, once
};

}  // namespace rooflm::cli
