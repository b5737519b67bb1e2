// rooflm info: the machine, the devices, what is available here and why not.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/user_defaults.h"
#include "lab/devices.h"
#include "lab/machine_info.h"
#include "report/tables/typed_columns.h"

namespace rooflm::cli {
namespace {

/// "threads 2 (rooflm.toml:1)", of one command "bench: steps 5 (...)"
std::string text_of(const UserDefault& value) {
  return fmt::format("{}{} {} ({})", value.command.empty() ? "" : value.command + ": ", value.option,
                     value.value, value.source);
}

std::string json_text(const UserDefaults& defaults) {
  auto info = nlohmann::ordered_json::parse(lab::machine_json());
  info["default_device"] = lab::default_device().name;
  info["ranks"] = nlohmann::ordered_json::object();
  for (const backends::Provider* provider : backends::providers()) {
    if (const std::string carrier = provider->collectives(); !carrier.empty())
      info["ranks"][std::string(provider->name())] = carrier;
  }
  info["config_files"] = nlohmann::ordered_json::array();
  for (const auto& [path, exists] : defaults.files())
    info["config_files"].push_back({{"path", path.string()}, {"exists", exists}});
  info["defaults"] = nlohmann::ordered_json::array();
  for (const UserDefault& value : defaults.all()) {
    info["defaults"].push_back({{"command", value.command},
                                {"option", value.option},
                                {"value", value.value},
                                {"source", value.source}});
  }
  return info.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run(const TableOptions& options) {
  const TableStyle style = options.style();
  using Line = std::pair<std::string, std::string>;
  static const report::TypedColumns<Line> columns = {{"what", "what", &Line::first},
                                                     {"value", "here", &Line::second}};
  require_columns(report::columns_of(columns), style);
  const UserDefaults defaults = UserDefaults::load();
  if (style.format == Format::json) {
    write_out(json_text(defaults));
    return 0;
  }
  std::vector<Line> lines;
  for (const auto& [what, value] : lab::machine_lines(true)) lines.emplace_back(what, value);
  for (const backends::Provider* provider : backends::providers()) {
    const std::string carrier = provider->collectives();
    if (!carrier.empty()) lines.emplace_back(fmt::format("ranks on {}", provider->name()), carrier);
  }
  const backends::DefaultDevice device = lab::default_device();
  lines.emplace_back("default device", fmt::format("{} ({})", device.name, device.why));
  for (const auto& [path, exists] : defaults.files()) {
    lines.emplace_back("configuration", path.string() + (exists ? "" : ": not there"));
  }
  for (const UserDefault& value : defaults.all()) lines.emplace_back("default", text_of(value));
  write_out(show_table(columns.table(lines), style));
  return 0;
}

}  // namespace

Body declare_info(CommandLine& line) {
  auto options = std::make_shared<TableOptions>();
  options->add_to(line, "Output format; JSON has all numbers at full precision");
  line.footer(
      "Option defaults come from ROOFLM_OPTION in the environment (ROOFLM_MAX_SECONDS\n"
      "for max-seconds), then from rooflm.toml in the working directory, then from\n"
      "rooflm/rooflm.toml in $XDG_CONFIG_HOME (~/.config): `threads = 2` for all\n"
      "commands, a table [bench] for one.\n\n"
      "Example: rooflm info --format json");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
