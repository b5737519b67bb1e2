// The options that say how a step is taken apart, shared by profile and study.
#include "cli/profile_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/values.h"
#include "core/error.h"
#include "text/prepare.h"

namespace rooflm::cli {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000;

int steps(const char* option, const std::string& text, int otherwise, std::int64_t least) {
  if (text.empty()) return otherwise;
  return static_cast<int>(std::min(parse_integer(option, text, least), kMostSteps));
}

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
  add("--precision", precision, "PERCENT",
      "Stop when the 95% interval of the median is within so many percent of it to each side (default: 1)");
  add("--min-steps", min_steps, "N", "Plain steps at least (default: 6)");
  add("--max-steps", max_steps, "N", "Plain steps at most, as many observed ones beside them (default: 200)");
  add("--max-seconds", max_seconds, "S", "Time for each configuration after warm-up (default: 30)");
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
  settings.min_steps = steps("--min-steps", min_steps, settings.min_steps, 1);
  settings.max_steps = steps("--max-steps", max_steps, settings.max_steps, 1);
  settings.min_steps = std::min(settings.min_steps, settings.max_steps);
  if (!precision.empty()) settings.precision = parse_percent("--precision", precision);
  if (!max_seconds.empty()) settings.max_seconds = parse_number("--max-seconds", max_seconds, 0);
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
  line.add_option("-o,--output", record, "Keep the run record, to report, compare and verify it later")
      .type_name("FILE.rooflm")
      .group("Output");
  line.add_option("--html", html, "Write one page that opens in a browser, from disk")
      .type_name("FILE.html")
      .group("Output");
  line.add_option("--view", views, "What to print; a list (rooflm report --help names them)")
      .type_name("NAME,...")
      .group("Output");
  line.add_option("--format", format, "Of what is printed")
      .type_name("table|md|csv|json")
      .show_default()
      .group("Output");
  line.add_flag("--overwrite", overwrite, "Replace files that are there").group("Output");
}

}  // namespace rooflm::cli
