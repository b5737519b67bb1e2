// The options of micro-benchmarks.
#include "cli/options/micro_options.h"

#include "cli/dry_run.h"
#include "cli/values.h"

namespace rooflm::cli {

void MicroOptions::add_to(CommandLine& line) {
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    line.add_option(name, value, text).type_name(type).show_default().group("Measuring");
  };
  add("--seconds", seconds, "S", "Seconds per row; at least three runs are made");
  add("--memory-limit", memory_limit, "SIZE", "Rows that need more get status oom");
  config.add_to(line);
  table.add_to(line, "Output format; JSON and CSV have all values at full precision", "Output");
  line.add_option("-o,--output", record, "Write a run record, for report and verify; - is standard output")
      .type_name("FILE.rooflm")
      .group("Output");
  line.add_flag("--overwrite", overwrite, "Overwrite an existing record").group("Output");
  add_dry_run(line, dry_run);
}

lab::MicroSettings MicroOptions::settings() const {
  const lab::Point run = config.single();
  lab::MicroSettings settings;
  settings.sampling.seconds = parse_number("--seconds", seconds);
  if (!memory_limit.empty()) settings.limit_bytes = parse_bytes("--memory-limit", memory_limit);
  settings.backend = {
      .threads = run.threads, .gemm_search = run.gemm_search, .deterministic = run.deterministic};
  return settings;
}

}  // namespace rooflm::cli
