// The options for breaking down a step, shared by profile and study.
#include "cli/options/profile_options.h"

#include <fmt/format.h>

#include "cli/dry_run.h"
#include "cli/values.h"
#include "core/error.h"
#include "text/prepare.h"
#include "text/shard.h"

namespace rooflm::cli {
namespace {

/// Shards; of a prepared directory those of its training part.
std::vector<std::filesystem::path> shards_of(const std::vector<std::string>& data) {
  std::vector<std::filesystem::path> shards;
  for (const std::string& path : data) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
      throw core::InputError(fmt::format("--data {}: No such file or directory", path));
    if (!std::filesystem::is_directory(path, ignored)) {
      shards.push_back(text::Shard(path).path());  // opened, so that what is no shard is refused here
      continue;
    }
    const auto prepared = text::open_prepared(path).train.shards;
    shards.insert(shards.end(), prepared.begin(), prepared.end());
  }
  return shards;
}

}  // namespace

void ProfileOptions::add_to(CommandLine& line) {
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    line.add_option(name, value, text).type_name(type).group("Measuring");
  };
  stopping.add_to(line, "as many as --precision 1 needs, plus as many observed steps");
  add("--memory-limit", memory_limit, "SIZE",
      "Configurations that need more get status oom: 8GB, 8GiB (default: free memory)");
  line.add_option("--trace", trace,
                  "After the timed steps, trace a few GPU steps kernel by kernel (CUPTI); in a sweep, after "
                  "all configurations")
      .type_name("on|off")
      .show_default()
      .group("Measuring");
  line.add_option("--data", data,
                  "Input text: shards, or a directory made by data prepare (default: random tokens)")
      .type_name("SHARD...|DIR")
      .list()
      .group("Measuring");
  line.add_flag("--counters", counters,
                "Read a GPU's hardware counters op by op, in extra steps: FLOP, bytes at each memory level, "
                "stalls (CPU counters are always read)")
      .group("Measuring");
  line.add_flag("--remeasure", remeasure,
                "Measure this machine's ceilings again instead of using cached ones")
      .group("Measuring");
}

lab::RunSettings ProfileOptions::settings() const {
  lab::RunSettings settings;
  stopping.apply(settings);
  if (!memory_limit.empty()) settings.memory_limit_bytes = parse_bytes("--memory-limit", memory_limit);
  if (trace != "on" && trace != "off") {
    throw core::UsageError(fmt::format("--trace must be on or off, got '{}'", trace));
  }
  settings.trace = trace == "on";
  settings.count = counters;
  settings.shards = shards_of(data);
  return settings;
}

void OutputOptions::add_to(CommandLine& line) {
  line.add_option("-o,--output", record,
                  "Write a run record, for report, compare and verify; - is standard output")
      .type_name("FILE.rooflm")
      .group("Output");
  line.add_option("--html", html,
                  "Write the report page, one file that needs no network; - is standard output")
      .type_name("FILE.html")
      .group("Output");
  line.add_option("--view", views, "Views to print, a list (rooflm report --help lists them)")
      .type_name("NAME,...")
      .group("Output");
  line.offer_words("--view", view_names);
  table.add_to(line, "Output format; JSON and CSV have all numbers at full precision", "Output",
               columns_of_all_views);
  line.add_flag("--overwrite", overwrite, "Overwrite existing files").group("Output");
  add_dry_run(line, dry_run);
}

}  // namespace rooflm::cli
