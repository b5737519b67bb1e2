// rooflm plan --strategies.
#include "cli/plans/plan_strategies.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/plans/plan_modes.h"
#include "cli/plans/plan_report.h"
#include "cli/values.h"
#include "core/error.h"
#include "perfmodel/strategies.h"
#include "report/tables/typed_columns.h"

namespace rooflm::cli {
namespace {

struct StrategyRow {
  const perfmodel::StrategyPlan* found = nullptr;
  const perfmodel::Setting* setting = nullptr;
};

const report::TypedColumns<StrategyRow>& strategy_columns() {
  using Of = const StrategyRow&;
  const auto plan = [](double perfmodel::Plan::*member) {
    return [member](Of of) { return of.found->plan.*member; };
  };
  static const report::TypedColumns<StrategyRow> columns = {
      {"model", "model", [](Of of) { return of.found->point.config.name; }},
      {"device", "device", [](Of of) { return of.setting->device.key; }},
      {"gpus", "GPUs", [](Of of) { return of.found->point.gpus(); }},
      {"framework", "framework", [](Of of) { return of.setting->framework.name; }},
      {"dtype", "dtype", [](Of of) { return compile::dtype_name(of.found->point.step); }},
      {"micro_batch", "b", [](Of of) { return of.found->point.micro_batch; }},
      {"global_batch", "batch", [](Of of) { return of.found->point.global_batch(); }},
      {"seq", "T", [](Of of) { return of.found->point.seq; }},
      {"recompute", "recompute", [](Of of) { return passes::name_of(of.found->point.step.recompute); }},
      {"strategy", "strategy", [](Of of) { return std::string(of.found->name); }},
      {"flop_per_gpu", "FLOP/GPU", [](Of of) { return of.found->flop_per_gpu(); }, Show::si, "flop"},
      {"sent_bytes", "sent/GPU", [](Of of) { return of.found->sent_bytes(); }, Show::bytes, "byte"},
      {"compute_s", "compute", plan(&perfmodel::Plan::compute_s), Show::seconds, "s"},
      {"communication_s", "comm", plan(&perfmodel::Plan::communication_s), Show::seconds, "s"},
      {"compute_per_communication", "ratio", [](Of of) { return of.found->compute_per_communication(); },
       Show::brief},
      {"bubble_s", "bubble", plan(&perfmodel::Plan::bubble_s), Show::seconds, "s"},
      {"bound_from", "bound from",
       [](Of of) { return of.found->bound_from > 0 ? std::optional(of.found->bound_from) : std::nullopt; }},
      {"most_gpus", "of at most", [](Of of) { return of.found->most; }},
      {"critical_tokens", "tokens", [](Of of) { return of.found->critical_tokens(); }, Show::si}};
  return columns;
}

}  // namespace

std::vector<Column> columns_of_strategies() { return report::columns_of(strategy_columns()); }

Table plan_strategies(const PlanOptions& options) {
  options.refuse({"--search", "--smallest", "--largest", "--scaling", "--against", "--explain", "--output",
                  "--html", "--fsdp", "--ddp", "--short-ends", "--async-tp", "--collectives", "--expert-tp",
                  "--expert-imbalance", "--phase"},
                 " has no meaning with --strategies, which plans each alone");
  for (const std::string_view key : PlanOptions::kSplits) {
    if (options.is_given(key))
      throw core::UsageError(fmt::format("--strategies compares them: leave out --{}", key));
  }
  if (options.gpus.empty()) throw core::UsageError("--strategies needs --gpus N");
  std::vector<StrategyRow> rows;
  const std::vector<perfmodel::Setting> settings = settings_of(options);
  std::vector<std::vector<perfmodel::StrategyPlan>> found;
  PlanOptions whole = options;
  whole.gpus = "1";
  for_each_point(whole, settings, [&](const perfmodel::PlanPoint& point, const perfmodel::Setting& setting) {
    for (const std::int64_t gpus : gpus_of(options)) {
      found.push_back(perfmodel::compare_strategies(point, setting, degree("--gpus", gpus)));
      for (const perfmodel::StrategyPlan& each : found.back())
        rows.push_back({.found = &each, .setting = &setting});
    }
  });
  if (rows.empty())
    throw core::UsageError("--strategies: --gpus divides neither the batch nor the layers, heads or experts");
  Table table = strategy_columns().table(rows);
  table.notes = {
      "Each strategy alone, on one step. sent: by each rank, around rings. ratio: compute / communication, "
      "hidden or "
      "not. bound from: the smallest power of two of devices at which the ratio is below 1; -: none up to "
      "the "
      "most that can split the step (of at most).",
      "tokens: per rank, at which the ratio is 1: of a step; with zero3, which sends for each micro-batch, "
      "of one of these. ep and cp also sum gradients."};
  return with_heading(std::move(table));
}

}  // namespace rooflm::cli
