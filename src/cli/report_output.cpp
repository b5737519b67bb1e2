// Shows records: tables on standard output, pictures and the page as files.
#include "cli/report_output.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/steps_again.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "core/text_fit.h"
#include "core/units.h"
#include "record/reader.h"
#include "report/charts/svg.h"
#include "report/findings/answers.h"
#include "report/model/run_data.h"
#include "report/page/document.h"
#include "report/page/html.h"
#include "report/tables/compare.h"
#include "report/views/view_format.h"
#include "report/views/views.h"

namespace rooflm::cli {
namespace {

namespace fs = std::filesystem;

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
  make_folder(folder);
  for (const report::View& view : views) {
    for (const report::Chart& chart : view.charts) {
      core::write_file_atomically(folder / file_name(chart.id), report::svg_of(chart));
    }
  }
}

/// Of the first two records, or of the two configurations of one.
std::optional<report::Comparison> compare_first(const std::vector<fs::path>& records, std::size_t runs) {
  const report::CompareOptions options{.restart = {}, .parts = report::Parts::automatic};
  if (records.size() == 1 && runs == 2) {
    try {
      return report::compare_within(record::Reader(records[0]), {}, "", options);
    } catch (const core::Error&) {  // nobody asked: runs without steps, or that repeat each other
      return std::nullopt;
    }
  }
  if (records.size() < 2) return std::nullopt;
  try {
    return report::compare(record::Reader(records[0]), record::Reader(records[1]), options);
  } catch (const core::InputError& error) {
    note("no comparison on the page: {}", error.what());
    return std::nullopt;
  }
}

ReportRequest request_of(const OutputOptions& output) {
  ReportRequest request;
  request.views = parse_names("--view", output.views);
  request.style = output.table.style();
  request.html = output.html;
  request.overwrite = output.overwrite;
  return request;
}

/// The views of the request; others may be shown instead of those that nobody asked for.
std::vector<std::string> possible_views(const ReportRequest& request) {
  std::vector<std::string> views = request.views;
  if (!request.are_default) return views;
  for (const report::ViewInfo& view : report::all_views()) views.emplace_back(view.name);
  return views;
}

}  // namespace

std::vector<std::string> default_views() {
  return {"overview", "advice", "phases", "blocks", "roofline", "ops", "memory"};
}

void check_request(const ReportRequest& request) {
  for (const std::string& view : request.views) report::find_view(view);
  if (!request.views.empty()) require_columns_of_views(possible_views(request), request.style, false);
  if (!request.html.empty()) report::require_page();
  refuse_equal({{"--html", request.html}, {"--charts", request.pictures}});
  check_outputs({{"--html", request.html}}, inputs_of(request), request.overwrite);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw core::InputError("cannot make " + folder.string() + ": " + error.message());
}

void check_output(const OutputOptions& output, const std::vector<fs::path>& inputs) {
  check_request(request_of(output));
  check_outputs({{"-o", output.record}, {"--html", output.html}}, inputs, output.overwrite);
}

void require_shown_columns(const OutputOptions& output, const std::vector<std::string>& default_views) {
  const auto views = parse_names("--view", output.views);
  require_columns_of_views(views.empty() ? default_views : views, output.table.style(), true);
}

