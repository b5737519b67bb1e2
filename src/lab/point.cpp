// One configuration of a run: from the fields that were typed to a model, a recipe and a device.
#include "lab/point.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/names.h"
#include "lab/devices.h"
#include "lab/model_file.h"
#include "model/forward.h"
#include "perfmodel/device_fit.h"

namespace rooflm::lab {
namespace {

/// The values of a configuration, with the table's initial values for those that are absent.
class Values {
 public:
  explicit Values(const record::Config& config) : config_(&config) {}

  [[nodiscard]] std::string text(std::string_view key) const {
    return config_->find(key) != nullptr ? config_->text(key) : std::string(field(key).initial);
  }
  /// Nothing when the value follows from other fields.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key, std::int64_t least = 1) const {
    auto value = config_->integer(key);
    if (!value && field(key).initial.empty()) return std::nullopt;
    if (!value) value = std::stoll(std::string(field(key).initial));
    if (*value < least) {
      throw core::UsageError(fmt::format("{} must be at least {}, got {}", field(key).option, least, *value));
    }
    return value;
  }
  [[nodiscard]] std::int64_t integer_up_to(std::string_view key, std::int64_t least,
                                           std::int64_t most) const {
    const std::int64_t value = integer(key, least).value_or(least);
    if (value > most) {
      throw core::UsageError(fmt::format("{} must be at most {}, got {}", field(key).option, most, value));
    }
    return value;
  }
  [[nodiscard]] double number(std::string_view key) const {
    if (const auto value = config_->number(key)) return *value;
    const std::string initial(field(key).initial);
    return initial.empty() ? 0 : std::stod(initial);
  }
  [[nodiscard]] bool flag(std::string_view key) const {
    return config_->find(key) != nullptr ? config_->flag(key) : field(key).initial == "yes";
  }

