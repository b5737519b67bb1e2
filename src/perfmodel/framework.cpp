// What a framework costs besides its kernels.
#include "perfmodel/framework.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "core/names.h"
#include "perfmodel/planning_text.h"

namespace rooflm::perfmodel {

namespace {

passes::UnitKind unit_kind(const std::string& name) {
  if (name == "none") return passes::UnitKind::none;
  if (name == "copied") return passes::UnitKind::copied;
  if (name == "flat") return passes::UnitKind::flat;
  if (name == "flat halves") return passes::UnitKind::flat_halves;
  throw std::logic_error("data/frameworks.json: unit_buffers: " + name);
}

/// Of frameworks that say nothing: what PyTorch's grouped GEMMs reach on an H200 (docs/experts.md).
constexpr double kTorchGroupedShare = 0.78;

}  // namespace

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> kAll = [] {
    std::vector<Framework> all;
    const auto data = nlohmann::json::parse(frameworks_text());
    std::map<std::string, nlohmann::json> known;
    for (const auto& entry : data.at("frameworks")) {
      nlohmann::json json =
          entry.contains("extends") ? known.at(entry.at("extends")) : nlohmann::json::object();
      json.merge_patch(entry);
      known[json.at("name")] = json;
      all.push_back({.name = json.at("name"),
                     .engine = json.at("engine"),
                     .attention = json.at("attention"),
                     .has_rewrites = json.at("rooflm_rewrites"),
                     .is_sequence_parallel = json.at("sequence_parallel"),
                     .rewrites = compile::parse_rewrites(json.value("rewrites", std::vector<std::string>{})),
                     .unit_buffers = unit_kind(json.value("unit_buffers", "none")),
                     .has_current_scales = json.value("fp8_current_scales", false),
                     .keeps_fp8_weights = json.value("fp8_kept_weights", false),
                     .reads_any_layout = json.value("fp8_any_layout", false),
                     .has_root_unit = json.value("root_unit", false),
                     .has_late_sums = json.value("late_sums", false),
                     .sends_rows_once = json.value("rows_once_per_node", false),
                     .scatters_sends = json.value("scatter_sends", false),
                     .has_torch_stages = json.value("torch_stages", false),
                     .is_vocab_parallel = json.value("vocab_parallel", false),
                     .vocab_multiple = json.value("vocab_multiple", std::int64_t{1}),
                     .attention_kernels = json.value("attention_kernels", ""),
                     .moved = json.value("moved", std::map<std::string, double, std::less<>>{}),
                     .matmul_spread = json.value("matmul_spread", 0.0),
                     .grouped_share = json.value("grouped_share", kTorchGroupedShare),
                     .launch_host_s = json.at("launch_host_s"),
                     .is_deterministic = json.at("deterministic"),
                     .context_bytes = json.at("context_bytes"),
                     .fragmentation = json.value("fragmentation", 0.0),
                     .memory_spread = json.at("memory_spread"),
                     .has_caching_allocator = json.value("caching_allocator", false),
                     .has_unread_saves = json.value("unread_saves", false),
                     .keeps_last_layer = json.value("last_layer_kept", false),
                     .basis = json.at("basis") == "measured" ? Basis::measured : Basis::assumed,
                     .source = json.at("source")});
    }
    return all;
  }();
  return kAll;
}

const Framework& find_framework(std::string_view name) {
  std::vector<std::string> names;
  for (const Framework& framework : frameworks()) {
    if (framework.name == name) return framework;
    names.push_back(framework.name);
  }
  throw core::UsageError(core::unknown_name("framework", name, names));
}

Launches launches_of(const Framework& framework) {
  return framework.launch_host_s > 0 ? Launches::launched : Launches::replayed;
}

void fit_to_framework(compile::StepOptions& step, const Framework& framework) {
  step.unit_buffers = framework.unit_buffers;
  step.fp8_options.any_layout = framework.reads_any_layout;
  if (framework.has_current_scales) step.fp8_options.scaling = passes::Fp8Scaling::current;
  if (framework.keeps_fp8_weights) step.fp8_options.weights = passes::Fp8Weights::keep;
  if (!framework.has_rewrites) {
    step.rewrites = {};
    step.logits_padding = 1;
    step.loss_chunk_bytes = std::int64_t{1} << 60U;  // the loss in one piece
  }
  step.rewrites = step.rewrites | framework.rewrites;
}

void fit_to_framework(compile::Sharding& sharding, const Framework& framework) {
  const bool is_pipeline = sharding.pipeline > 1;
  sharding.has_exact_rows = !framework.has_rewrites;
  sharding.root_unit = framework.has_root_unit;
  sharding.late_sums = framework.has_late_sums || (is_pipeline && framework.has_torch_stages);
  sharding.sequence_parallel = sharding.tensor > 1 && framework.is_sequence_parallel;
  sharding.vocab_parallel = sharding.tensor > 1 && framework.is_vocab_parallel;
  sharding.vocab_multiple = framework.vocab_multiple * (sharding.vocab_parallel ? sharding.tensor : 1);
}

std::int64_t planned_vocabulary(const model::ModelConfig& config, const compile::Sharding& sharding) {
  const std::int64_t multiple = sharding.vocab_multiple;
  return (config.padded_vocab + multiple - 1) / multiple * multiple;
}

}  // namespace rooflm::perfmodel