namespace {

bool shows_something(const report::View& view) { return !view.tables.empty() || !view.charts.empty(); }

std::vector<report::View> views_of(const ReportRequest& request, const report::RecordSet& set,
                                   const report::ViewOptions& options) {
  std::vector<report::View> made;
  // Plans have no measurements, so only their own views are shown.
  if (const report::StudyText study = report::study_of(set); request.are_default && study.name == "plan") {
    for (const std::string& view : study.views) made.push_back(report::make_view(view, set, options));
    return made;
  }
  for (const std::string& view : request.views) made.push_back(report::make_view(view, set, options));
  if (!request.are_default || std::ranges::none_of(made, report::lacks_records)) return made;
  std::vector<report::View> others;
  for (const report::ViewInfo& info : report::all_views()) {
    report::View view = report::make_view(info.name, set, options);
    if (shows_something(view)) others.push_back(std::move(view));
  }
  return others.empty() ? made : others;
}

/// The question of the study that made the records, and its answer; "" for other records and for programs.
std::string question_text(const report::RecordSet& set, const TableStyle& style) {
  const report::StudyText study = report::study_of(set);
  if (study.title.empty() || !is_for_people(style.format)) return "";
  const bool is_markdown = style.format == Format::md;
  const std::string answer = report::answer_of(set);
  const std::string text =
      fmt::format("{} {}\n{}{}\n{}{}\n", is_markdown ? "#" : "==", study.title, is_markdown ? "\n" : "",
                  study.question, is_markdown ? "\n" : "", answer);
  return core::wrap_lines(core::printable_lines(text) + (answer.empty() ? "" : "\n"),
                          is_markdown || style.columns.wide ? 0 : terminal_width());
}

/// The views as the user wants them, with the columns that were asked for.
std::string text_of(std::vector<report::View> views, const TableStyle& style, const report::ChartLink& link,
                    const std::string& question) {
  std::vector<const Table*> tables;
  for (const report::View& view : views) {
    for (const report::ViewTable& table : view.tables) tables.push_back(&table.table);
  }
  report::check_columns(style.columns, tables);
  const std::size_t width = style.columns.wide ? 0 : terminal_width();
  for (report::View& view : views) {
    for (report::ViewTable& table : view.tables) {
      table.table = report::choose_columns(std::move(table.table), style.columns, style.format, width);
    }
    std::erase_if(view.tables, [](const report::ViewTable& table) { return table.table.columns.empty(); });
  }
  std::string text = question + report::format_views(views, style.format, link, width);
  return style.format == Format::table ? coloured(text) : text;
}

}  // namespace

report::RecordSet load_request(const ReportRequest& request) {
  report::RecordSet set = report::load(request.records);
  if (request.steps_by) find_steps_again(*request.steps_by, set);
  if (!request.is_record_kept) set.files.front().name.clear();
  report::apply_filter(request.filter, set);
  return set;
}

void show_request(const ReportRequest& request) {
  check_request(request);
  const report::RecordSet set = load_request(request);
  if (!request.filter.is_empty()) note("only {}: sums and shares cover nothing else", request.filter.text());
  const report::ViewOptions options{.top = is_for_people(request.style.format) ? request.top : 0};
  const std::vector<report::View> made = views_of(request, set, options);
  report::ChartLink link = report::data_link;
  if (!request.pictures.empty()) {
    check_pictures(made, request);
    write_pictures(made, request.pictures);
    link = [&](const report::Chart& chart) {
      return (request.pictures / file_name(chart.id)).generic_string();
    };
  }
  const bool prints_page = request.html == kStandardOutput;
  if (!made.empty() && !prints_page)
    write_out(text_of(made, request.style, link, question_text(set, request.style)));
  if (request.html.empty()) return;
  const auto comparison = compare_first(request.records, set.runs.size());
  const std::string document = report::make_document(set, comparison ? &*comparison : nullptr);
  if (prints_page) return write_out(report::fill_page(report::page_template(), document));
  report::write_page(request.html, document, request.overwrite);
  note("page: {}", request.html.string());
  constexpr double kLarge = 20e6;  // bytes that a browser is slow with
  if (static_cast<double>(document.size()) > kLarge && set.runs.size() > 1)
    note("the page has {}: --run shows fewer of its {} runs",
         core::format_bytes(static_cast<double>(document.size())), set.runs.size());
}

void show_records(const std::vector<fs::path>& records, const std::vector<std::string>& views,
                  const OutputOptions& output) {
  ReportRequest request = request_of(output);
  request.records = records;
  request.views = views;
  request.is_record_kept = records.size() > 1 || !(output.record.empty() || output.record == kStandardOutput);
  show_request(request);
}

}  // namespace rooflm::cli
