// The options that select a part of records.
#include "cli/options/filter_options.h"

#include "cli/values.h"

namespace rooflm::cli {

void FilterOptions::add_to(CommandLine& line) {
  const auto add = [&](const char* name, std::string& value, const char* type, const char* text) {
    line.add_option(name, value, text).type_name(type).group("Filters");
  };
  add("--run", run, "NAME,...", "Runs, by number from 1 or by part of their label: bf16");
  add("--phase", phase, "forward|backward|optimizer", "One phase, or a list");
  add("--scope", scope, "NAME,...", "Blocks, of one layer (h.1/attention) or of all (attention/qk)");
  add("--op", op, "KIND,...", "Kinds of ops: matmul, softmax");
}

report::Filter FilterOptions::filter() const {
  return {.runs = parse_names("--run", run),
          .phases = parse_names("--phase", phase),
          .scopes = parse_names("--scope", scope),
          .ops = parse_names("--op", op)};
}

}  // namespace rooflm::cli