 private:
  static const record::Field& field(std::string_view key) { return *record::find_field(key); }
  const record::Config* config_;
};

model::Overrides overrides_of(const Values& values) {
  model::Overrides overrides;
  if (const std::string arch = values.text("arch"); !arch.empty()) overrides.arch = model::parse_arch(arch);
  overrides.layers = values.integer("layers");
  overrides.heads = values.integer("heads");
  overrides.kv_heads = values.integer("kv_heads");
  overrides.d_model = values.integer("d_model");
  overrides.d_ff = values.integer("d_ff");
  overrides.vocab = values.integer("vocab");
  overrides.head_dim = values.integer("head_dim");
  overrides.positions = values.integer("positions");
  overrides.seq = values.integer("seq");
  return overrides;
}

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
  std::string lacking = model::uncomputed(point.config, point.seq);
  const bool has_experts = point.config.experts.count > 0;
  if (has_experts && backends::provider_of(point.device).describe(point.device).kind == devices::Kind::gpu)
    lacking = "experts on GPUs";
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

compile::Sharding sharding_of(const Values& values) {
  constexpr std::int64_t kMostRanks = 1 << 24;
  const auto degree = [&](const char* key) {
    return static_cast<int>(values.integer_up_to(key, 1, kMostRanks));
  };
  return {.data = degree("dp"),
          .context = degree("cp"),
          .zero = static_cast<int>(values.integer_up_to("zero", 0, 3)),
          .tensor = degree("tp"),
          .sequence_parallel = values.flag("sequence_parallel"),
          .pipeline = degree("pp"),
          .schedule = compile::parse_schedule(values.text("pp_schedule")),
          .interleave = degree("interleave")};
}

/// Gradients must stay where they are until all ranks have read them: in an arena.
bool sums_in_update(const Point& point) {
  if (point.collectives.way != backends::CollectiveWay::peer_memory) return false;
  if (point.step.engine == compile::EngineKind::fused) return point.step.sharding.data_ranks() > 1;
  throw core::UsageError("--collectives peer-memory needs --engine fused");
}

/// Ranks that share sequences take turns at blocks of flash attention, in both engines.
passes::AttentionKind attention_of(const Values& values, const compile::StepOptions& step) {
  const std::string name = values.text("attention");
  const bool is_shared = step.sharding.context > 1;
  if (name.empty()) return is_shared ? passes::AttentionKind::flash : compile::default_attention(step.engine);
  const passes::AttentionKind kind = passes::parse_attention(name);
  if (is_shared && kind != passes::AttentionKind::flash)
    throw core::UsageError(
        fmt::format("--cp {} requires --attention flash, not {}", step.sharding.context, name));
  return kind;
}

RunPhase parse_phase(const std::string& name) {
  std::vector<std::string> names;
  for (const RunPhase phase : {RunPhase::step, RunPhase::forward, RunPhase::decode}) {
    if (name == name_of(phase)) return phase;
    names.emplace_back(name_of(phase));
  }
  throw core::UsageError(core::unknown_name("phase", name, names));
}

/// How the point runs, without its model and what its device decides.
Point run_of(const Values& values) {
  constexpr std::int64_t kMostThreads = 4096;
  constexpr std::int64_t kMostSteps = 1'000'000;
  Point point;
  point.batch = values.integer("batch").value_or(1);
  point.seq = values.integer("seq").value_or(1);
  point.device = parse_device(values.text("device"));
  point.step.recompute = passes::parse_recompute(values.text("recompute"));
  const std::int64_t micro_batches = values.integer("grad_accum").value_or(1);
  if (micro_batches > std::numeric_limits<int>::max() / 2) {
    throw core::UsageError(fmt::format("--grad-accum {}: too large", micro_batches));
  }
  point.step.micro_batches = static_cast<int>(micro_batches);
  point.step.engine = compile::parse_engine(values.text("engine"));
  point.step.sharding = sharding_of(values);
  point.step.attention = attention_of(values, point.step);
  point.phase = parse_phase(values.text("phase"));
  if (point.phase != RunPhase::step && point.step.micro_batches > 1) {
    throw core::UsageError(fmt::format("--phase {} has no gradients to accumulate: leave out --grad-accum",
                                       name_of(point.phase)));
  }
  point.step.optimizer.clip_norm = values.number("clip");
  point.step.fp8_options = {.gradients = passes::parse_fp8_gradients(values.text("fp8_gradients")),
                            .scaling = passes::parse_fp8_scaling(values.text("fp8_scaling")),
                            .fast_sums = passes::parse_fp8_fast_sums(values.text("fp8_fast_sums")),
                            .weights = passes::parse_fp8_weights(values.text("fp8_weights"))};
  point.threads = static_cast<int>(values.integer_up_to("threads", 0, kMostThreads));
  point.seed = static_cast<std::uint64_t>(values.integer("seed", 0).value_or(0));
  point.warmup = static_cast<int>(std::min(values.integer("warmup", 0).value_or(0), kMostSteps));
  point.deterministic = values.flag("deterministic");
  point.collectives = {.overlap = train::parse_overlap(values.text("overlap")),
                       .way = backends::parse_collectives(values.text("collectives"))};
  point.step.rewrites.set(compile::Rewrite::sum_in_update, sums_in_update(point));
  point.gemm_search = backends::parse_gemm_search(values.text("search_products"));
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
  const Values values(config);
  const model::ModelConfig sizes = find_model(values.text("model"));
  const model::Overrides overrides = overrides_of(values);
  Point point = run_of(values);
  check_magnitude(rough_config(sizes, overrides), point);
  point.config = model::with_overrides(sizes, overrides);
  point.positions = overrides.positions;
  const devices::Device& device = descriptions.of(point.device);
  const ComputeDtype compute = parse_compute_dtype(values.text("dtype"), point.device, device);
  set_compute_dtype(point.step, compute);
  perfmodel::fit_to_device(point.step, device);
  check_positions(point);
  if (use == ModelUse::compute) check_kernels(point);
  compile::check(point.step.sharding, point.config, point.batch, point.seq, point.step.micro_batches);
  const compile::Sharding& split = point.step.sharding;
  if (point.phase == RunPhase::forward && split.ranks() > 1)
    throw core::UsageError("--phase forward runs on one rank: leave out --dp, --cp, --tp and --pp");
  if (point.phase == RunPhase::decode && (split.context > 1 || split.pipeline > 1 || split.zero > 0))
    throw core::UsageError("--phase decode: only --dp (texts) and --tp (layers) can split it");
  return point;
}

}  // namespace

std::string_view name_of(RunPhase phase) {
  switch (phase) {
    case RunPhase::step:
      return "step";
    case RunPhase::forward:
      return "forward";
    case RunPhase::decode:
      return "decode";
  }
  return "?";
}

std::vector<Point> make_points(std::span<const record::Config> configs, ModelUse use) {
  Descriptions descriptions;
  std::vector<Point> points;
  points.reserve(configs.size());
  for (const record::Config& config : configs) points.push_back(make_point(config, descriptions, use));
  return points;
}

program::Program program_of(const Point& point) {
  if (point.phase == RunPhase::decode) {
    const model::CacheSize size{.batch = point.batch, .positions = point.seq};
    return compile::inference_step(model::decode(point.config, size, point.seq), point.step);
  }
  program::Program forward = model::forward(point.config, point.batch, point.own_seq());
  return point.phase == RunPhase::forward ? compile::inference_step(std::move(forward), point.step)
                                          : compile::training_step(std::move(forward), point.step);
}

