// The summary of a training run.
#include "report/tables/train_rows.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "core/ratio.h"
#include "core/units.h"
#include "report/model/run_figures.h"
#include "report/tables/run_columns.h"

namespace rooflm::report {
namespace {

void add_notes(Table& table, std::span<const RunData> runs) {
  table.notes = {
      "Losses in nats per token. Unigram entropy: the best validation loss of a model that ignores context."};
  for (const RunData& run : runs) {
    if (const auto scale = run.number("loss_scale")) {
      table.notes.push_back(fmt::format(
          "fp16: the final loss scale is {:g}; {} steps were skipped because gradients were not finite.",
          *scale, run.number("skipped_steps").value_or(0)));
    }
    if (const std::string why = why_no_peak(run); !why.empty())
      table.notes.push_back("no MFU: the matmul rate is not usable as a peak: " + why);
    if (const auto peak = peak_of(run)) {
      table.notes.push_back(fmt::format("MFU = {} * {}, peak {}FLOP/s",
                                        run.setting("lora").empty() ? "(6N + 12LCT)" : "(4N + 12LCT)",
                                        core::kMfuFormula, core::format_si(*peak)));
    }
  }
}

std::optional<double> train_step_s(const RunData& run) {
  return ratio_of(run.number("train_s"), run.number("trained_steps"));
}

}  // namespace

bool is_training(const RunData& run) { return run.run.kind == "train" && run.number("train_s").has_value(); }

const TypedColumns<RunData>& train_columns() {
  static const TypedColumns<RunData> columns = {
      {"model", "model", of_run::setting("model")},
      {"status", "status",
       [](const RunData& run) { return run.run.status == "success" ? "done" : "stopped"; }},
      {"engine", of_run::setting("engine")},
      {"dtype", of_run::setting("dtype")},
      {"params", [](const RunData& run) { return whole(run.run.config.number("params")); }},
      {"step", "step", of_run::count("step")},
      {"steps", of_run::count("steps")},
      {"tokens", "tokens", of_run::count("trained_tokens"), Show::si},
      {"loss", "loss", of_run::number("loss")},
      {"val_loss", "val loss", of_run::number("val_loss")},
      {"val_perplexity",
       [](const RunData& run) {
         const auto loss = run.number("val_loss");
         return loss ? std::optional(std::exp(*loss)) : std::nullopt;
       }},
      {"best_val_loss", of_run::number("best_val_loss")},
      {"val_unigram_entropy", "unigram entropy", of_run::number("val_unigram_entropy")},
      {"tokens_per_s", "tokens/s",
       [](const RunData& run) { return ratio_of(run.number("tokens"), train_step_s(run)); }, Show::si},
      {"mfu", "MFU",
       [](const RunData& run) {
         return core::mfu_of(model_flop_of_rank(run), train_step_s(run), peak_of(run));
       },
       Show::percent},
      {"peak_flop_per_s", peak_of},
      {"train_s", "train s", of_run::number("train_s"), Show::fixed1, "s"},
      {"loss_scale", of_run::number("loss_scale")},
      {"skipped_steps", of_run::count("skipped_steps")},
      {"checkpoint", "checkpoint", of_run::text("checkpoint")}};
  return columns;
}

Table train_table(std::span<const RunData> runs) {
  Table table = train_columns().table(runs);
  add_notes(table, runs);
  return table;
}

}  // namespace rooflm::report
