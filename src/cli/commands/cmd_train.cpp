// rooflm train: trains a model on token shards.
#include <memory>
#include <optional>
#include <utility>

#include "cli/command_record.h"
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/train_arguments.h"
#include "core/stop_signals.h"
#include "lab/devices.h"
#include "report/tables/train_rows.h"

namespace rooflm::cli {
namespace {

int run(const TrainArguments& arguments, const lab::Ranks& ranks) {
  const TableStyle style = arguments.style();
  require_columns(report::columns_of(report::train_columns()), style);
  const core::StopSignals signals;
  lab::TrainPlan plan = arguments.plan(ranks);
  const bool is_first = ranks::is_first(ranks);
  if (arguments.is_dry_run()) {
    if (!is_first) return 0;
    lab::require_runs(plan.point.device, "trained");
    note("would train {} steps{}", plan.options.schedule.steps,
         plan.start.checkpoint.empty() ? "" : ", from " + plan.start.checkpoint.string() + " on");
    show_dry_run({lab::point_of(plan)}, arguments.outputs(), style);
    return 0;
  }
  std::optional<CommandRecord> record;
  if (!arguments.record().empty() && is_first)
    record.emplace(arguments.record(), arguments.overwrites(), "train");
  lab::Training training(std::move(plan));
  lab::TrainedRun trained = training.run(record ? &record->writer() : nullptr);
  if (record) record->finish();
  const bool is_stopped = trained.run.status == "interrupted";
  report::RunData data;
  data.run = std::move(trained.run);
  data.facts = std::move(trained.facts);
  data.ceilings = training.ceilings();  // an uncertain peak is none
  if (is_first && (!record || !record->is_printed()))
    write_out(show_table(report::train_table({&data, 1}), style));
  return is_stopped ? core::stopped_code(trained.signal) : 0;
}

}  // namespace

Body declare_train(CommandLine& line) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->add_to(line);
  line.footer(
      "A preset takes its vocabulary size from the data's tokenizer unless --vocab is\n"
      "given. --model DIR continues from the weights in DIR. On SIGINT or SIGTERM,\n"
      "train finishes the step, saves a checkpoint and exits with 130 or 143; a second\n"
      "signal stops it at once.\n"
      "--resume needs only --out and continues bit-identically; options that contradict\n"
      "the checkpoint are rejected. If a loss or gradient norm is not finite, the run\n"
      "ends with exit code 1 and keeps the last good checkpoint. Checkpoints open in\n"
      "Hugging Face transformers (OUT/latest).\n"
      "-o writes a run record of this process's steps, for report --view training,\n"
      "verify and compare.\n\n"
      "Example: rooflm train --data data/ --model tiny --out out/ --steps 1000\n"
      "         rooflm train --out out/ --resume");
  return [arguments] {
    return lab::run_in_job([&](const lab::Ranks& ranks) { return run(*arguments, ranks); });
  };
}

}  // namespace rooflm::cli