record::Config config_of(const Point& point) {
  const model::ModelConfig& model = point.config;
  record::Config config;
  config.set("model", model.name);
  config.set("arch", model::name_of(model.arch));
  config.set("engine", compile::name_of(point.step.engine));
  config.set("attention", passes::name_of(point.step.attention));
  config.set("device", point.device);
  config.set("dtype", compile::dtype_name(point.step));
  if (point.step.fp8) {
    config.set("fp8_gradients", name_of(point.step.fp8_options.gradients));
    config.set("fp8_scaling", name_of(point.step.fp8_options.scaling));
    config.set("fp8_fast_sums", name_of(point.step.fp8_options.fast_sums));
    config.set("fp8_weights", name_of(point.step.fp8_options.weights));
  }
  config.set("recompute", passes::name_of(point.step.recompute));
  config.set("phase", name_of(point.phase));
  config.set("batch", point.batch);
  config.set("seq", point.seq);
  config.set("vocab", model.padded_vocab);
  config.set("layers", model.layers);
  config.set("heads", model.heads);
  config.set("kv_heads", model.kv_heads);
  config.set("d_model", model.d_model);
  // Only where it does not follow from these: records once did not have it.
  if (model.head_dim * model.heads != model.d_model) config.set("head_dim", model.head_dim);
  config.set("d_ff", model.d_ff);
  if (point.positions) config.set("positions", *point.positions);
  config.set("params", model::parameter_count(model));
  config.set("padding", model::padding_count(model));
  config.set("grad_accum", point.step.micro_batches);
  config.set("clip", point.step.optimizer.clip_norm);
  const compile::Sharding& split = point.step.sharding;
  config.set("dp", split.data);
  config.set("zero", split.zero);
  config.set("cp", split.context);
  config.set("tp", split.tensor);
  config.set("sequence_parallel", split.sequence_parallel);
  config.set("pp", split.pipeline);
  config.set("pp_schedule", compile::name_of(split.schedule));
  config.set("interleave", split.interleave);
  config.set("overlap", train::name_of(point.collectives.overlap));
  config.set("collectives", backends::name_of(point.collectives.way));
  config.set("deterministic", point.deterministic);
  config.set("search_products", backends::name_of(point.gemm_search));
  config.set("threads", resolve_threads(point.threads));
  config.set("seed", static_cast<std::int64_t>(point.seed));
  config.set("warmup", point.warmup);
  return config;
}

std::string describe(const Point& point) {
  std::string text = fmt::format("{} B={} T={} {} {} {}", point.config.name, point.batch, point.seq,
                                 compile::dtype_name(point.step), compile::name_of(point.step.engine),
                                 passes::name_of(point.step.attention));
  if (point.step.fp8) {
    const passes::Fp8Options& fp8 = point.step.fp8_options;
    const passes::Fp8Options usual;
    if (fp8.gradients != usual.gradients) text += fmt::format(" fp8-gradients={}", name_of(fp8.gradients));
    if (fp8.scaling != usual.scaling) text += fmt::format(" fp8-scaling={}", name_of(fp8.scaling));
    if (fp8.weights != usual.weights) text += fmt::format(" fp8-weights={}", name_of(fp8.weights));
    if (fp8.fast_sums != usual.fast_sums) text += fmt::format(" fp8-fast-sums={}", name_of(fp8.fast_sums));
  }
  if (point.step.recompute != passes::Recompute::none) {
    text += fmt::format(" recompute={}", passes::name_of(point.step.recompute));
  }
  if (point.phase != RunPhase::step) text += fmt::format(" {}", name_of(point.phase));
  if (point.step.micro_batches > 1) text += fmt::format(" grad-accum={}", point.step.micro_batches);
  if (point.step.optimizer.clip_norm != 1) text += fmt::format(" clip={}", point.step.optimizer.clip_norm);
  const compile::Sharding& split = point.step.sharding;
  if (split.data > 1) text += fmt::format(" dp={}", split.data);
  if (split.zero > 0) text += fmt::format(" zero={}", split.zero);
  if (split.context > 1) text += fmt::format(" cp={}", split.context);
  if (split.tensor > 1) text += fmt::format(" tp={}{}", split.tensor, split.sequence_parallel ? " sp" : "");
  if (split.pipeline > 1) text += fmt::format(" pp={}", split.pipeline);
  if (split.interleave > 1) text += fmt::format(" interleave={}", split.interleave);
  if (split.ranks() > 1 && point.collectives.overlap != train::Overlap::measured)
    text += fmt::format(" overlap={}", train::name_of(point.collectives.overlap));
  if (split.ranks() > 1 && point.collectives.way)
    text += fmt::format(" collectives={}", backends::name_of(point.collectives.way));
  if (!point.deterministic) text += " nondeterministic";
  if (point.threads > 0) text += fmt::format(" threads={}", point.threads);
  if (point.seed != 0) text += fmt::format(" seed={}", point.seed);
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
