// Shows records: tables on standard output, pictures and the page as files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/profile_options.h"
#include "foreign/steps_by.h"
#include "report/model/filter.h"
#include "report/model/run_data.h"

namespace rooflm::cli {

/// Rows of long tables that people see unless told otherwise; CSV and JSON have all.
inline constexpr std::size_t kTopRows = 15;
/// The views that are shown if none is named.
std::vector<std::string> default_views();

/// Tables and Markdown: long tables are cut, and notes explain them.
constexpr bool is_for_people(report::Format format) {
  return format == report::Format::table || format == report::Format::md;
}

/// What to show of which records.
struct ReportRequest {
  std::vector<std::filesystem::path> records;
  std::vector<std::string> views;
  /// The user did not ask for these views: if one of them needs what was not recorded (a training run, an
  /// import, a record of ceilings), all views that have something are shown instead.
  bool are_default = false;
  TableStyle style{};
  report::Filter filter{};                     ///< what of the records is shown
  std::optional<foreign::StepsBy> steps_by{};  ///< steps of programs are found again
  std::size_t top = kTopRows;                  ///< 0: all rows
  std::filesystem::path html{};                ///< of the page; empty: none; "-": it is all that is printed
  std::filesystem::path pictures{};            ///< folder for the charts as SVG; empty: inside Markdown
  bool overwrite = false;                      ///< replace files that are there
  bool is_record_kept = true;  ///< otherwise it goes away with the command, and no page names it
};

/// Makes the folder, and those above it, where they are missing. Throws core::InputError.
void make_folder(const std::filesystem::path& folder);

/// Checks formats, views and files (cli/output_rule.h) before anything long begins. Throws core::UsageError,
/// core::InputError when the page could not be written, core::Unavailable when this binary has no page.
void check_request(const ReportRequest& request);
/// The same for a command that reads `inputs` and also writes a record.
void check_output(const OutputOptions& output, const std::vector<std::filesystem::path>& inputs);
/// Throws core::UsageError for columns that the views of --view, or else those of the command, do not have.
void require_shown_columns(const OutputOptions& output, const std::vector<std::string>& default_views);

/// The runs that it asks for.
report::RecordSet load_request(const ReportRequest& request);

/// Prints the views of all runs of the records, and writes pictures and the page when they were asked for; no
/// picture is written when one of them may not be.
/// With two records or more the page compares the first two, where they share a configuration.
void show_request(const ReportRequest& request);
void show_records(const std::vector<std::filesystem::path>& records, const std::vector<std::string>& views,
                  const OutputOptions& output);

}  // namespace rooflm::cli
