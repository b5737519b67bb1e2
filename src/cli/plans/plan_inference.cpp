// rooflm plan --phase prefill|decode|serve.
#include "cli/plans/plan_inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "cli/plans/plan_report.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "perfmodel/inference.h"
#include "record/options.h"

namespace rooflm::cli {
namespace {

using perfmodel::InferenceEngine;
using perfmodel::InferencePhase;
using perfmodel::InferencePlan;
using perfmodel::InferencePoint;
using perfmodel::PassTime;
using perfmodel::Setting;

void refuse_options_of_training(const PlanOptions& options, InferencePhase phase) {
  options.refuse({"--search",
                  "--smallest",
                  "--largest",
                  "--scaling",
                  "--top",
                  "--tokens",
                  "--global-batch",
                  "--mtbf",
                  "--against",
                  "--checkpoint",
                  "--explain",
                  "--output",
                  "--html",
                  "--fsdp",
                  "--ddp",
                  "--async-tp",
                  "--no-sequence-parallel",
                  "--recompute",
                  "--collectives",
                  "--optimizer",
                  "--states",
                  "--lora",
                  "--base",
                  "--clip",
                  "--nondeterministic",
                  "--short-ends",
                  "--expert-tp",
                  "--pipeline-schedule",
                  "--schedule",
                  "--activation-checkpointing"},
                 fmt::format(" is about training: leave it out with --phase {}", options.phase));
  if (phase == InferencePhase::serve) {
    options.refuse({"--batch"}, ": with --phase serve it is --concurrency");
  } else {
    options.refuse({"--output-len", "--concurrency"}, " is about --phase serve");
  }
  for (const std::string_view key : {"dp", "cp", "pp", "zero", "interleave"}) {
    if (options.is_given(key))
      throw core::UsageError(
          fmt::format("--phase {}: only --tp and --ep split it, leave out --{}", options.phase, key));
  }
  if (!options.imbalance.empty() && !options.is_given("ep"))
    throw core::UsageError("--expert-imbalance is about ranks that share experts: it needs --ep");
  if (options.config.text("dtype") != "bf16")
    throw core::UsageError("--phase: leave out --dtype; --weights and --kv-cache set how numbers are stored");
}

struct PlannedInference {
  InferencePoint point{};
  InferencePlan plan{};
  std::string device{}, engine{};
  double price_per_token = 0;
};

/// Seconds of a pass by what they go to.
constexpr std::pair<const char*, double PassTime::*> kParts[] = {{"weights", &PassTime::weights_s},
                                                                 {"cache", &PassTime::cache_s},
                                                                 {"activations", &PassTime::other_bytes_s},
                                                                 {"arithmetic", &PassTime::arithmetic_s},
                                                                 {"launches", &PassTime::launch_s},
                                                                 {"collectives", &PassTime::collective_s},
                                                                 {"host", &PassTime::host_s}};

Cell if_fits(const InferencePlan& plan, double value) {
  return plan.fits && value > 0 ? Cell(value) : Cell();
}

Row row_of(const PlannedInference& planned) {
  const InferencePoint& point = planned.point;
  const InferencePlan& plan = planned.plan;
  const auto bytes = [](double value) { return static_cast<std::int64_t>(value); };
  const bool serves = point.phase == InferencePhase::serve;
  Row row;
  row.set("model", point.config.name);
  row.set("device", planned.device);
  row.set("framework", planned.engine);
  row.set("phase", std::string(core::name_of(point.phase)));
  row.set("weights", point.weights.name);
  row.set("kv_cache", std::string(core::name_of(point.cache)));
  const compile::Sharding& sharding = point.step.sharding;
  row.set("tp", std::int64_t{sharding.tensor});
  row.set("ep", sharding.expert > 1 ? Cell(std::int64_t{sharding.expert}) : Cell());
  row.set("batch", plan.batch);
  row.set("seq", point.seq);
  row.set("output_len", serves ? Cell(point.output) : Cell());
  row.set("status", plan.fits ? "planned" : "oom");
  row.set("ttft_s", if_fits(plan, plan.first_s));
  row.set("itl_s", if_fits(plan, plan.next_s));
  row.set("tokens_per_s", if_fits(plan, plan.token_per_s));
  const double total = plan.pass.total();
  row.set("tokens_per_s_low", if_fits(plan, plan.token_per_s * total / (total + plan.pass.spread_s)));
  row.set("tokens_per_s_high",
          if_fits(plan, plan.token_per_s * total / std::max(total - plan.pass.spread_s, 0.1 * total)));
  row.set("peak_bytes", bytes(plan.peak_bytes()));
  row.set("memory_limit_bytes", bytes(plan.memory_limit_bytes));
  row.set("weight_bytes", bytes(plan.memory.weight_bytes));
  row.set("cache_bytes", bytes(plan.peak_bytes() - plan.memory.without_cache()));
  row.set("activation_bytes", bytes(plan.memory.activation_bytes));
  row.set("cache_byte_per_token", plan.memory.cache_byte_per_token);
  row.set("largest_batch", plan.largest_batch);
  row.set("largest_context", plan.largest_context);
  row.set("gpus_needed", plan.gpus_needed > 0 ? Cell(std::int64_t{plan.gpus_needed}) : Cell());
  row.set("bound_by", plan.fits ? Cell(plan.pass.bound()) : Cell("memory"));
  for (const auto& [name, member] : kParts) {
    row.set(fmt::format("{}_s", name), plan.fits ? Cell(plan.pass.*member) : Cell());
  }
  row.set("read_byte_per_s", if_fits(plan, (plan.pass.weight_bytes + plan.pass.cache_bytes) / total));
  row.set("step_kind", std::string(name_of(plan.pass.basis)));
  if (planned.price_per_token > 0) row.set("price_per_mtoken", if_fits(plan, planned.price_per_token * 1e6));
  return row;
}

constexpr report::PlanSetting kSettings[] = {{"model", "model", true, true},
                                             {"device", "device", true, true},
                                             {"framework", "framework", true, true},
                                             {"phase", "phase", true, true},
                                             {"weights", "weights"},
                                             {"kv_cache", "kv_cache"},
                                             {"tp", "tp"},
                                             {"ep", "ep"},
                                             {"batch", "batch"},
                                             {"seq", "seq"},
                                             {"output_len", "output_len"}};

std::string parts_of(const InferencePlan& plan, InferencePhase phase) {
  std::vector<std::string> parts;
  constexpr double kLeast = 0.005;
  for (const auto& [name, member] : kParts) {
    const double seconds = plan.pass.*member;
    if (seconds > kLeast * plan.pass.total())
      parts.push_back(fmt::format("{} {}", name, core::format_seconds(seconds)));
  }
  return fmt::format("{} takes {}, bound by {}: {}",
                     phase == InferencePhase::prefill ? "The prompt" : "A token of each text",
                     core::format_seconds(plan.pass.total()), plan.pass.bound(), fmt::join(parts, ", "));
}

Table table_of(const std::vector<PlannedInference>& all, const std::string& currency) {
  Table table;
  for (const PlannedInference& planned : all) table.rows.push_back(row_of(planned));
  for (const report::PlanSetting& setting : kSettings)
    table.columns.push_back({.key = setting.key, .title = setting.title});
  const Column answers[] = {{.key = "status", .title = "status"},
                            {.key = "ttft_s", .title = "TTFT", .show = Show::seconds, .unit = "s"},
                            {.key = "itl_s", .title = "ITL", .show = Show::seconds, .unit = "s"},
                            {.key = "tokens_per_s", .title = "tokens/s", .show = Show::si},
                            {.key = "peak_bytes", .title = "memory", .show = Show::bytes, .unit = "byte"},
                            {.key = "largest_batch", .title = "max B"},
                            {.key = "largest_context", .title = "max T"},
                            {.key = "gpus_needed", .title = "GPUs"}};
  for (const Column& column : answers) {
    const bool says = std::ranges::any_of(
        table.rows, [&](const Row& row) { return report::says_something(*row.find(column.key)); });
    if (says) table.columns.push_back(column);
  }
  if (table.rows.front().find("price_per_mtoken") != nullptr)
    table.columns.push_back(
        {.key = "price_per_mtoken", .title = fmt::format("price/M, {}", currency), .show = Show::brief});
  if (all.size() > 1) table.columns.push_back({.key = "bound_by", .title = "bound by", .is_spare = true});
  if (all.size() == 1 && all.front().plan.fits)
    table.notes.push_back(parts_of(all.front().plan, all.front().point.phase));
  table.notes.emplace_back(
      "TTFT: prompt to first token, without a queue. ITL: between tokens of a text (TPOT). max B: texts of "
      "this length that fit; max T: longest length of B texts; GPUs: fewest ranks (--tp, for experts --ep) "
      "that hold them.");
  return with_heading(std::move(table), kSettings);
}

std::vector<InferencePoint> inference_points(const PlanOptions& options, const Setting& setting,
                                             InferencePhase phase) {
  std::vector<InferencePoint> points;
  for (const perfmodel::PlanPoint& base : points_of(options, setting)) {
    for (const std::string& format : parse_names("--weights", options.weights)) {
      for (const std::string& cache : parse_names("--kv-cache", options.kv_cache)) {
        if (cache != "bf16" && cache != "fp8")
          throw core::UsageError(fmt::format("--kv-cache {}: bf16 and fp8 are planned", cache));
        InferencePoint point{.config = base.config,
                             .step = base.step,
                             .weights = perfmodel::parse_stored_weights(format),
                             .cache = cache == "fp8" ? core::DType::f8 : core::DType::bf16,
                             .phase = phase,
                             .batch = base.micro_batch,
                             .seq = base.seq};
        if (phase == InferencePhase::serve) {
          point.batch =
              options.concurrency.empty() ? 0 : parse_integer("--concurrency", options.concurrency, 1);
          point.output =
              options.output_len.empty() ? base.seq : parse_integer("--output-len", options.output_len, 1);
        }
        points.push_back(std::move(point));
      }
    }
  }
  return points;
}

/// Of --tp and --ep, or of --gpus, which stands for the one that splits the model.
std::vector<compile::Sharding> inference_shardings(const PlanOptions& options, bool has_experts) {
  ConfigOptions splits = options.splits;
  if (!options.gpus.empty() && !options.is_given("tp") && !options.is_given("ep"))
    splits.set(has_experts ? "ep" : "tp", options.gpus);
  std::vector<compile::Sharding> all;
  for (const record::Config& split : splits.combinations(PlanOptions::kSplits)) {
    compile::Sharding sharding;
    record::read_options(split, sharding);
    sharding.data = sharding.expert;
    sharding.has_exact_rows = true;
    if (!options.imbalance.empty())
      sharding.expert_imbalance = parse_number("--expert-imbalance", options.imbalance, 1);
    const std::string ranks = std::to_string(sharding.ranks());
    if (options.gpus.find(',') == std::string::npos && !options.gpus.empty() && options.gpus != ranks)
      throw core::UsageError(fmt::format("--gpus {}: one copy of the model on --tp x --ep = {} is planned",
                                         options.gpus, ranks));
    all.push_back(sharding);
  }
  return all;
}

}  // namespace

Table plan_inferences(const PlanOptions& options, double price, const std::string& currency) {
  const auto phase = core::parse<InferencePhase>(options.phase);
  refuse_options_of_training(options, phase);
  if (options.device.empty()) throw core::UsageError("--device is missing: a key of the catalog");
  std::vector<PlannedInference> all;
  for (const std::string& name :
       parse_names("--framework", options.framework.empty() ? "rooflm" : options.framework)) {
    const InferenceEngine& engine = perfmodel::find_inference_engine(name);
    PlanOptions with_kernels = options;
    with_kernels.framework = engine.framework;
    for (const Setting& setting : settings_of(with_kernels)) {
      for (InferencePoint& point : inference_points(with_kernels, setting, phase)) {
        const bool has_experts = point.config.experts.count > 0;
        for (const compile::Sharding& sharding : inference_shardings(options, has_experts)) {
          point.step.sharding = sharding;
          PlannedInference planned{.point = point,
                                   .plan = perfmodel::plan_inference(point, setting, engine),
                                   .device = setting.device.key,
                                   .engine = engine.name};
          constexpr double kHour = 3600;
          if (price > 0 && planned.plan.token_per_s > 0)
            planned.price_per_token = price * sharding.ranks() / kHour / planned.plan.token_per_s;
          all.push_back(std::move(planned));
        }
      }
    }
  }
  return table_of(all, currency);
}

}  // namespace rooflm::cli
