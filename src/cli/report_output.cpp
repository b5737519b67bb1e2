// Records shown: tables on standard output, pictures and the page in files.
#include "cli/report_output.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>

#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/file.h"
#include "record/reader.h"
#include "report/compare.h"
#include "report/document.h"
#include "report/html.h"
#include "report/run_data.h"
#include "report/svg.h"
#include "report/view_format.h"
#include "report/views.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

bool is_for_people(Format format) { return format == Format::table || format == Format::md; }

/// "memory.0" as a file: letters, digits, dots, dashes and underscores stay.
std::string file_name(const std::string& id) {
  std::string name = id;
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-' && c != '_'; }, '_');
  return name + ".svg";
}

std::vector<fs::path> inputs_of(const ReportRequest& request) {
  std::vector<std::string> names;
  for (const fs::path& record : request.records) names.push_back(record.string());
  return files_of(names);
}

/// The pictures of the views, by the rule of all outputs. Their folder may be missing.
void check_pictures(const std::vector<report::View>& views, const ReportRequest& request) {
  std::error_code error;
  if (!fs::exists(request.pictures, error)) return;
  std::set<std::string> names;  // a view may have been asked for twice
  for (const report::View& view : views) {
    for (const report::Chart& chart : view.charts) names.insert(file_name(chart.id));
  }
  std::vector<OutputPath> outputs = {{"--html", request.html}};
  for (const std::string& name : names) outputs.push_back({"--charts", request.pictures / name});
  check_outputs(outputs, inputs_of(request), request.overwrite);
}

/// Writes the charts of the views into the folder, which is made when it is not there.
void write_pictures(const std::vector<report::View>& views, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw core::InputError("cannot make " + folder.string() + ": " + error.message());
  for (const report::View& view : views) {
    for (const report::Chart& chart : view.charts) {
      core::write_file_atomically(folder / file_name(chart.id), report::svg_of(chart));
    }
  }
}

std::optional<report::Comparison> compare_first(const std::vector<fs::path>& records) {
  if (records.size() < 2) return std::nullopt;
  try {
    return report::compare(record::Reader(records[0]), record::Reader(records[1]), {});
  } catch (const core::InputError& error) {
    note("no comparison on the page: {}", error.what());
    return std::nullopt;
  }
}

ReportRequest request_of(const OutputOptions& output) {
  ReportRequest request;
  request.views = parse_names("--view", output.views);
  request.format = output.format;
  request.html = output.html;
  request.overwrite = output.overwrite;
  return request;
}

}  // namespace

std::vector<std::string> default_views() {
  return {"overview", "phases", "blocks", "roofline", "ops", "memory"};
}

void check_request(const ReportRequest& request) {
  parse_format(request.format);
  for (const std::string& view : request.views) report::find_view(view);
  if (!request.html.empty()) report::require_page();
  check_outputs({{"--html", request.html}}, inputs_of(request), request.overwrite);
}

void check_output(const OutputOptions& output, const std::vector<fs::path>& inputs) {
  check_request(request_of(output));
  check_outputs({{"-o", output.record}, {"--html", output.html}}, inputs, output.overwrite);
}

void show_request(const ReportRequest& request) {
  check_request(request);
  const Format format = parse_format(request.format);
  const report::RecordSet set = report::load(request.records);
  const report::ViewOptions options{.top = is_for_people(format) ? request.top : 0};
  std::vector<report::View> made;
  std::transform(request.views.begin(), request.views.end(), std::back_inserter(made),
                 [&](const std::string& view) { return report::make_view(view, set, options); });
  report::ChartLink link = report::data_link;
  if (!request.pictures.empty()) {
    check_pictures(made, request);
    write_pictures(made, request.pictures);
    link = [&](const report::Chart& chart) {
      return (request.pictures / file_name(chart.id)).generic_string();
    };
  }
  if (!made.empty()) write_out(report::format_views(made, format, link, terminal_width()));
  if (request.html.empty()) return;
  const auto comparison = compare_first(request.records);
  report::write_page(request.html, report::make_document(set, comparison ? &*comparison : nullptr),
                     request.overwrite);
  note("page: {}", request.html.string());
}

void show_records(const std::vector<fs::path>& records, const std::vector<std::string>& views,
                  const OutputOptions& output) {
  ReportRequest request = request_of(output);
  request.records = records;
  request.views = views;
  show_request(request);
}

}  // namespace rooflm::cli
