// What the options of `rooflm plan` say: devices, frameworks, splits, sizes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options/config_options.h"
#include "cli/table.h"
#include "perfmodel/plan.h"

namespace rooflm::cli {

/// As typed; "" is not given. Most may be lists, and lists multiply.
struct PlanOptions {
  ConfigOptions config{"model", "arch",      "layers", "heads", "kv_heads",  "d_model",
                       "d_ff",  "vocab",     "seq",    "dtype", "recompute", "batch",
                       "clip",  "optimizer", "states", "lora",  "base",      "positions"};
  std::string catalog;  ///< of the user's own devices
  std::string device, framework;
  std::string gpus, global_batch;
  /// In the order in which they multiply.
  static constexpr std::string_view kSplits[] = {"dp", "cp",   "ep",          "tp",
                                                 "pp", "zero", "pp_schedule", "interleave"};
  ConfigOptions splits{std::vector<std::string_view>(std::begin(kSplits), std::end(kSplits)), {}};
  std::string former_schedule;  ///< --schedule, which --pipeline-schedule was
  std::string collectives = "default";
  std::string expert_tp, imbalance;
  std::string per_node, network, memory_limit;
  std::string tokens, price, mtbf, checkpoint;
  std::string scaling, largest, what_if, top = "10";
  std::string explain, against, calibrate;
  /// Of plans of inference (plan_inference.h): "" or train plan steps of training.
  std::string phase, weights = "bf16", kv_cache = "bf16", output_len, concurrency;
  TableOptions table;
  std::string record, html;  ///< -o, --html
  bool overwrite = false, dry_run = false;
  bool search = false, smallest = false, strategies = false;
  bool nondeterministic = false, short_ends = false, async_tp = false, whole_rows = false;
  bool fsdp = false, ddp = false, activation_checkpointing = false;  ///< PyTorch's words

  static constexpr std::string_view kOwnFramework = "rooflm-fused";
  /// --framework, or rooflm's own.
  [[nodiscard]] std::string framework_names() const;
  /// Sets the options that PyTorch's words stand for. Throws core::UsageError for a word and what it stands
  /// for.
  void take_words();

  [[nodiscard]] bool is_inference() const { return !phase.empty() && phase != "train"; }
  /// Whether an option of `splits` has another value than its initial one.
  [[nodiscard]] bool is_given(std::string_view key) const;
  /// Throws core::UsageError for the first of these options that was typed: its name, then `why`.
  void refuse(std::initializer_list<const char*> options, std::string_view why) const;

  /// Declares them. `line` must not outlive this.
  void add_to(CommandLine& line);

 private:
  const CommandLine* line_ = nullptr;
};

/// The one device of --device, of both catalogs. Throws core::UsageError with a suggestion.
devices::Device device_of(const PlanOptions& options);

/// Devices times frameworks, with what --what-if changes where it is given.
std::vector<perfmodel::Setting> settings_of(const PlanOptions& options);

/// Points of the field table (model, T, dtype, recompute, B) as the framework's recipe builds them on the
/// device: those of one rank, not split. fp8 is planned where the catalog has a rate of it.
std::vector<perfmodel::PlanPoint> points_of(const PlanOptions& options, const perfmodel::Setting& setting);

/// The lists of degrees multiply. dp follows from `gpus` unless it is given; 0: there are as many as the
/// degrees say.
std::vector<compile::Sharding> shardings_of(const PlanOptions& options, std::int64_t gpus);
/// --gpus; {0} when it is not given.
std::vector<std::int64_t> gpus_of(const PlanOptions& options);

/// `base` split like that, with the framework's kind of tensor parallelism. `global_batch` 0: one micro-batch
/// of each copy.
perfmodel::PlanPoint split_point(const perfmodel::PlanPoint& base, const perfmodel::Framework& framework,
                                 const compile::Sharding& sharding, std::int64_t global_batch);

/// A degree of the command line, which must not be absurd.
int degree(std::string_view option, std::int64_t value);

}  // namespace rooflm::cli
