// The options that say how a step is taken apart, shared by profile and study.
#include "cli/profile_options.h"

#include <fmt/format.h>

#include "cli/dry_run.h"
#include "cli/values.h"
#include "core/error.h"
#include "text/prepare.h"

namespace rooflm::cli {
namespace {

/// Shards; of a prepared directory those of its training part.
std::vector<std::filesystem::path> shards_of(const std::vector<std::string>& data) {
  std::vector<std::filesystem::path> shards;
  for (const std::string& path : data) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
      shards.emplace_back(path);
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
  stopping.add_to(line, "as many as --precision 1 takes; as many observed ones beside them");
  add("--memory-limit", memory_limit, "SIZE",
      "Larger configurations get the status oom: 8GB, 8GiB (default: what is free)");
  line.add_option(
          "--trace", trace,
          "After the timed steps, trace a few on a GPU, kernel by kernel (CUPTI); of a sweep after all "
          "configurations were timed")
      .type_name("on|off")
      .show_default()
      .group("Measuring");
  line.add_option("--data", data,
                  "Text to compute on: shards, or a directory made by data prepare (default: "
                  "random tokens)")
      .type_name("SHARD...|DIR")
      .list()
      .group("Measuring");
  line.add_flag("--counters", counters,
                "Read a GPU's hardware counters, op by op, in some more steps: flop, bytes at each level of "
                "memory, "
                "stalls (those of a processor are always read)")
      .group("Measuring");
  line.add_flag("--remeasure", remeasure, "Measure this machine's ceilings again instead of the kept ones")
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
                  "Keep the run record, to report, compare and verify it later; - prints it")
      .type_name("FILE.rooflm")
      .group("Output");
  line.add_option("--html", html, "Write one page that opens in a browser, from disk; - prints it")
      .type_name("FILE.html")
      .group("Output");
  line.add_option("--view", views, "What to print; a list (rooflm report --help names them)")
      .type_name("NAME,...")
      .group("Output");
  table.add_to(line, "Of what is printed; JSON and CSV carry every number in full", "Output");
  line.add_flag("--overwrite", overwrite, "Replace files that are there").group("Output");
  add_dry_run(line, dry_run);
}

}  // namespace rooflm::cli
