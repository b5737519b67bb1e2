// rooflm train: trains a model on token shards.
#include <cmath>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/train_arguments.h"
#include "core/error.h"
#include "core/units.h"
#include "lab/ceiling_book.h"
#include "lab/devices.h"
#include "train/train_log.h"

namespace rooflm::cli {
namespace {

Cell cell(const std::optional<double>& value) { return value ? Cell(*value) : Cell(); }

Table summary_table(const TrainPlan& plan, const train::TrainSummary& summary) {
  Row row;
  row.set("model", plan.config.name);
  row.set("status", std::string(summary.signal == 0 ? "done" : "stopped"));
  row.set("engine", std::string(compile::name_of(plan.options.step.engine)));
  row.set("dtype", std::string(compile::dtype_name(plan.options.step)));
  row.set("params", model::parameter_count(plan.config));
  row.set("step", summary.step);
  row.set("steps", plan.options.schedule.steps);
  row.set("tokens", static_cast<std::int64_t>(summary.tokens));
  row.set("loss", cell(summary.loss));
  row.set("val_loss", cell(summary.val_loss));
  row.set("val_perplexity", summary.val_loss ? Cell(std::exp(*summary.val_loss)) : Cell());
  row.set("best_val_loss", cell(summary.best_val_loss));
  row.set("val_unigram_entropy", cell(plan.data.val_unigram_entropy));
  row.set("tokens_per_s", summary.tokens_per_s);
  const auto peak = plan.options.peak_flop_per_s;
  const auto flop_per_token = static_cast<double>(model::model_flop_per_token(plan.config, plan.options.seq));
  row.set("mfu", peak ? Cell(flop_per_token * summary.tokens_per_s / *peak) : Cell());
  row.set("peak_flop_per_s", cell(peak));
  row.set("train_s", summary.train_s);
  row.set("loss_scale", cell(summary.loss_scale));
  row.set("skipped_steps", summary.loss_scale ? Cell(summary.skipped_steps) : Cell());
  row.set("checkpoint", summary.checkpoint.empty() ? Cell() : Cell(summary.checkpoint.string()));
  Table table{.columns = {{"model", "model"},
                          {"status", "status"},
                          {"step", "step"},
                          {"tokens", "tokens", Show::si},
                          {"loss", "loss"},
                          {"val_loss", "val loss"},
                          {"val_unigram_entropy", "unigram entropy"},
                          {"tokens_per_s", "tokens/s", Show::si},
                          {"mfu", "MFU", Show::percent},
                          {"train_s", "train s", Show::fixed1},
                          {"checkpoint", "checkpoint"}},
              .rows = {std::move(row)},
              .notes = {"Losses in nats per token. Unigram entropy: the best validation loss of a model that "
                        "ignores context."}};
  if (summary.loss_scale) {
    table.notes.push_back(
        fmt::format("fp16: the loss is scaled by {:g} at the end; {} steps had gradients that were not "
                    "finite and were skipped.",
                    *summary.loss_scale, summary.skipped_steps));
  }
  if (peak) {
    table.notes.push_back(fmt::format("MFU = {}, peak {}FLOP/s", train::kMfuFormula, core::format_si(*peak)));
  }
  return table;
}

/// The rate that bench and profile divide by too.
std::optional<double> sustained_rate(const TrainPlan& plan) {
  lab::Point point = plan.point;
  point.step = plan.options.step;
  lab::CeilingBook ceilings;
  ceilings.measure({&point, 1}, lab::CeilingBook::Wanted::products);
  const auto peak = ceilings.products(point);
  if (!peak) return std::nullopt;
  note("peak: {}", lab::describe_peak(*peak));
  return peak->value;
}

int run(const TrainArguments& arguments) {
  const Format format = parse_format(arguments.format());
  TrainPlan plan = arguments.plan();
  lab::require_runs(plan.point.device, "trained");
  const auto backend = lab::make_backend(plan.point.device, plan.options.step.engine,
                                         {.threads = plan.point.threads,
                                          .gemm_search = plan.point.gemm_search,
                                          .gemm_choices = plan.gemm_choices,
                                          .deterministic = plan.point.deterministic});
  plan.options.gemm_choices = [&backend, &plan] {
    return backends::provider_of(plan.point.device).gemm_choices(*backend).text;
  };
  plan.options.peak_flop_per_s = arguments.peak_flop_per_s();
  if (!plan.options.peak_flop_per_s && arguments.measures_peak()) {
    plan.options.peak_flop_per_s = sustained_rate(plan);
  }
  train::Trainer trainer(*backend, plan.config, plan.options, plan.data, plan.start);
  const train::TrainSummary summary = trainer.run();
  write_out(format_table(summary_table(plan, summary), format));
  return 0;
}

}  // namespace

Body declare_train(CommandLine& line) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->add_to(line);
  line.footer(
      "A preset takes its vocabulary from the data's tokenizer unless --vocab says otherwise; --model DIR\n"
      "goes on from the weights there.\n"
      "SIGINT or SIGTERM finishes the step, saves a checkpoint and exits with 0; a second one ends at once.\n"
      "--resume needs nothing but --out and continues bit for bit; options that contradict the checkpoint\n"
      "are refused. A loss or gradient norm that is not finite ends the run with exit code 1 and leaves the\n"
      "last good checkpoint. Checkpoints open in Hugging Face transformers (OUT/latest).\n\n"
      "Example: rooflm train --data data/ --model tiny --out out/ --steps 1000 --batch 8 --seq 256 "
      "--lr 1e-3\n"
      "         --warmup-steps 100 --eval-every 100 --checkpoint-every 200\n"
      "         rooflm train --out out/ --resume");
  return [arguments] { return run(*arguments); };
}

}  // namespace rooflm::cli
