// Records shown: tables on standard output, the page in a file.
#include "cli/report_output.h"

#include <algorithm>
#include <iterator>

#include "cli/output.h"
#include "cli/table.h"
#include "cli/values.h"
#include "report/view_format.h"
#include "report/views.h"

namespace rooflm::cli {
namespace {

/// Rows of long tables that people see; CSV and JSON have all.
constexpr std::size_t kTopRows = 15;

}  // namespace

void check_output(const OutputOptions& output) {
  parse_format(output.format);
  for (const std::string& view : parse_names("--view", output.views)) report::find_view(view);
}

void show_records(const std::vector<std::filesystem::path>& records, const std::vector<std::string>& views,
                  const OutputOptions& output) {
  const Format format = parse_format(output.format);
  const bool is_for_people = format == Format::table || format == Format::md;
  const report::RecordSet set = report::load(records);
  const report::ViewOptions options{.top = is_for_people ? kTopRows : 0};
  std::vector<report::View> made;
  std::transform(views.begin(), views.end(), std::back_inserter(made),
                 [&](const std::string& view) { return report::make_view(view, set, options); });
  write_out(report::format_views(made, format));
}

}  // namespace rooflm::cli
