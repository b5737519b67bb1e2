// One configuration of a run: from the fields that were typed to a model, a recipe and a device.
#include "lab/point.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "lab/devices.h"
#include "lab/model_file.h"
#include "model/forward.h"
#include "model/quantized_files.h"
#include "perfmodel/device_fit.h"
#include "record/options.h"
#include "train/checkpoint.h"

namespace rooflm::lab {
namespace {

/// Refuses sizes whose matmuls would not fit 64 bits, or whose program would not fit memory.
void check_magnitude(const model::ModelConfig& config, const Point& point) {
  constexpr double kMostElements = 0x1p50;
  constexpr std::int64_t kMostLayers = 100'000;
  const auto c = static_cast<double>(config.d_model);
  const auto f = static_cast<double>(config.d_ff);
  const auto v = static_cast<double>(config.padded_vocab);
  const auto layers = static_cast<double>(config.layers);
  const auto attention = static_cast<double>(config.heads) * static_cast<double>(config.head_dim);
  const double parameters =
      layers * (4 * attention * c + 3 * c * f) + (2 * v + static_cast<double>(config.max_seq)) * c;
  const double tokens = static_cast<double>(point.batch) * static_cast<double>(point.seq);
  const double scores = static_cast<double>(config.heads) * static_cast<double>(point.seq);
  const double widest = std::max({c, f, v, scores, attention});
  if (parameters > kMostElements || tokens * widest > kMostElements) {
    throw core::UsageError("sizes beyond 2^50 elements in a tensor or a model are not supported");
  }
  if (config.layers > kMostLayers / point.step.micro_batches) {
    throw core::UsageError(fmt::format("--layers {} times --grad-accum {}: at most {} layers can be planned",
                                       config.layers, point.step.micro_batches, kMostLayers));
  }
}

/// A device that only plans needs no kernels.
void check_kernels(const Point& point) {
  if (!backends::provider_of(point.device).runs()) return;
  std::string lacking = model::uncomputed(point.config);
  const bool is_gpu = backends::provider_of(point.device).describe(point.device).kind == devices::Kind::gpu;
  const compile::Sharding& split = point.step.sharding;
  if (is_gpu && point.config.experts.count > 0 && (split.expert > 1 || split.tensor > 1))
    lacking = "experts that ranks on GPUs share (--ep, --tp)";
  if (lacking.empty()) return;
  throw core::Unavailable(fmt::format(
      "{}: {} are not computed yet; plan, program and --device null take them", point.config.name, lacking));
}

void check_positions(const Point& point) {
  const std::int64_t longest = point.config.max_seq;
  if (longest > 0 && point.seq > longest) {
    throw core::UsageError(
        fmt::format("--seq {} is beyond the {} positions of {} (--positions N gives it more)", point.seq,
                    longest, point.config.name));
  }
}

/// Sizes as the overrides would make them, before anything is derived from them.
model::ModelConfig rough_config(model::ModelConfig config, const model::Overrides& o) {
  config.layers = o.layers.value_or(config.layers);
  config.heads = o.heads.value_or(config.heads);
  config.d_model = o.d_model.value_or(config.d_model);
  config.d_ff = o.d_ff.value_or(config.d_ff);
  config.padded_vocab = o.vocab.value_or(config.padded_vocab);
  config.head_dim = o.head_dim.value_or(
      o.heads || o.d_model ? config.d_model / std::max<std::int64_t>(1, config.heads) : config.head_dim);
  config.max_seq = o.positions.value_or(config.max_seq);
  return config;
}

/// Gradients must stay where they are until all ranks have read them: in an arena.
bool sums_in_update(const Point& point) {
  if (point.collectives.way != backends::CollectiveWay::peer_memory) return false;
  if (point.step.engine == compile::EngineKind::fused) return point.step.sharding.data_ranks() > 1;
  throw core::UsageError("--collectives peer-memory needs --engine fused");
}

/// Ranks that share sequences take turns at blocks of flash attention, in both engines.
passes::AttentionKind attention_of(const record::Config& typed, const compile::StepOptions& step) {
  const bool is_shared = step.sharding.context > 1;
  if (typed.text("attention").empty())
    return is_shared ? passes::AttentionKind::flash : compile::default_attention(step.engine);
  if (is_shared && step.attention != passes::AttentionKind::flash)
    throw core::UsageError(fmt::format("--cp {} requires --attention flash, not {}", step.sharding.context,
                                       name_of(step.attention)));
  return step.attention;
}

void check_routing(const Point& point) {
  if (point.step.routing == passes::Routing::learned || point.config.experts.count > 0) return;
  throw core::UsageError(
      fmt::format("--routing {}: {} has no experts", name_of(point.step.routing), point.config.name));
}

/// Weights of a directory that are packed stay so; they are not packed a second time.
core::WeightFormat base_of(const record::Config& typed, core::WeightFormat base) {
  const std::string model = record::text_or_initial(typed, *record::find_field("model"));
  if (!is_model_directory(model)) return base;
  const core::WeightFormat stored =
      model::read_weight_format(train::resolve_model_directory(model), model::Unread::is_plain);
  if (stored == core::WeightFormat::plain) return base;
  if (base == core::WeightFormat::plain || base == stored) return stored;
  throw core::UsageError(
      fmt::format("--base {}: the weights of {} are {} already", name_of(base), model, name_of(stored)));
}

/// How the point runs, without its model and what its device decides.
Point run_of(const record::Config& typed) {
  Point point;
  record::read_options(typed, point);
  point.device = parse_device(point.device);
  point.step.attention = attention_of(typed, point.step);
  point.step.base = base_of(typed, point.step.base);
  if (point.phase != RunPhase::step && point.step.micro_batches > 1) {
    throw core::UsageError(fmt::format("--phase {} has no gradients to accumulate: leave out --grad-accum",
                                       name_of(point.phase)));
  }
  point.step.rewrites.set(compile::Rewrite::sum_in_update, sums_in_update(point));
  return point;
}

/// Descriptions of devices, each asked for once.
class Descriptions {
 public:
  const devices::Device& of(const std::string& device) {
    const auto found = known_.find(device);
    if (found != known_.end()) return found->second;
    return known_.emplace(device, backends::provider_of(device).describe(device)).first->second;
  }

