// The summary of a training run.
#include "report/train_rows.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>

#include "core/ratio.h"
#include "core/units.h"
#include "report/run_figures.h"
#include "report/view.h"

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
      table.notes.push_back("no MFU: the matmul rate is no peak: " + why);
    if (const auto peak = peak_of(run)) {
      table.notes.push_back(
          fmt::format("MFU = {}, peak {}FLOP/s", core::kMfuFormula, core::format_si(*peak)));
    }
  }
}

}  // namespace

bool is_training(const RunData& run) { return run.run.kind == "train" && run.number("train_s").has_value(); }

Row train_row(const RunData& run) {
  const auto val_loss = run.number("val_loss");
  const auto peak = peak_of(run);
  const auto step_s = ratio_of(run.number("train_s"), run.number("trained_steps"));
  const std::string checkpoint = run.text("checkpoint");
  Row row;
  row.set("model", run.setting("model"));
  row.set("status", std::string(run.run.status == "success" ? "done" : "stopped"));
  row.set("engine", run.setting("engine"));
  row.set("dtype", run.setting("dtype"));
  row.set("params", whole(run.run.config.number("params")));
  row.set("step", whole(run.number("step")));
  row.set("steps", whole(run.number("steps")));
  row.set("tokens", whole(run.number("trained_tokens")));
  row.set("loss", cell_of(run.number("loss")));
  row.set("val_loss", cell_of(val_loss));
  row.set("val_perplexity", val_loss ? Cell(std::exp(*val_loss)) : Cell());
  row.set("best_val_loss", cell_of(run.number("best_val_loss")));
  row.set("val_unigram_entropy", cell_of(run.number("val_unigram_entropy")));
  row.set("tokens_per_s", cell_of(ratio_of(run.number("tokens"), step_s)));
  row.set("mfu", cell_of(core::mfu_of(model_flop_of_rank(run), step_s, peak)));
  row.set("peak_flop_per_s", cell_of(peak));
  row.set("train_s", cell_of(run.number("train_s")));
  row.set("loss_scale", cell_of(run.number("loss_scale")));
  row.set("skipped_steps", whole(run.number("skipped_steps")));
  row.set("checkpoint", checkpoint.empty() ? Cell() : Cell(checkpoint));
  return row;
}

Table train_table(std::span<const RunData> runs) {
  Table table{.columns = {{"model", "model"},
                          {"status", "status"},
                          {"step", "step"},
                          {"tokens", "tokens", Show::si},
                          {"loss", "loss"},
                          {"val_loss", "val loss"},
                          {"val_unigram_entropy", "unigram entropy"},
                          {"tokens_per_s", "tokens/s", Show::si},
                          {"mfu", "MFU", Show::percent},
                          {"train_s", "train s", Show::fixed1, "s"},
                          {"checkpoint", "checkpoint"}},
              .rows = {},
              .notes = {}};
  for (const RunData& run : runs) table.rows.push_back(train_row(run));
  add_notes(table, runs);
  return table;
}

}  // namespace rooflm::report
