// rooflm plan: what a run would take, before it exists.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "cli/plan_against.h"
#include "cli/plan_report.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/units.h"
#include "perfmodel/plan.h"
#include "perfmodel/search.h"

namespace rooflm::cli {
namespace {

using perfmodel::Framework;
using perfmodel::PlanPoint;
using perfmodel::Setting;

struct PlanOptions {
  ConfigOptions config{"model", "arch", "layers", "heads",     "kv_heads", "d_model", "d_ff",
                       "vocab", "seq",  "dtype",  "recompute", "batch",    "clip"};
  std::string device, framework = "rooflm-fused";
  std::string gpus, dp, tp = "1", pp = "1", zero = "0", global_batch;
  std::string schedule = "1f1b", interleave = "1";
  std::string per_node, network, memory_limit, tokens, price;
  std::string explain, against, top = "10";
  std::string format = "table";
  bool search = false;
  bool nondeterministic = false;
};

/// What is planned, in the order of the options; a deque, so that rows may point into it.
struct Plans {
  std::deque<Setting> settings;
  std::deque<PlanPoint> points;
  std::deque<perfmodel::Plan> plans;
  std::vector<PlannedRun> runs;
};

Setting setting_of(const PlanOptions& options, const std::string& device, const std::string& framework) {
  Setting setting{.device = devices::find_device(device), .framework = perfmodel::find_framework(framework)};
  const int per_node =
      options.per_node.empty()
          ? 0
          : static_cast<int>(std::min<std::int64_t>(parse_integer("--per-node", options.per_node), 1 << 20));
  const double network = options.network.empty() ? 0 : parse_bytes("--network", options.network);
  setting.cluster = perfmodel::cluster_of(setting.device, per_node, network);
  if (options.nondeterministic) setting.framework.is_deterministic = false;
  setting.memory_limit_bytes = options.memory_limit.empty()
                                   ? setting.device.usable_bytes()
                                   : parse_bytes("--memory-limit", options.memory_limit);
  return setting;
}

int degree(std::string_view option, std::int64_t value) {
  constexpr std::int64_t kMost = 1 << 24;
  if (value > kMost) throw core::UsageError(fmt::format("{} {} is more than {}", option, value, kMost));
  return static_cast<int>(value);
}

/// The lists of degrees multiply. dp follows from --gpus unless it is given.
std::vector<compile::Sharding> shardings(const PlanOptions& options) {
  std::vector<compile::Sharding> all;
  auto gpus = parse_integers("--gpus", options.gpus);
  const bool has_gpus = !gpus.empty();
  auto dps = parse_integers("--dp", options.dp);
  if (!has_gpus) gpus = {0};
  if (dps.empty()) dps = {0};
  for (const auto n : gpus) {
    for (const auto dp : dps) {
      for (const auto tp : parse_integers("--tp", options.tp)) {
        for (const auto pp : parse_integers("--pp", options.pp)) {
          const std::int64_t part = degree("--tp", tp) * static_cast<std::int64_t>(degree("--pp", pp));
          const std::int64_t data = dp > 0 ? dp : n > 0 ? n / part : 1;
          if (has_gpus && dp == 0 && (data == 0 || n % part != 0)) {
            throw core::UsageError(
                fmt::format("--gpus {} is no multiple of --tp {} x --pp {} = {}", n, tp, pp, part));
          }
          if (n > 0 && data * part != n) {
            throw core::UsageError(fmt::format("--dp {} x --tp {} x --pp {} is {}, not --gpus {}", data, tp,
                                               pp, data * part, n));
          }
          for (const auto zero : parse_integers("--zero", options.zero, 0)) {
            if (zero > 3)
              throw core::UsageError(fmt::format("--zero {}: there are stages 0, 1, 2 and 3", zero));
            all.push_back(
                {.data = degree("--dp", data),
                 .zero = static_cast<int>(zero),
                 .tensor = degree("--tp", tp),
                 .pipeline = degree("--pp", pp),
                 .schedule = compile::parse_schedule(options.schedule),
                 .interleave =
                     pp > 1 ? degree("--interleave", parse_integer("--interleave", options.interleave)) : 1});
          }
        }
      }
    }
  }
  return all;
}

/// Points of the field table (model, T, dtype, recompute, B) as the framework's recipe builds them on the
/// device.
std::vector<lab::Point> points_of(const PlanOptions& options, const Setting& setting) {
  ConfigOptions config = options.config;
  config.set("device", "null:" + setting.device.key);
  config.set("engine", setting.framework.engine);
  config.set("attention", setting.framework.attention);
  return config.sweep();
}

std::int64_t micro_batches(std::int64_t global_batch, std::int64_t micro_batch, int data) {
  if (global_batch == 0) return 1;
  const std::int64_t at_once = micro_batch * data;
  if (global_batch % at_once != 0) {
    throw core::UsageError(fmt::format("--global-batch {} is no multiple of --batch {} x --dp {}",
                                       global_batch, micro_batch, data));
  }
  return global_batch / at_once;
}

PlanPoint plan_point(const lab::Point& point, const Framework& framework, const compile::Sharding& sharding,
                     std::int64_t global_batch) {
  PlanPoint planned{.config = point.config, .step = point.step, .micro_batch = point.batch, .seq = point.seq};
  planned.step.sharding = sharding;
  planned.step.sharding.sequence_parallel = sharding.tensor > 1 && framework.is_sequence_parallel;
  perfmodel::fit_to_framework(planned.step, framework);
  planned.micro_batches = micro_batches(global_batch, point.batch, sharding.data);
  return planned;
}

void plan_all(const PlanOptions& options, Plans& plans) {
  auto global_batches = parse_integers("--global-batch", options.global_batch);
  if (global_batches.empty()) global_batches = {0};
  for (const Setting& setting : plans.settings) {
    for (const lab::Point& point : points_of(options, setting)) {
      for (const compile::Sharding& sharding : shardings(options)) {
        for (const std::int64_t global_batch : global_batches) {
          plans.points.push_back(plan_point(point, setting.framework, sharding, global_batch));
          plans.plans.push_back(perfmodel::make_plan(plans.points.back(), setting));
          plans.runs.push_back(
              {.point = &plans.points.back(), .setting = &setting, .plan = &plans.plans.back()});
        }
      }
    }
  }
}

void search_all(const PlanOptions& options, Plans& plans) {
  const auto gpus = parse_integers("--gpus", options.gpus);
  if (gpus.size() != 1) throw core::UsageError("--search wants one --gpus N");
  const auto top = static_cast<std::size_t>(parse_integer("--top", options.top));
  const auto global_batch =
      options.global_batch.empty() ? std::int64_t{0} : parse_integer("--global-batch", options.global_batch);
  for (const Setting& setting : plans.settings) {
    for (const lab::Point& point : points_of(options, setting)) {
      const PlanPoint base = plan_point(point, setting.framework, {}, 0);
      auto found = perfmodel::search(base, setting, degree("--gpus", gpus.front()), global_batch, top);
      note("{} configurations tried: {} planned to the end, {} too large, {} slower than the best {}",
           found.tried, found.planned, found.too_large, found.too_slow, top);
      for (auto& candidate : found.candidates) {
        if (plans.runs.size() >= top) break;
        plans.points.push_back(std::move(candidate.point));
        plans.plans.push_back(std::move(candidate.plan));
        plans.runs.push_back({.point = &plans.points.back(),
                              .setting = &setting,
                              .plan = &plans.plans.back(),
                              .reason = std::move(candidate.reason)});
      }
    }
  }
}

RunBudget budget_of(const PlanOptions& options) {
  return {.tokens = options.tokens.empty() ? 0 : parse_number("--tokens", options.tokens, 1),
          .price_per_gpu_hour = options.price.empty() ? 0 : parse_number("--price", options.price)};
}

int run(const PlanOptions& options) {
  const Format format = parse_format(options.format);
  if (options.device.empty()) {
    std::string known;
    for (const devices::Device& device : devices::catalog()) known += ' ' + device.key;
    throw core::UsageError("--device is needed, a key of the catalog:" + known);
  }
  if (!options.explain.empty() && options.explain != "step_s") {
    throw core::UsageError(fmt::format("--explain {}: step_s can be explained", options.explain));
  }
  if (!options.against.empty()) {
    write_out(show_table(plan_against(options.against, options.device), format));
    return 0;
  }
  const RunBudget budget = budget_of(options);
  Plans plans;
  for (const std::string& device : parse_names("--device", options.device))
    for (const std::string& framework : parse_names("--framework", options.framework))
      plans.settings.push_back(setting_of(options, device, framework));
  const auto begin = std::chrono::steady_clock::now();
  options.search ? search_all(options, plans) : plan_all(options, plans);
  const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begin;
  note("planned in {}", core::format_seconds(lasted.count()));
  std::vector<Row> rows;
  for (const PlannedRun& planned : plans.runs) rows.push_back(plan_row(planned, budget));
  if (options.explain.empty() || format == Format::table || format == Format::md)
    write_out(show_table(plan_table(std::move(rows), plans.runs), format));
  if (options.explain.empty()) return 0;
  for (const PlannedRun& planned : plans.runs) {
    if (format == Format::table || format == Format::md) write_out("\n");
    write_out(show_table(explain_step(planned), format));
  }
  return 0;
}

}  // namespace

Body declare_plan(CommandLine& line) {
  auto options = std::make_shared<PlanOptions>();
  options->config.set("dtype", "bf16");
  options->config.set("seq", "1024");
  options->config.set("batch", "1");
  options->config.add_to(line);
  const auto add = [&](const char* name, std::string& value, const char* help, const char* values,
                       const char* group) {
    Option option = line.add_option(name, value, help);
    option.type_name(values).group(group);
    if (!value.empty()) option.show_default();
  };
  add("--device", options->device, "Devices of the catalog", "NAME", "Run");
  add("--framework", options->framework, "Whose step it is",
      "rooflm-fused|rooflm-eager|torch-eager|torch-compile|megatron|megatron-2021", "Run");
  add("--gpus", options->gpus, "Devices; the product of dp, tp and pp", "N", "Splitting");
  add("--dp", options->dp, "Data-parallel copies (default: what --gpus leaves)", "N", "Splitting");
  add("--tp", options->tp, "Tensor-parallel ranks, with sequence parallelism", "N", "Splitting");
  add("--pp", options->pp, "Pipeline stages", "N", "Splitting");
  add("--zero", options->zero,
      "What data-parallel ranks keep parts of: 1 optimizer state, 2 gradients, 3 weights", "0|1|2|3",
      "Splitting");
  add("--schedule", options->schedule, "Order of a pipeline's work", "1f1b|gpipe", "Splitting");
  add("--interleave", options->interleave, "Parts of the model that each stage of a pipeline has", "N",
      "Splitting");
  add("--global-batch", options->global_batch, "Sequences of a step (default: --batch x --dp)", "N",
      "Splitting");
  add("--per-node", options->per_node, "Devices in a node (default: data/links.json)", "N", "Cluster");
  add("--network", options->network, "Bytes per second and device between nodes, as 50GB", "SIZE", "Cluster");
  add("--memory-limit", options->memory_limit, "Memory of a device (default: the catalog's)", "SIZE",
      "Cluster");
  add("--tokens", options->tokens, "To train on (default: 20 per parameter)", "N", "Budget");
  add("--price", options->price, "Of one GPU for an hour", "X", "Budget");
  line.add_flag("--nondeterministic", options->nondeterministic,
                "Attention gradients add up in any order, as other frameworks' do")
      .group("Run");
  line.add_flag(
          "--search", options->search,
          "Try every split, micro-batch, ZeRO stage and recompute of --gpus: best first, with the reason why "
          "the others lost")
      .group("Search");
  add("--top", options->top, "Rows of a search", "N", "Search");
  add("--explain", options->explain, "How a number came about, term by term", "step_s", "Output");
  add("--against", options->against, "Plan what this record measured, on --device, and print both", "FILE",
      "Output");
  add("--format", options->format, "Of the results", kFormats, "Output");
  line.footer(
      "Nothing is run or allocated. The program that the engines would run is built for one rank of each "
      "role and\n"
      "priced op by op from measured tables (docs/perfmodel.md). --batch is the micro-batch of one rank. "
      "Numbers are\n"
      "marked measured, calibrated (measured op by op on such a device) or assumed (scaled by datasheet "
      "rates).\n\n"
      "Example: rooflm plan --model llama3-8b --device h100-sxm --seq 4096 --recompute full --explain "
      "step_s");
  return [options] { return run(*options); };
}

}  // namespace rooflm::cli
