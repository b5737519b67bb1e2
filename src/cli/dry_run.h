// `--dry-run`: checks everything as for a run and prints what it would do; runs and writes nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "cli/output_rule.h"
#include "cli/table.h"
#include "lab/point.h"

namespace rooflm::cli {

/// Declares the flag.
void add_dry_run(CommandLine& line, bool& asked, const std::string& group = "Output");

/// The configurations that would run, with the options that vary among them, parameters, tokens and model
/// FLOP of a step, and what would be written.
void show_dry_run(const std::vector<lab::Point>& points, const std::vector<OutputPath>& outputs,
                  const TableStyle& style);
/// The rows that would be measured, and what would be written.
void show_dry_run(const std::vector<std::string>& rows, const std::vector<OutputPath>& outputs,
                  const TableStyle& style);
/// Of the cases of a micro-benchmark.
template <class Case>
void show_dry_run(const std::vector<Case>& cases, const std::vector<OutputPath>& outputs,
                  const TableStyle& style) {
  std::vector<std::string> rows;
  for (const Case& each : cases) rows.push_back(describe(each));
  show_dry_run(rows, outputs, style);
}
/// "would record it", and what would be written.
void show_dry_run(std::string_view what, const std::vector<OutputPath>& outputs);

}  // namespace rooflm::cli
