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

}  // namespace

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> kAll = [] {
    std::vector<Framework> all;
    const auto data = nlohmann::json::parse(frameworks_text());
    for (const auto& json : data.at("frameworks")) {
      all.push_back({.name = json.at("name"),
                     .engine = json.at("engine"),
                     .attention = json.at("attention"),
                     .has_rewrites = json.at("rooflm_rewrites"),
                     .is_sequence_parallel = json.at("sequence_parallel"),
                     .has_unfused_loss = json.value("unfused_loss", false),
                     .unit_buffers = unit_kind(json.value("unit_buffers", "none")),
                     .has_row_copies = json.value("row_copies", false),
                     .has_dropout = json.value("dropout", false),
                     .has_own_scales = json.value("fp8_own_scales", false),
                     .has_fp8_gathers = json.value("fp8_gathers", false),
                     .has_separate_matmuls = json.value("separate_products", false),
                     .has_gradient_sums = json.value("gradient_sums", false),
                     .has_gathered_ring = json.value("gathered_ring", false),
                     .has_current_scales = json.value("fp8_current_scales", false),
                     .keeps_fp8_weights = json.value("fp8_kept_weights", false),
                     .reads_any_layout = json.value("fp8_any_layout", false),
                     .has_fp8_parameters = json.value("fp8_parameters", false),
                     .has_half_gradients = json.value("half_gradients", false),
                     .gathers_again = json.value("gather_again", false),
                     .reduces_early = json.value("reduce_early", false),
                     .has_whole_recompute = json.value("whole_recompute", false),
                     .has_root_unit = json.value("root_unit", false),
                     .has_late_sums = json.value("late_sums", false),
                     .scatters_sends = json.value("scatter_sends", false),
                     .has_torch_stages = json.value("torch_stages", false),
                     .is_vocab_parallel = json.value("vocab_parallel", false),
                     .vocab_multiple = json.value("vocab_multiple", std::int64_t{1}),
                     .attention_kernels = json.value("attention_kernels", ""),
                     .moved = json.value("moved", std::map<std::string, double, std::less<>>{}),
                     .matmul_spread = json.value("matmul_spread", 0.0),
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
  step.unfused_loss = framework.has_unfused_loss;
  step.unit_buffers = framework.unit_buffers;
  step.row_copies = framework.has_row_copies;
  step.dropout = framework.has_dropout;
  step.fp8_own_scales = framework.has_own_scales;
  step.gradient_sums = framework.has_gradient_sums;
  step.separate_matmuls = framework.has_separate_matmuls;
  step.fp8_gathers = framework.has_fp8_gathers;
  step.gathered_ring = framework.has_gathered_ring;
  step.whole_recompute = framework.has_whole_recompute;
  step.gather_again = framework.gathers_again;
  step.reduce_early = framework.reduces_early;
  step.fp8_parameters = framework.has_fp8_parameters;
  step.half_gradients = framework.has_half_gradients;
  step.fp8_options.any_layout = framework.reads_any_layout;
  step.fp8_casts_apart = framework.has_current_scales;
  if (framework.has_current_scales) step.fp8_options.scaling = passes::Fp8Scaling::current;
  if (framework.keeps_fp8_weights) step.fp8_options.weights = passes::Fp8Weights::keep;
  if (framework.has_rewrites) return;
  constexpr std::int64_t kWhole = std::int64_t{1} << 60U;  // the loss in one piece
  step.compact_state = false;
  step.logits_padding = 1;
  step.gelu_in_epilogue = false;
  step.bias_in_gradients = false;
  step.early_norm = false;
  step.rebuild = false;
  step.loss_chunk_bytes = kWhole;
}

void fit_to_framework(compile::Sharding& sharding, const Framework& framework) {
  const bool is_pipeline = sharding.pipeline > 1;
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
