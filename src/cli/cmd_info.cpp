// rooflm info: the machine, the devices, what is available here and why not.
#include <memory>
#include <utility>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/table.h"
#include "lab/machine_info.h"

namespace rooflm::cli {
namespace {

int run(const std::string& format_name) {
  const Format format = parse_format(format_name);
  if (format == Format::json) {
    write_out(lab::machine_json());
    return 0;
  }
  Table table{.columns = {{"what", "what"}, {"value", "here"}}, .rows = {}, .notes = {}};
  for (const auto& [what, value] : lab::machine_lines()) {
    Row row;
    row.set("what", what);
    row.set("value", value);
    table.rows.push_back(std::move(row));
  }
  write_out(show_table(table, format));
  return 0;
}

}  // namespace

Body declare_info(CommandLine& line) {
  auto format = std::make_shared<std::string>("table");
  line.add_option("--format", *format, "JSON carries every number in full")
      .type_name(kFormats)
      .show_default();
  line.footer("Example: rooflm info --format json");
  return [format] { return run(*format); };
}

}  // namespace rooflm::cli
