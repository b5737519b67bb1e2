// rooflm report: tables, pictures and the page of records.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/options/filter_options.h"
#include "cli/options/steps_option.h"
#include "cli/output.h"
#include "cli/record_arguments.h"
#include "cli/report_output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "report/findings/brief.h"
#include "report/views/views.h"

namespace rooflm::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string views, top, html, charts, steps_by;
  TableOptions table;
  FilterOptions filter;
  bool overwrite = false, dry_run = false, brief = false;
};

/// --brief as text, or as JSON.
void show_brief(const ReportRequest& request) {
  const Format format = request.style.format;
  if (format != Format::table && format != Format::json)
    throw core::UsageError("report: --brief is text or --format json");
  if (!request.views.empty() || !request.html.empty() || !request.pictures.empty())
    throw core::UsageError("report: --brief stands alone: leave out --view, --html and --charts");
  const report::RecordSet set = load_request(request);
  const report::Brief brief = report::brief_of(set);
  write_out(format == Format::json
                ? report::brief_json(brief)
                : report::brief_text(brief, request.style.columns.wide ? 0 : terminal_width()));
}

int run(const ReportOptions& options, bool names_format) {
  if (options.files.empty()) {
    throw core::UsageError("report: name one or more records: rooflm report FILE...");
  }
  const RecordArguments records(options.files);
  ReportRequest request;
  request.records = records.paths();
  request.views = parse_names("--view", options.views);
  request.html = options.html;
  request.pictures = options.charts;
  request.overwrite = options.overwrite;
  request.style = options.table.style();
  request.filter = options.filter.filter();
  if (!options.steps_by.empty()) request.steps_by = foreign::StepsBy::parse(options.steps_by);
  if (!options.top.empty()) request.top = static_cast<std::size_t>(parse_integer("--top", options.top, 0));
  if (options.brief && !options.dry_run) {
    show_brief(request);
    return 0;
  }
  // Who asks for the page alone does not want the tables on the terminal as well.
  const bool wants_text = options.html.empty() || names_format || !options.charts.empty();
  if (request.views.empty() && wants_text) {
    request.views = default_views();
    request.are_default = true;
  }
  if (options.dry_run) {
    check_request(request);
    const report::RecordSet set = report::load(request.records);
    show_dry_run(fmt::format("show {} runs of {} records", set.runs.size(), set.files.size()),
                 {{"--html", options.html}, {"--charts", options.charts}});
    return 0;
  }
  show_request(request);
  return 0;
}

std::string views_help() {
  std::string text = "Views:\n";
  std::size_t widest = 0;
  for (const report::ViewInfo& view : report::all_views()) widest = std::max(widest, view.name.size());
  for (const report::ViewInfo& view : report::all_views()) {
    text += fmt::format("  {:<{}}{}\n", view.name, widest + 2, view.title);
  }
  return text;
}

}  // namespace

Body declare_report(CommandLine& line) {
  auto options = std::make_shared<ReportOptions>();
  line.add_option("file", options->files, "Run records; - is standard input").type_name("FILE").required();
  line.add_option("--view", options->views,
                  "Views to print (default: overview, advice, phases, blocks, roofline, ops, memory)")
      .type_name("NAME,...");
  line.offer_words("--view", view_names);
  options->table.add_to(line, "Output format; JSON and CSV have all numbers at full precision", "",
                        columns_of_all_views);
  options->filter.add_to(line);
  line.add_flag("--brief", options->brief,
                "Ten lines, or with --format json a small object: what bounds the step, its time with the "
                "interval, the three largest gains, the next command");
  line.add_option("--top", options->top,
                  fmt::format("Maximum rows of long tables, 0 for all (default: {}; CSV and JSON have all)",
                              kTopRows))
      .type_name("N");
  line.add_option("--steps-by", options->steps_by,
                  "Find the steps of recorded and imported programs again (default: as the record has them)")
      .type_name(kStepsBy);
  line.add_option("--html", options->html,
                  "Write the report page, one file that needs no network; - is standard output")
      .type_name("FILE");
  line.add_option("--charts", options->charts,
                  "Write the charts of the views as SVG files to this folder; Markdown then links to them")
      .type_name("DIR");
  line.add_flag("--overwrite", options->overwrite, "Let --html and --charts overwrite existing files");
  add_dry_run(line, options->dry_run, "");
  line.footer(views_help() +
              "With several records or runs, tables start with a column `run`, and the page\n"
              "compares the first two records.\n\n"
              "Example: rooflm report a.rooflm --view blocks,roofline --format md");
  return [options, &line] { return run(*options, line.was_given("--format")); };
}

}  // namespace rooflm::cli
