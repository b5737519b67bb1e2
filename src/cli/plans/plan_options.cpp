// What the options of `rooflm plan` say: devices, frameworks, splits, sizes.
#include "cli/plans/plan_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/plans/plan_against.h"
#include "cli/table.h"
#include "cli/values.h"
#include "core/error.h"
#include "core/names.h"
#include "devices/user_catalog.h"
#include "lab/devices.h"
#include "perfmodel/device_fit.h"
#include "perfmodel/framework.h"
#include "perfmodel/link_calibration.h"
#include "perfmodel/what_if.h"
#include "record/options.h"
#include "record/reader.h"

namespace rooflm::cli {
namespace {

using perfmodel::PlanPoint;
using perfmodel::Setting;

/// Of the catalogs, the user's first.
devices::Device find_device(const std::vector<devices::Device>& own, const std::string& key) {
  std::vector<std::string> keys;
  for (const devices::Device& device : own) {
    if (device.key == key) return device;
    keys.push_back(device.key);
  }
  if (own.empty()) return devices::find_device(key);
  if (auto found = devices::device_called(key)) return std::move(*found);
  for (devices::Device& device : devices::catalog()) keys.push_back(std::move(device.key));
  throw core::UsageError(core::unknown_name("device of the catalogs", key, keys));
}

Setting setting_of(const PlanOptions& options, devices::Device device, const std::string& framework) {
  Setting setting{.device = std::move(device), .framework = perfmodel::find_framework(framework)};
  const int per_node =
      options.per_node.empty() ? 0 : degree("--per-node", parse_integer("--per-node", options.per_node));
  const double network = options.network.empty() ? 0 : parse_bytes("--network", options.network);
  setting.cluster =
      perfmodel::cluster_of(setting.device, per_node, network, perfmodel::launches_of(setting.framework));
  if (options.nondeterministic) setting.framework.is_deterministic = false;
  if (options.whole_rows) setting.framework.is_sequence_parallel = false;
  if (!setting.device.has_any_fp8_layout) setting.framework.reads_any_layout = false;
  setting.memory_limit_bytes = options.memory_limit.empty()
                                   ? setting.device.usable_bytes()
                                   : parse_bytes("--memory-limit", options.memory_limit);
  constexpr double kMostMemory = 1e18;  // of it minus a plan's bytes, in 64 bits
  if (setting.memory_limit_bytes > kMostMemory)
    throw core::UsageError(fmt::format("--memory-limit {} is more than 1 EB", options.memory_limit));
  return setting;
}

/// By what the record has: times of ops, of collectives, or both.
void calibrate(Setting& setting, const std::string& path) {
  const record::Reader record(path);
  const auto links = perfmodel::take_links(record, setting.cluster);
  for (const std::string& line : links.value_or(std::vector<std::string>())) note("{}", line);
  if (!links || !record.runs().empty()) setting.calibration = calibration_of(path, setting.device);
}

/// Of the catalog: stands for all in the table of fields, until the step is fitted to the device that is
/// meant.
constexpr const char* kAnyGpu = "h100-sxm";

/// dp of a split whose other degrees make `part` ranks.
std::int64_t data_ranks(std::int64_t gpus, std::int64_t dp, std::int64_t part, const std::string& degrees) {
  if (gpus == 0) return std::max<std::int64_t>(dp, 1);
  if (dp == 0 && gpus % part != 0)
    throw core::UsageError(fmt::format("--gpus {} is not a multiple of {} = {}", gpus, degrees, part));
  const std::int64_t data = dp > 0 ? dp : gpus / part;
  if (data * part != gpus)
    throw core::UsageError(
        fmt::format("--dp {} x {} is {}, not --gpus {}", data, degrees, data * part, gpus));
  return data;
}

compile::Sharding sharding_of(const PlanOptions& options, std::int64_t gpus, std::int64_t dp,
                              const compile::Sharding& degrees) {
  compile::Sharding sharding = degrees;
  std::string names;
  if (degrees.context > 1) names = fmt::format("--cp {} x ", degrees.context);
  names += fmt::format("--tp {} x --pp {}", degrees.tensor, degrees.pipeline);
  const std::int64_t part = std::int64_t{degrees.context} * degrees.tensor * degrees.pipeline;
  sharding.data = degree("--dp", data_ranks(gpus, dp, part, names));
  sharding.short_ends = options.short_ends;
  if (!options.expert_tp.empty())
    sharding.expert_tensor = degree("--expert-tp", parse_integer("--expert-tp", options.expert_tp));
  if (!options.imbalance.empty())
    sharding.expert_imbalance = parse_number("--expert-imbalance", options.imbalance, 1);
  if (degrees.pipeline == 1) sharding.interleave = 1;
  return sharding;
}

std::int64_t micro_batches(std::int64_t global_batch, std::int64_t micro_batch, int data) {
  if (global_batch == 0) return 1;
  const std::int64_t at_once = micro_batch * data;
  if (global_batch % at_once != 0) {
    throw core::UsageError(fmt::format("--global-batch {} is not a multiple of --batch {} x --dp {}",
                                       global_batch, micro_batch, data));
  }
  return global_batch / at_once;
}

}  // namespace

std::string PlanOptions::framework_names() const {
  return framework.empty() ? std::string(kOwnFramework) : framework;
}

void PlanOptions::take_words() {
  if ((fsdp || ddp) && is_given("zero")) {
    throw core::UsageError(
        fmt::format("{} is --zero {}: leave one of them out", fsdp ? "--fsdp" : "--ddp", fsdp ? 3 : 0));
  }
  if (fsdp) splits.set("zero", ddp ? "0,3" : "3");
  if (!activation_checkpointing) return;
  if (config.text("recompute") != "none")
    throw core::UsageError("--activation-checkpointing is --recompute full: leave one of them out");
  config.set("recompute", "full");
}

bool PlanOptions::is_given(std::string_view key) const {
  return splits.text(key) != (key == "dp" ? "" : record::find_field(key)->initial);
}

void PlanOptions::refuse(std::initializer_list<const char*> options, std::string_view why) const {
  for (const char* const option : options) {
    if (line_->was_given(option)) throw core::UsageError(fmt::format("{}{}", option, why));
  }
}

int degree(std::string_view option, std::int64_t value) {
  constexpr std::int64_t kMost = 1 << 24;
  if (value > kMost) throw core::UsageError(fmt::format("{} {} is more than {}", option, value, kMost));
  return static_cast<int>(value);
}

devices::Device device_of(const PlanOptions& options) {
  return find_device(
      options.catalog.empty() ? std::vector<devices::Device>{} : devices::read_catalog(options.catalog),
      options.device);
}

std::vector<Setting> settings_of(const PlanOptions& options) {
  std::vector<Setting> settings;
  std::vector<devices::Device> own;
  if (!options.catalog.empty()) own = devices::read_catalog(options.catalog);
  for (const std::string& device : parse_names("--device", options.device)) {
    for (const std::string& framework : parse_names("--framework", options.framework_names())) {
      settings.push_back(setting_of(options, find_device(own, device), framework));
      if (!options.calibrate.empty()) calibrate(settings.back(), options.calibrate);
      if (options.what_if.empty()) continue;
      Setting changed = settings.back();
      perfmodel::apply(perfmodel::parse_what_if(options.what_if), changed);
      settings.push_back(std::move(changed));
    }
  }
  return settings;
}

/// Whether ranks map each other's memory, which only rooflm's fused engine does.
bool sums_in_update(const PlanOptions& options, const perfmodel::Framework& framework) {
  const backends::CollectiveWish way = core::parse<backends::CollectiveWish>(options.collectives);
  if (way == backends::CollectiveWay::usual) return false;
  if (way != backends::CollectiveWay::peer_memory) {
    throw core::UsageError(
        fmt::format("--collectives {}: plan supports default and peer-memory", options.collectives));
  }
  if (framework.name == "rooflm-fused") return true;
  throw core::UsageError(
      fmt::format("--collectives peer-memory is for --framework rooflm-fused, not {}", framework.name));
}

std::vector<PlanPoint> points_of(const PlanOptions& options, const Setting& setting) {
  std::vector<PlanPoint> points;
  for (const std::string& dtype : parse_names("--dtype", options.config.text("dtype"))) {
    if (dtype == "fp8" && !setting.device.peak(dtype)) {
      throw core::Unavailable(
          fmt::format("--dtype fp8: the catalog has no fp8 rate of {}", setting.device.key));
    }
    ConfigOptions config = options.config;
    // Checks the dtype of devices that only the user's catalog has, too.
    static_cast<void>(lab::parse_compute_dtype(dtype, setting.device.key, setting.device));
    config.set("dtype", dtype);
    config.set("device", fmt::format("null:{}", kAnyGpu));
    config.set("engine", setting.framework.engine);
    config.set("attention", setting.framework.attention);
    for (const lab::Point& point : config.sweep(lab::ModelUse::plan)) {
      points.push_back(
          {.config = point.config, .step = point.step, .micro_batch = point.batch, .seq = point.seq});
      perfmodel::fit_to_device(points.back().step, setting.device);
      perfmodel::fit_to_framework(points.back().step, setting.framework);
      compile::Rewrites& rewrites = points.back().step.rewrites;
      rewrites.set(compile::Rewrite::async_tensor, options.async_tp);
      rewrites.set(compile::Rewrite::sum_in_update, sums_in_update(options, setting.framework));
    }
  }
  return points;
}

std::vector<std::int64_t> gpus_of(const PlanOptions& options) {
  auto gpus = parse_integers("--gpus", options.gpus);
  if (gpus.empty()) gpus = {0};
  return gpus;
}

std::vector<compile::Sharding> shardings_of(const PlanOptions& options, std::int64_t gpus) {
  std::vector<compile::Sharding> all;
  for (const record::Config& split : options.splits.combinations(PlanOptions::kSplits)) {
    compile::Sharding degrees;
    record::read_options(split, degrees);
    all.push_back(sharding_of(options, gpus, split.integer("dp").value_or(0), degrees));
  }
  return all;
}

PlanPoint split_point(const PlanPoint& base, const perfmodel::Framework& framework,
                      const compile::Sharding& sharding, std::int64_t global_batch) {
  PlanPoint planned = base;
  planned.step.sharding = sharding;
  perfmodel::fit_to_framework(planned.step.sharding, framework);
  planned.micro_batches = micro_batches(global_batch, base.micro_batch, sharding.data);
  return planned;
}

void PlanOptions::add_to(CommandLine& line) {
  line_ = &line;
  config.set("dtype", "bf16");
  config.set("seq", "1024");
  config.set("batch", "1");
  config.add_to(line, dtype_names_of_gpus());
  const auto add = [&](const char* name, std::string& value, const char* help, const std::string& values,
                       const char* group) {
    Option option = line.add_option(name, value, help);
    option.type_name(values).group(group);
    if (!value.empty()) option.show_default();
  };
  add("--device", device, "Devices from the catalog, such as h100, a100-40gb, 4090", "NAME", "Run");
  line.offer_words("--device", [] {
    std::vector<std::string> keys;
    for (const devices::Device& one : devices::catalog()) keys.push_back(one.key);
    return keys;
  });
  line.offer_words("--what-if", perfmodel::what_if_words);
  add("--catalog", catalog, "Your own devices, in the format of data/devices.json", "FILE", "Run");
  std::vector<std::string_view> names;
  for (const perfmodel::Framework& each : perfmodel::frameworks()) names.push_back(each.name);
  add("--framework", framework,
      "Framework to plan for (default: rooflm-fused, rooflm's own engine); with --phase: rooflm, "
      "gpt-fast, transformers, tensorrt-llm, vllm",
      fmt::format("{}", fmt::join(names, "|")), "Run");
  line.add_flag("--nondeterministic", nondeterministic,
                "Sum attention gradients in any order, as other frameworks do")
      .group("Run");
  add("--gpus", gpus, "Devices; the product of dp, cp, tp and pp", "N", "Splitting");
  splits.explain("dp", "Data-parallel copies (default: what --gpus leaves)");
  splits.explain("cp", "Context-parallel ranks, which share each sequence by ring attention");
  splits.explain("zero",
                 "What data-parallel ranks shard (ZeRO): 1 optimizer state, 2 also gradients, 3 also weights "
                 "(PyTorch's FSDP)");
  splits.explain("tp", "Tensor-parallel ranks, with sequence parallelism");
  splits.add_to(line);
  line.add_option("--schedule", former_schedule, "As --pipeline-schedule").group("");
  line.add_flag("--fsdp", fsdp, "PyTorch's fully_shard: as --zero 3").group("Splitting");
  line.add_flag("--ddp", ddp, "PyTorch's DistributedDataParallel: as --zero 0; with --fsdp, both are planned")
      .group("Splitting");
  line.add_flag("--activation-checkpointing", activation_checkpointing,
                "PyTorch's checkpoint of each layer: as --recompute full")
      .group("Run");
  add("--expert-tp", expert_tp, "Tensor-parallel ranks that share each expert: 1 (default) or --tp", "N",
      "Splitting");
  add("--expert-imbalance", imbalance,
      "Rows of the busiest expert-parallel rank over the mean (default: 1, balanced routing)", "X",
      "Splitting");
  add("--collectives", collectives, "How data-parallel ranks of a host sum gradients (bench --help)",
      "default|peer-memory", "Splitting");
  line.add_flag("--short-ends", short_ends,
                "One layer fewer in the first and last pipeline stage (Llama 3: 126 layers on 8 or 16)")
      .group("Splitting");
  line.add_flag("--no-sequence-parallel", whole_rows,
                "Tensor-parallel ranks keep all rows of norms and residuals, and use all-reduce")
      .group("Splitting");
  line.add_flag(
          "--async-tp", async_tp,
          "Tensor-parallel ranks split their GEMMs and overlap them with copies of rows by copy engines, as "
          "PyTorch can")
      .group("Splitting");
  add("--global-batch", global_batch, "Sequences per step (default: --batch x --dp; in a search 4 per GPU)",
      "N", "Splitting");
  add("--per-node", per_node, "Devices in a node (default: data/links.json)", "N", "Cluster");
  add("--network", network, "Bandwidth between nodes, in bytes per second and device: 50GB", "SIZE",
      "Cluster");
  add("--memory-limit", memory_limit, "Memory of a device (default: the catalog's)", "SIZE", "Cluster");
  add("--what-if", what_if,
      "Also plan faster or larger hardware, such as bandwidth=2x,link=2x: compute, bandwidth, link, network, "
      "memory, host",
      "LIST", "Cluster");
  add("--tokens", tokens, "Training tokens, such as 10B or 15T (default: 20 per parameter)", "N", "Budget");
  add("--price", price, "Price of a GPU-hour, in dollars unless a currency is given: 2.5, 2.5EUR", "X",
      "Budget");
  add("--mtbf", mtbf, "Mean time between failures of one GPU, for goodput", "HOURS", "Budget");
  add("--checkpoint", checkpoint,
      "Seconds to write a checkpoint (default: weights and state at 1 GB/s per GPU)", "S", "Budget");
  add("--scaling", scaling,
      "Curve over --gpus N,N,..: the same global batch (strong), or one that grows (weak)", "strong|weak",
      "Search");
  line.add_flag("--search", search,
                "Try every split (with the parts of --interleave 1,2,..), micro-batches up to 16, ZeRO stage "
                "and recompute on "
                "--gpus, and rank them, with the reason why each is slower")
      .group("Search");
  add("--top", top, "Rows of a search", "N", "Search");
  add("--largest", largest, "The largest that fits: --batch, --seq or --layers", "batch|seq|layers",
      "Search");
  line.add_flag(
          "--smallest", smallest,
          "The fewest GPUs on which some split fits: any number up to a node, then whole nodes; at most "
          "--gpus")
      .group("Search");
  line.add_flag(
          "--strategies", strategies,
          "Compare dp, zero, tp, pp, ep and cp, each alone on --gpus: FLOP, bytes sent, and the number of "
          "devices from which communication takes longer than computation")
      .group("Search");
  add("--phase", phase,
      "Plan inference: --batch prompts of --seq tokens, one more token of --batch texts of --seq tokens, or "
      "a "
      "server of such prompts",
      "train|prefill|decode|serve", "Inference");
  add("--weights", weights, "How weights are stored; int4 and nf4 in groups of 64, int4:32 in groups of 32",
      "bf16|fp8|int8|int4|nf4", "Inference");
  add("--kv-cache", kv_cache, "Dtype of keys and values", "bf16|fp8", "Inference");
  add("--output-len", output_len, "serve: tokens of an answer (default: --seq)", "N", "Inference");
  add("--concurrency", concurrency, "serve: texts at once (default: as many as fit)", "N", "Inference");
  add("--explain", explain, "Break the number down, term by term", "step_s|peak_bytes", "Output");
  add("--against", against, "Plan what this record measured on --device, and print both", "FILE", "Output");
  add("--calibrate", calibrate,
      "Scale each kind of op by what this record measured on such a device; for collectives, a record of "
      "rooflm comm",
      "FILE", "Run");
  line.add_option("-o,--output", record, "Keep the plans as a record, to report them later; - prints it")
      .type_name("FILE.rooflm")
      .group("Output");
  line.add_option("--html", html, "Write the page of the plan here; - prints it and nothing else")
      .type_name("FILE")
      .group("Output");
  line.add_flag("--overwrite", overwrite, "Overwrite existing files").group("Output");
  add_dry_run(line, dry_run);
  table.add_to(line, "Output format", "Output");
}

}  // namespace rooflm::cli
