// The options that choose a model and how it runs.
#include "cli/model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "cli/devices.h"
#include "cli/model_file.h"
#include "cli/values.h"
#include "core/error.h"

namespace rooflm::cli {
namespace {

/// A point before its overrides are applied.
struct Draft {
  Point point;
  model::Overrides overrides;
  std::string dtype;
  std::optional<passes::AttentionKind> attention;
};

CLI::Option* add(CLI::App& app, const char* name, std::string& value, const char* type, const char* text) {
  CLI::Option* option = app.add_option(name, value, text)->type_name(type);
  return value.empty() ? option : option->capture_default_str();
}

template <class Parse>
auto parse_list(const char* option, const std::string& text, Parse parse) {
  const auto names = parse_names(option, text);
  std::vector<decltype(parse(names[0]))> values;
  std::transform(names.begin(), names.end(), std::back_inserter(values), parse);
  return values;
}

void multiply_sizes(std::vector<Draft>& drafts, const ModelOptions& options) {
  using Size = std::optional<std::int64_t> model::Overrides::*;
  const auto size = [&](const char* option, const std::string& text, Size member) {
    multiply(drafts, parse_integers(option, text),
             [member](Draft& draft, std::int64_t value) { draft.overrides.*member = value; });
  };
  multiply(drafts, parse_list("--arch", options.arch, model::parse_arch),
           [](Draft& draft, model::Arch arch) { draft.overrides.arch = arch; });
  size("--layers", options.layers, &model::Overrides::layers);
  size("--heads", options.heads, &model::Overrides::heads);
  size("--kv-heads", options.kv_heads, &model::Overrides::kv_heads);
  size("--d-model", options.d_model, &model::Overrides::d_model);
  size("--d-ff", options.d_ff, &model::Overrides::d_ff);
  size("--vocab", options.vocab, &model::Overrides::vocab);
}

void require_values(const RunOptions& options) {
  for (const auto& [option, text] : {std::pair{"--batch", &options.batch},
                                     {"--seq", &options.seq},
                                     {"--device", &options.device},
                                     {"--recompute", &options.recompute},
                                     {"--grad-accum", &options.grad_accum},
                                     {"--dtype", &options.dtype},
                                     {"--engine", &options.engine}}) {
    if (text->empty()) throw core::UsageError(fmt::format("{} needs a value", option));
  }
}

void multiply_runs(std::vector<Draft>& drafts, const RunOptions& options) {
  require_values(options);
  multiply(drafts, parse_integers("--batch", options.batch),
           [](Draft& draft, std::int64_t value) { draft.point.batch = value; });
  multiply(drafts, parse_integers("--seq", options.seq),
           [](Draft& draft, std::int64_t value) { draft.overrides.seq = draft.point.seq = value; });
  multiply(drafts, parse_list("--device", options.device, parse_device),
           [](Draft& draft, const std::string& value) { draft.point.device = value; });
  multiply(drafts, parse_list("--recompute", options.recompute, passes::parse_recompute),
           [](Draft& draft, passes::Recompute value) { draft.point.step.recompute = value; });
  multiply(drafts, parse_integers("--grad-accum", options.grad_accum), [](Draft& draft, std::int64_t value) {
    if (value > std::numeric_limits<int>::max() / 2) {
      throw core::UsageError(fmt::format("--grad-accum {}: too large", value));
    }
    draft.point.step.micro_batches = static_cast<int>(value);
  });
  multiply(drafts, parse_names("--dtype", options.dtype),
           [](Draft& draft, const std::string& value) { draft.dtype = value; });
  multiply(drafts, parse_list("--engine", options.engine, compile::parse_engine),
           [](Draft& draft, compile::EngineKind value) { draft.point.step.engine = value; });
  multiply(drafts, parse_list("--attention", options.attention, passes::parse_attention),
           [](Draft& draft, passes::AttentionKind value) { draft.attention = value; });
}

/// Refuses sizes whose products would not fit 64 bits, or whose program would not fit memory.
void check_magnitude(const model::ModelConfig& config, const Point& point) {
  constexpr double kMostElements = 0x1p50;
  constexpr std::int64_t kMostLayers = 100'000;
  const auto c = static_cast<double>(config.d_model);
  const auto f = static_cast<double>(config.d_ff);
  const auto v = static_cast<double>(config.padded_vocab);
  const auto layers = static_cast<double>(config.layers);
  const double parameters = layers * (4 * c * c + 3 * c * f) + 2 * v * c;
  const double tokens = static_cast<double>(point.batch) * static_cast<double>(point.seq);
  const double scores = static_cast<double>(config.heads) * static_cast<double>(point.seq);
  const double widest = std::max({c, f, v, scores});
  if (parameters > kMostElements || tokens * widest > kMostElements) {
    throw core::UsageError("sizes beyond 2^50 elements in a tensor or a model are not supported");
  }
  if (config.layers > kMostLayers / point.step.micro_batches) {
    throw core::UsageError(fmt::format("--layers {} times --grad-accum {}: at most {} layers can be planned",
                                       config.layers, point.step.micro_batches, kMostLayers));
  }
}

void check_positions(const Point& point) {
  const std::int64_t longest = point.config.max_seq;
  if (longest > 0 && point.seq > longest) {
    throw core::UsageError(
        fmt::format("--seq {} is beyond the {} positions of {}", point.seq, longest, point.config.name));
  }
}

/// Sizes as the overrides would make them, before anything is derived from them.
model::ModelConfig rough_config(model::ModelConfig config, const model::Overrides& o) {
  config.layers = o.layers.value_or(config.layers);
  config.heads = o.heads.value_or(config.heads);
  config.d_model = o.d_model.value_or(config.d_model);
  config.d_ff = o.d_ff.value_or(config.d_ff);
  config.padded_vocab = o.vocab.value_or(config.padded_vocab);
  return config;
}

Point finish(Draft draft) {
  Point point = std::move(draft.point);
  check_magnitude(rough_config(point.config, draft.overrides), point);
  point.config = model::with_overrides(point.config, draft.overrides);
  const ComputeDtype compute = parse_compute_dtype(draft.dtype, point.device);
  point.step.dtype = compute.dtype;
  point.step.tf32 = compute.tf32;
  fit_to_device(point.step, point.device);
  point.step.attention = draft.attention.value_or(compile::default_attention(point.step.engine));
  check_positions(point);
  return point;
}

}  // namespace

void ModelOptions::add_to(CLI::App& app) {
  add(app, "--model", model, "NAME|DIR|FILE", "Preset, Hugging Face directory, or JSON file of sizes")
      ->group("Model");
  add(app, "--arch", arch, "gpt2|llama", "Build the size in this kind")->group("Model");
  add(app, "--layers", layers, "N", "Transformer layers, L")->group("Model");
  add(app, "--heads", heads, "N", "Attention heads, H")->group("Model");
  add(app, "--kv-heads", kv_heads, "N", "Key/value heads, K (divides H)")->group("Model");
  add(app, "--d-model", d_model, "N", "Model width, C (a multiple of H)")->group("Model");
  add(app, "--d-ff", d_ff, "N", "Feed-forward width, F")->group("Model");
  add(app, "--vocab", vocab, "N", "Vocabulary, V")->group("Model");
}

void RunOptions::add_to(CLI::App& app) {
  add(app, "--batch", batch, "N", "Sequences per micro-batch, B")->group("Run");
  add(app, "--seq", seq, "N", "Tokens per sequence, T")->group("Run");
  add(app, "--engine", engine, "eager|fused", "How ops run")->group("Run");
  add(app, "--attention", attention, "looped|batched|flash",
      "How attention is computed (default: batched in eager, flash in fused)")
      ->group("Run");
  add(app, "--dtype", dtype, "fp32|tf32|bf16|fp16|fp8", "Compute dtype; weights and optimizer stay fp32")
      ->group("Run");
  add(app, "--device", device, "cpu|cuda[:N]|null", "Where it runs; null only plans")->group("Run");
  add(app, "--recompute", recompute, "none|selective|full", "What the backward pass computes again")
      ->group("Run");
  add(app, "--grad-accum", grad_accum, "N", "Micro-batches per optimizer step")->group("Run");
}

void MachineOptions::add_to(CLI::App& app) {
  add(app, "--seed", seed, "N", "Of weights and tokens")->group("Run");
  add(app, "--threads", threads, "N", "Threads (0: one per core)")->group("Run");
}

std::uint64_t MachineOptions::seed_value() const {
  return static_cast<std::uint64_t>(parse_integer("--seed", seed, 0));
}

int MachineOptions::thread_count() const {
  constexpr std::int64_t kMostThreads = 4096;
  const std::int64_t value = parse_integer("--threads", threads, 0);
  if (value > kMostThreads) {
    throw core::UsageError(fmt::format("--threads must be at most {}, got {}", kMostThreads, value));
  }
  return static_cast<int>(value);
}

std::vector<Point> sweep(const ModelOptions& model, const RunOptions& run) {
  std::vector<Draft> drafts(1);
  multiply(drafts, parse_list("--model", model.model, find_model),
           [](Draft& draft, const model::ModelConfig& config) { draft.point.config = config; });
  multiply_sizes(drafts, model);
  multiply_runs(drafts, run);
  std::vector<Point> points;
  std::transform(drafts.begin(), drafts.end(), std::back_inserter(points), finish);
  return points;
}

Point single_point(const ModelOptions& model, const RunOptions& run) {
  const auto points = sweep(model, run);
  if (points.size() != 1) {
    throw core::UsageError(fmt::format("takes a single configuration, the options name {}", points.size()));
  }
  return points.front();
}

std::string describe(const Point& point) {
  std::string text = fmt::format("{} B={} T={} {} {} {}", point.config.name, point.batch, point.seq,
                                 compile::dtype_name(point.step), compile::name_of(point.step.engine),
                                 passes::name_of(point.step.attention));
  if (point.step.recompute != passes::Recompute::none) {
    text += fmt::format(" recompute={}", passes::name_of(point.step.recompute));
  }
  if (point.step.micro_batches > 1) text += fmt::format(" grad-accum={}", point.step.micro_batches);
  return text;
}

}  // namespace rooflm::cli