 private:
  std::map<std::string, devices::Device> known_;
};

Point make_point(const record::Config& config, Descriptions& descriptions, ModelUse use) {
  const model::ModelConfig sizes = find_model(record::text_or_initial(config, *record::find_field("model")));
  model::Overrides overrides;
  record::read_options(config, overrides);
  Point point = run_of(config);
  overrides.seq = point.seq;
  check_magnitude(rough_config(sizes, overrides), point);
  point.config = model::with_overrides(sizes, overrides);
  point.positions = overrides.positions;
  const devices::Device& device = descriptions.of(point.device);
  check_dtype(compute_dtype_of(point.step), point.device, device);
  perfmodel::fit_to_device(point.step, device);
  point.step.adapters = passes::find_adapters(point.config, point.step.lora);
  check_positions(point);
  check_routing(point);
  if (use == ModelUse::compute) check_kernels(point);
  compile::check(point.step.sharding, point.config, point.batch, point.seq, point.step.micro_batches);
  const compile::Sharding& split = point.step.sharding;
  if (point.phase == RunPhase::forward && split.ranks() > 1)
    throw core::UsageError("--phase forward runs on one rank: leave out --dp, --cp, --tp and --pp");
  if (is_generation(point.phase) && (split.context > 1 || split.pipeline > 1 || split.zero > 0)) {
    throw core::UsageError(
        fmt::format("--phase {}: only --dp (texts) and --tp (layers) can split it", name_of(point.phase)));
  }
  return point;
}

}  // namespace

std::vector<std::string_view> step_keys() {
  std::vector<std::string_view> keys = record::keys_of(compile::StepOptions{});
  for (const std::string_view key : record::keys_of(model::Overrides{})) keys.push_back(key);
  keys.insert(keys.end(), {"model", "device", "batch", "seq"});
  return keys;
}

std::string accepted_names(std::string_view key) {
  std::string names;
  const auto visit = [&](std::string_view visited, const auto& member) {
    if (visited == key) names = record::names_of_values(member);
  };
  const Point point;
  const model::Overrides sizes;
  visit_options(point, visit);
  visit_options(sizes, visit);
  return names;
}

std::vector<Point> make_points(std::span<const record::Config> configs, ModelUse use) {
  Descriptions descriptions;
  std::vector<Point> points;
  points.reserve(configs.size());
  for (const record::Config& config : configs) points.push_back(make_point(config, descriptions, use));
  return points;
}

program::Program program_of(const Point& point) {
  return compile::program_of(point.phase, point.config, point.batch, point.own_seq(), point.step);
}

record::Config config_of(const Point& point) {
  const model::ModelConfig& model = point.config;
  model::Overrides sizes{.arch = model.arch,
                         .layers = model.layers,
                         .heads = model.heads,
                         .kv_heads = model.kv_heads,
                         .d_model = model.d_model,
                         .d_ff = model.d_ff,
                         .vocab = model.padded_vocab,
                         .positions = point.positions};
  // Only where it does not follow from these: records once did not have it.
  if (model.head_dim * model.heads != model.d_model) sizes.head_dim = model.head_dim;
  record::Config config;
  config.set("model", model.name);
  record::write_options(sizes, config);
  visit_options(point, [&](std::string_view key, const auto& member) {
    if (point.step.fp8 || !key.starts_with("fp8_")) record::write_option(key, member, config);
  });
  config.set("params", model::parameter_count(model));
  config.set("padding", model::padding_count(model));
  config.set("threads", resolve_threads(point.threads));
  return config;
}

std::string describe(const Point& point) {
  const auto is_first = [](std::string_view key) {
    constexpr std::string_view kFirst[] = {"batch", "seq", "dtype", "engine", "attention", "device"};
    return std::ranges::find(kFirst, key) != std::end(kFirst);
  };
  std::string text =
      fmt::format("{} B={} T={} {} {} {}", point.config.name, point.batch, point.seq,
                  compile::dtype_name(point.step), name_of(point.step.engine), name_of(point.step.attention));
  record::Config config = config_of(point);
  config.set("threads", point.threads);
  for (const record::Field& field : record::config_fields()) {
    const bool is_told = field.group == "Run" || field.group == "Splitting";
    if (!is_told || is_first(field.key) || config.find(field.key) == nullptr) continue;
    const std::string value = config.text(field.key);
    if (value == field.initial) continue;
    const std::string_view option = field.option.substr(2);
    text += field.type == record::FieldType::flag ? fmt::format(" {}", option)
                                                  : fmt::format(" {}={}", option, value);
  }
  return text;
}

std::unique_ptr<backends::Backend> make_backend(const Point& point) {
  return make_backend(point.device, point.step.engine,
                      {.threads = point.threads,
                       .gemm_search = point.gemm_search,
                       .deterministic = point.deterministic,
                       .sharers = point.device_ranks});
}

}  // namespace rooflm::lab
