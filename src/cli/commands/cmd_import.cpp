// rooflm import: traces and snapshots of other tools as run records.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/foreign_roofs.h"
#include "cli/options/steps_option.h"
#include "cli/output.h"
#include "cli/output_rule.h"
#include "core/error.h"
#include "foreign/import.h"
#include "record/writer.h"

namespace rooflm::cli {
namespace {

struct ImportOptions {
  std::string file, kind, output, steps_by = "auto";
  bool overwrite = false, dry_run = false;
};

int run_import(const ImportOptions& options) {
  if (options.output.empty()) throw core::UsageError("import: name the record to write with -o FILE.rooflm");
  require_file({"-o", options.output});
  check_outputs({{"-o", options.output}}, files_of({options.file}), options.overwrite);
  const foreign::StepsBy steps_by = foreign::StepsBy::parse(options.steps_by);
  if (options.dry_run) {
    show_dry_run(
        fmt::format("import {} as {}", options.file, foreign::kind_of_file(options.file, options.kind)),
        {{"-o", options.output}});
    return 0;
  }
  foreign::ForeignRun run = foreign::import_file(options.file, options.kind);
  run.steps_by = steps_by;
  if (run.is_empty()) {
    throw core::InputError(fmt::format("{}: no events that a record can hold", options.file));
  }
  const std::vector<record::Ceiling> ceilings = add_roofs(run, false);
  record::Writer writer(options.output, fmt::format("rooflm import {} -o {}", options.file, options.output),
                        options.overwrite);
  std::vector<std::string> said;
  try {
    for (const record::Ceiling& ceiling : ceilings) writer.add(ceiling);
    said = run.write(writer);
    writer.finish();
  } catch (const core::Error&) {  // half of a trace is no record of it
    writer.discard();
    throw;
  }
  for (const std::string& text : said) note("import: {}", text);
  return 0;
}

}  // namespace

Body declare_import(CommandLine& line) {
  auto options = std::make_shared<ImportOptions>();
  line.add_option("file", options->file, "File of another tool").type_name("FILE").required();
  line.add_option("--from", options->kind, "Its format (default: detected from its first bytes)")
      .type_name("nsys|kineto|torch-memory|stream");
  line.add_option("-o,--output", options->output, "Record to write").type_name("FILE.rooflm");
  add_steps_by(line, options->steps_by);
  line.add_flag("--overwrite", options->overwrite, "Overwrite an existing record");
  add_dry_run(line, options->dry_run, "");
  line.footer(
      "nsys          database of nsys export --type sqlite\n"
      "kineto        Chrome trace: torch.profiler, JAX, Perfetto's JSON; also .gz\n"
      "torch-memory  pickle of torch.cuda.memory._dump_snapshot; parsed as data, nothing in it is executed\n"
      "stream        what rooflm record leaves if it cannot finish\n\n"
      "Standard error counts what was left out and what looks wrong.\n\n"
      "Example: rooflm import trace.json.gz -o trace.rooflm\n         rooflm report trace.rooflm --html "
      "trace.html");
  return [options] { return run_import(*options); };
}

}  // namespace rooflm::cli
