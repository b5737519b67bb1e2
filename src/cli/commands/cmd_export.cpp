// rooflm export: a run, or the model of a checkpoint, in the formats of other tools.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/export_model.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "report/export/export.h"

namespace rooflm::cli {
namespace {

constexpr std::string_view kRanksFormat = "kineto";  // which shows several ranks

struct ExportOptions {
  std::vector<std::string> files;
  std::string format, output, run, step;
  bool overwrite = false, whole = false, dry_run = false;
};

/// The place of the run of that label or number; without one the only run of the record, or for kineto the
/// first rank of the job that all its runs are of. Of several records the first rank of the job that they
/// are of.
std::size_t chosen_run(const report::RecordSet& set, const report::JobRanks& jobs,
                       const ExportOptions& options) {
  const std::string& file = options.files.front();
  constexpr std::size_t kMostNamed = 10;
  std::string known;  // one line: what ends a command is one
  std::optional<std::size_t> found;
  const auto is_of_all = [&](std::size_t run) {
    return set.runs[run].other_ranks.empty() && jobs.ranks(run).size() == options.files.size();
  };
  for (std::size_t i = 0; i < set.runs.size(); ++i) {
    const record::Run& run = set.runs[i].run;
    if (i < kMostNamed)
      known += fmt::format("{}{} '{}'", i == 0 ? "" : ", ", run.id, core::printable(run.label));
    const bool is_it = options.run.empty()
                           ? options.files.size() > 1 && is_of_all(i)
                           : options.run == run.label || options.run == fmt::format("{}", run.id);
    if (is_it) found = i;
  }
  if (set.runs.empty()) throw core::UsageError(fmt::format("{}: the record has no runs to export", file));
  if (options.files.size() > 1) {
    if (found && is_of_all(*found)) return *found;
    throw core::UsageError(
        "export: several records can be exported together only if they are of the ranks of one job and have "
        "its collectives (rooflm record); these do not: export each alone");
  }
  if (options.run.empty() && set.runs.size() == 1) return 0;
  const bool is_job = jobs.ranks(0).size() == set.runs.size() && set.runs.front().other_ranks.empty();
  if (options.run.empty() && options.format == kRanksFormat && is_job) return 0;
  if (found) return *found;
  if (set.runs.size() > kMostNamed) known += fmt::format(" and {} more", set.runs.size() - kMostNamed);
  throw core::UsageError(
      fmt::format("export: {}; name one with --run: {}",
                  options.run.empty() ? fmt::format("{} has {} runs", file, set.runs.size())
                                      : fmt::format("{} has no run {}", file, core::printable(options.run)),
                  known));
}

std::span<const std::byte> as_output(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::string> write_file(const report::ExportFormat& format, const report::ExportSource& source,
                                    const std::string& path) {
  core::NewFile file(path);
  std::vector<std::string> notes;
  if (format.write_database != nullptr) {
    notes = format.write_database(source, core::temporary_name(path));
  } else {
    constexpr std::size_t kBufferBytes = 1 << 16;
    std::string buffer;
    const report::TextSink sink = [&](std::string_view text) {
      buffer += text;
      if (buffer.size() < kBufferBytes) return;
      file.write(as_output(buffer));
      buffer.clear();
    };
    notes = format.write(source, sink);
    file.write(as_output(buffer));
  }
  file.commit();
  return notes;
}

int run_model(const ExportOptions& options) {
  if (!options.run.empty() || !options.step.empty() || options.whole)
    throw core::UsageError(fmt::format(
        "--run, --step, --whole: {} is written from a checkpoint, not from a record: leave them out",
        kHuggingFace));
  if (options.overwrite)
    throw core::UsageError(
        fmt::format("--overwrite: {} makes a directory and replaces none: name a new one", kHuggingFace));
  if (options.dry_run) {
    check_model_export(options.files.front(), options.output);
    show_dry_run("export the model of " + core::printable(options.files.front()), {{"-o", options.output}});
    return 0;
  }
  export_model(options.files.front(), options.output);
  return 0;
}

int run_export(const ExportOptions& options) {
  if (options.format.empty())
    throw core::UsageError("export: name a --format; rooflm export --help lists them");
  if (options.output.empty()) throw core::UsageError("export: name the file with -o; - is standard output");
  const bool is_of_ranks = options.format == kRanksFormat;
  if (options.files.size() > 1 && !is_of_ranks)
    throw core::UsageError(
        fmt::format("export: {} takes one record; only kineto takes those of several ranks",
                    core::printable(options.format)));
  if (options.format == kHuggingFace) return run_model(options);
  const report::ExportFormat& format =
      report::export_format(options.format, std::array{std::string_view(kHuggingFace)});
  const bool is_stdout = options.output == "-";
  if (is_stdout && !format.is_text) {
    throw core::UsageError(fmt::format("-o -: {} is not a text format; name a file", format.name));
  }
  if (!is_stdout) check_outputs({{"-o", options.output}}, files_of(options.files), options.overwrite);
  if (options.whole && !options.step.empty())
    throw core::UsageError("--step, --whole: give only one of them");
  report::TraceScope scope{.is_whole = options.whole};
  if (!options.step.empty()) scope.step = parse_integer("--step", options.step, 0);
  const report::RecordSet set =
      report::load(std::vector<std::filesystem::path>(options.files.begin(), options.files.end()));
  const report::JobRanks jobs(set);
  const std::size_t run = chosen_run(set, jobs, options);
  // A run that is named is exported alone, where other ranks of its job are runs of the record, too.
  const bool is_alone =
      !options.run.empty() && options.files.size() == 1 && set.runs[run].other_ranks.empty();
  const report::ExportSource source{
      .file = set.files.at(set.runs[run].file),
      .run = set.runs[run],
      .scope = scope,
      .ranks = is_alone ? std::span<const report::RankRun>() : std::span(jobs.ranks(run))};
  if (options.dry_run) {
    show_dry_run(fmt::format("export run {}, {}, as {}", source.run.run.id,
                             core::printable(source.run.run.label), format.name),
                 {{"-o", options.output}});
    return 0;
  }
  const std::vector<std::string> notes =
      is_stdout ? format.write(source, write_out) : write_file(format, source, options.output);
  for (const std::string& text : notes) note("export: {}", text);
  return 0;
}

std::string formats_help() {
  std::string text = "Formats:\n";
  for (const report::ExportFormat& format : report::export_formats()) {
    text += fmt::format("  {:<19}{}\n", format.name, format.title);
  }
  text +=
      fmt::format("  {:<19}{}\n", kHuggingFace, "a checkpoint saved in parts, as one Hugging Face directory");
  return text;
}

}  // namespace

Body declare_export(CommandLine& line) {
  auto options = std::make_shared<ExportOptions>();
  line.add_option("files", options->files,
                  "Run record or checkpoint; for kineto also the records of all ranks of a job")
      .type_name("FILE")
      .required();
  line.add_option("--format", options->format, "Format to write").type_name("NAME");
  line.offer_words("--format", [] {
    std::vector<std::string> names{kHuggingFace};
    for (const report::ExportFormat& format : report::export_formats()) names.emplace_back(format.name);
    return names;
  });
  line.add_option("-o,--output", options->output, "File to write; - is standard output, for text formats")
      .type_name("FILE");
  line.add_option("--run", options->run, "Run to export, by label or number (default: the only one)")
      .type_name("NAME");
  line.add_option("--step", options->step, "Only events of this step (default: all traced steps)")
      .type_name("N");
  line.add_flag("--whole", options->whole,
                "The whole recording, including warm-up and what ran outside steps");
  line.add_flag("--overwrite", options->overwrite, "Overwrite an existing file");
  add_dry_run(line, options->dry_run, "");
  line.footer(formats_help() +
              "\n"
              "Standard error says which parts of the record the format cannot represent.\n\n"
              "Example: rooflm export a.rooflm --format kineto -o trace.json");
  return [options] { return run_export(*options); };
}

}  // namespace rooflm::cli
