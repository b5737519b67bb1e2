// The configuration of a run: one table of fields.
#include "record/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "record/options.h"

namespace rooflm::record {
namespace {

constexpr auto kText = FieldType::text;
constexpr auto kInteger = FieldType::integer;
constexpr auto kNumber = FieldType::number;
constexpr auto kFlag = FieldType::flag;

// clang-format off
constexpr auto kFields = std::to_array<Field>({
    // key, title, type, unit, decides, option, group, values, initial, help
    {"model", "model", kText, "", true, "--model", "Model", "NAME|DIR|FILE", "gpt2",
     "Preset, Hugging Face directory or config.json, or JSON file of sizes"},
    {"arch", "architecture", kText, "", true, "--arch", "Model", "", "", "Architecture, if not the preset's own"},
    {"engine", "engine", kText, "", true, "--engine", "Run", "", "fused", "Op by op, or as fewer, larger kernels in one arena"},
    {"attention", "attention", kText, "", true, "--attention", "Run", "", "",
     "How attention is computed (default: batched in eager, flash in fused)"},
    {"device", "device", kText, "", true, "--device", "Run", "cpu|cuda[:N]|null[:NAME]", "cpu",
     "Device to run on: gpu is cuda, null only plans (default: the fastest one here)"},
    {"dtype", "dtype", kText, "", true, "--dtype", "Run", "", "fp32",
     "Compute dtype; weights and optimizer stay fp32"},
    {"fp8_gradients", "fp8 gradients", kText, "", true, "--fp8-gradients", "Run", "", "e4m3",
     "fp8: format of gradients as GEMM inputs"},
    {"fp8_scaling", "fp8 scaling", kText, "", true, "--fp8-scaling", "Run", "", "delayed",
     "fp8: scale by the maxima of earlier steps, or by the tensor's own maximum"},
    {"fp8_fast_sums", "fp8 fast sums", kText, "", true, "--fp8-fast-sums", "Run", "", "forward",
     "fp8: GEMMs that may accumulate in fewer bits than fp32"},
    {"fp8_weights", "fp8 weights", kText, "", true, "--fp8-weights", "Run", "", "recast",
     "fp8: keep transposed weights for the backward pass, or cast again there to save memory"},
    {"recompute", "recompute", kText, "", true, "--recompute", "Run", "", "none",
     "What the backward pass recomputes"},
    {"phase", "phase", kText, "", true, "--phase", "Run", "", "step",
     "Training step, its forward pass, or generation with a KV cache: B prompts of T tokens, or one more token "
     "of B texts of length T"},
    {"batch", "B", kInteger, "", true, "--batch", "Run", "N", "4", "Sequences per micro-batch, B"},
    {"seq", "T", kInteger, "", true, "--seq", "Run", "N", "64", "Tokens per sequence, T"},
    {"vocab", "V", kInteger, "", true, "--vocab", "Model", "N", "", "Vocabulary, V"},
    {"layers", "L", kInteger, "", true, "--layers", "Model", "N", "", "Transformer layers, L"},
    {"heads", "H", kInteger, "", true, "--heads", "Model", "N", "", "Attention heads, H"},
    {"kv_heads", "K", kInteger, "", true, "--kv-heads", "Model", "N", "", "Key/value heads, K (divides H)"},
    {"d_model", "C", kInteger, "", true, "--d-model", "Model", "N", "", "Model width, C (a multiple of H)"},
    {"head_dim", "D", kInteger, "", true, "--head-dim", "Model", "N", "", "Head size, D (default: C / H)"},
    {"d_ff", "F", kInteger, "", true, "--d-ff", "Model", "N", "", "Feed-forward width, F"},
    {"positions", "positions", kInteger, "", false, "--positions", "Model", "N", "",
     "Longest sequence of the model; for gpt2 the learned positions"},
    {"params", "parameters", kInteger, "", false, "", "", "", "", "Parameters, N"},
    {"padding", "padding", kInteger, "", false, "", "", "", "", "Elements of weights beyond N: padding of the vocabulary"},
    {"grad_accum", "micro-batches", kInteger, "", true, "--grad-accum", "Run", "N", "1",
     "Micro-batches per optimizer step"},
    {"routing", "routing", kText, "", true, "--routing", "Run", "", "learned",
     "Experts of a token: those with the highest scores, equally many tokens per expert, or random experts"},
    {"expert_capacity", "expert capacity", kNumber, "", true, "--expert-capacity", "Run", "X", "0",
     "Capacity factor in training: maximum tokens per expert, relative to the mean; later ones are dropped (0: none)"},
    {"dp", "dp", kInteger, "", true, "--dp", "Splitting", "N", "1",
     "Data-parallel copies of the model, each with its own batch (default: the ranks that other splits leave)"},
    {"zero", "ZeRO", kInteger, "", true, "--zero", "Splitting", "0|1|2|3", "0",
     "What data-parallel ranks shard: 1 optimizer state, 2 also gradients, 3 also weights"},
    {"cp", "cp", kInteger, "", true, "--cp", "Splitting", "N", "1",
     "Context-parallel ranks, which split each sequence and pass keys and values around a ring"},
    {"ep", "ep", kInteger, "", true, "--ep", "Splitting", "N", "1",
     "Expert-parallel ranks among the data-parallel ones; each holds a part of every layer's experts"},
    {"tp", "tp", kInteger, "", true, "--tp", "Splitting", "N", "1", "Tensor-parallel ranks"},
    {"sequence_parallel", "sequence parallel", kFlag, "", true, "--sequence-parallel", "Splitting", "", "no",
     "Split the rows of norms and residuals over the tensor-parallel ranks"},
    {"pp", "pp", kInteger, "", true, "--pp", "Splitting", "N", "1", "Pipeline stages"},
    {"pp_schedule", "pipeline schedule", kText, "", true, "--pipeline-schedule", "Splitting", "", "1f1b",
     "Order of forward and backward passes in a pipeline"},
    {"interleave", "interleave", kInteger, "", true, "--interleave", "Splitting", "N", "1",
     "Model chunks per pipeline stage"},
    {"overlap", "overlap", kText, "", true, "--overlap", "Splitting", "", "auto",
     "Overlap collectives with computation (auto: try both in the first steps and keep the faster; results are the same)"},
    {"collectives", "collectives", kText, "", true, "--collectives", "Splitting", "", "default",
     "How data-parallel GPUs sum and gather: NCCL's default, kernels with few blocks, copies without kernels (auto: what is fastest in the first steps), or peer-memory: updates read the gradients of other ranks where they are (one host)"},
    {"clip", "clip", kNumber, "", true, "--clip", "Run", "X", "1",
     "Maximum global gradient norm (0: no clipping, so that an update can start as soon as its gradient is ready)"},
    {"expert_bias_rate", "expert-bias rate", kNumber, "", true, "--expert-bias-rate", "Run", "X", "0",
     "Change of an expert's routing bias after each step: down with more tokens than the mean, else up (DeepSeek-V3: 0.001)"},
    {"optimizer", "optimizer", kText, "", true, "--optimizer", "Run", "", "adamw",
     "Optimizer; muon and shampoo update the matrices of layers, AdamW (decoupled weight decay) the rest"},
    {"states", "states", kText, "", true, "--states", "Run", "", "fp32",
     "How AdamW's moments are stored; 8bit: in blocks of 256"},
    {"lora", "LoRA", kText, "", true, "--lora", "Run", "RANK[,alpha=A][,rslora][,dora][,targets=q,v|all-linear]", "",
     "Train adapters of that rank on frozen weights; rslora: scaled by alpha / sqrt(RANK); dora: with magnitudes of rows (default: alpha 2 RANK, targets q,v)"},
    {"base", "weights", kText, "", true, "--base", "Run", "", "plain",
     "Storage of the layers' frozen matrices (default: as in the model's files)"},
    {"deterministic", "deterministic", kFlag, "", true, "--nondeterministic", "Run", "", "yes",
     "Let GPUs sum attention gradients in any order where that is faster"},
    {"search_products", "GEMM search", kText, "", false, "--autotune", "Measuring", "", "full",
     "GEMM algorithms on GPUs: the library's first choice, those in the autotune cache, or also autotune those not in it"},
    {"threads", "threads", kInteger, "", false, "--threads", "Run", "N", "0", "Threads (0: one per core)"},
    {"seed", "seed", kInteger, "", false, "--seed", "Run", "N", "0", "Random seed for weights and tokens"},
    {"warmup", "warm-up steps", kInteger, "", false, "--warmup", "Measuring", "N", "2",
     "Warm-up steps, which are discarded"},
});
// clang-format on

/// Of an integer; those that are not in the table begin at 1.
struct Limits {
  std::int64_t least = 1, most = std::numeric_limits<std::int64_t>::max();
};
constexpr std::int64_t kMostRanks = 1 << 24;
constexpr std::pair<std::string_view, Limits> kLimits[] = {{"grad_accum", {.most = 1 << 30}},
                                                           {"dp", {.most = kMostRanks}},
                                                           {"zero", {.least = 0, .most = 3}},
                                                           {"cp", {.most = kMostRanks}},
                                                           {"ep", {.most = kMostRanks}},
                                                           {"tp", {.most = kMostRanks}},
                                                           {"pp", {.most = kMostRanks}},
                                                           {"interleave", {.most = kMostRanks}},
                                                           {"threads", {.least = 0, .most = 4096}},
                                                           {"seed", {.least = 0}},
                                                           {"warmup", {.least = 0, .most = 1'000'000}}};

Limits limits_of(const Field& field) {
  const auto* found = std::ranges::find(kLimits, field.key, &std::pair<std::string_view, Limits>::first);
  return found == std::end(kLimits) ? Limits{} : found->second;
}

std::size_t rank_of(std::string_view key) {
  return static_cast<std::size_t>(std::ranges::find(kFields, key, &Field::key) - kFields.begin());
}

}  // namespace

std::span<const Field> config_fields() { return kFields; }

const Field* find_field(std::string_view key) {
  const auto* found = std::ranges::find(kFields, key, &Field::key);
  return found == kFields.end() ? nullptr : &*found;
}

const Field* find_option(std::string_view option) {
  const auto* found = std::ranges::find(kFields, option, &Field::option);
  return found == kFields.end() ? nullptr : &*found;
}

void Config::set(std::string_view key, Value value) {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  if (found != entries_.end()) {
    found->second = std::move(value);
    return;
  }
  const auto after = std::ranges::find_if(
      entries_, [rank = rank_of(key)](const Entry& entry) { return rank_of(entry.first) > rank; });
  entries_.emplace(after, std::string(key), std::move(value));
}

const Config::Value* Config::find(std::string_view key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  return found == entries_.end() ? nullptr : &found->second;
}

std::string Config::text(std::string_view key) const {
  const Value* value = find(key);
  return value == nullptr ? "" : format_value(*value);
}

std::optional<std::int64_t> Config::integer(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return *integer;
  if (const auto* flag = std::get_if<bool>(value)) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Config::number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

bool Config::flag(std::string_view key) const { return integer(key).value_or(0) != 0; }

std::string format_value(const Config::Value& value) {
  struct Format {
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(std::int64_t integer) const { return std::to_string(integer); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(bool flag) const { return flag ? "yes" : "no"; }
  };
  return std::visit(Format(), value);
}

std::string text_or_initial(const Config& config, const Field& field) {
  const Config::Value* value = config.find(field.key);
  return value == nullptr ? std::string(field.initial) : format_value(*value);
}

std::optional<std::int64_t> integer_of(const Config& config, const Field& field) {
  auto value = config.integer(field.key);
  if (!value && field.initial.empty()) return std::nullopt;
  if (!value) value = std::stoll(std::string(field.initial));
  const Limits limits = limits_of(field);
  if (*value < limits.least)
    throw core::UsageError(fmt::format("{} must be at least {}, got {}", field.option, limits.least, *value));
  if (*value > limits.most)
    throw core::UsageError(fmt::format("{} must be at most {}, got {}", field.option, limits.most, *value));
  return value;
}

double number_of(const Config& config, const Field& field) {
  const auto value = config.number(field.key);
  if (!value) return field.initial.empty() ? 0 : std::stod(std::string(field.initial));
  if (!(*value >= 0) || std::isinf(*value))
    throw core::UsageError(fmt::format("{} {}: expected a number of at least 0", field.option, *value));
  return *value;
}

std::string identity_of(const Config& config) {
  std::string identity;
  for (const Field& field : kFields) {
    if (!field.decides) continue;
    identity.append(field.key).append("=").append(text_or_initial(config, field)).append("\n");
  }
  return identity;
}

}  // namespace rooflm::record
