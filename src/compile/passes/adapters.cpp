// Adapters of low rank beside frozen weights (Hu et al., "LoRA", 2021).
#include "compile/passes/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "compile/passes/words.h"
#include "core/error.h"
#include "core/names.h"
#include "model/huggingface_layout.h"
#include "model/parameters.h"

namespace rooflm::passes {
namespace {

using core::UsageError;

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kEnding = ".weight";

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// A number above 0 that takes all of `word`.
template <class T>
T positive(std::string_view word, std::string_view text, const char* what) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_number = error == std::errc() && end == word.data() + word.size();
  if (!is_number || !(value > 0) || !std::isfinite(static_cast<double>(value)))
    throw UsageError(fmt::format("--lora {}: {} is '{}', expected a {} above 0", text, what, word,
                                 std::is_integral_v<T> ? "whole number" : "number"));
  return value;
}

/// The parameter rows that a file tensor holds in their order, or nothing.
std::optional<std::int64_t> first_row(const model::FileTensor& tensor) {
  const std::vector<model::Run>& runs = tensor.pieces.front().runs;
  std::int64_t done = 0;
  for (const model::Run& run : runs) {
    if (run.file_row != done || run.row != runs.front().row + done || run.file_step != 1) return std::nullopt;
    done += run.count;
  }
  return runs.front().row;
}

/// A matrix of the layers that a file has as a module of its own.
struct Module {
  std::string path, name;  ///< "model.layers.0.self_attn.q_proj", "q_proj"
  const model::FileTensor* tensor = nullptr;
  const model::Parameter* parameter = nullptr;
};

/// Weights of layers that one matmul reads; experts and their router are not among them.
bool is_matrix(const model::Parameter& parameter) {
  return parameter.shape.rank() == 2 && parameter.name.starts_with("h.") &&
         parameter.name.ends_with(kEnding) && parameter.name.find("norm") == std::string::npos &&
         parameter.name.find("router") == std::string::npos;
}

std::vector<Module> modules_of(const std::vector<model::FileTensor>& tensors,
                               const std::vector<model::Parameter>& parameters) {
  std::vector<Module> modules;
  for (const model::FileTensor& tensor : tensors) {
    if (tensor.pieces.size() != 1 || !tensor.name.ends_with(kEnding) || tensor.matrices != 1) continue;
    const model::Parameter& parameter = parameters[tensor.pieces.front().parameter];
    if (!is_matrix(parameter)) continue;
    const std::string path = tensor.name.substr(0, tensor.name.size() - kEnding.size());
    modules.push_back({path, path.substr(path.rfind('.') + 1), &tensor, &parameter});
  }
  return modules;
}

bool is_named(const Module& module, std::string_view target) {
  return module.name == target || module.name == std::string(target) + "_proj";
}

bool has_module(const std::vector<Module>& modules, std::string_view target) {
  return std::ranges::any_of(modules, [&](const Module& module) { return is_named(module, target); });
}

/// Keeps the targets of `options`.
void choose(std::vector<Module>& modules, const LoraOptions& options, std::string_view text,
            const model::ModelConfig& config) {
  std::vector<std::string> targets = options.targets;
  if (targets == std::vector{std::string(kAllLinear)}) return;
  if (targets.empty() && has_module(modules, "q") && has_module(modules, "v")) targets = {"q", "v"};
  std::set<std::string> names;
  for (const Module& module : modules) names.insert(module.name);
  for (const std::string& target : targets) {
    if (has_module(modules, target)) continue;
    std::vector<std::string> known(names.begin(), names.end());
    known.emplace_back(kAllLinear);
    throw UsageError(
        fmt::format("--lora {}: {}: {}", text, config.name, core::unknown_name("target", target, known)));
  }
  std::erase_if(modules, [&](const Module& module) {
    if (targets.empty()) return module.parameter->name.find("attention.qkv.") == std::string::npos;
    return std::ranges::none_of(targets, [&](const std::string& target) { return is_named(module, target); });
  });
  if (modules.empty()) {
    throw UsageError(fmt::format("--lora {}: {} has no q and v; name targets of {}", text, config.name,
                                 fmt::join(names, ", ")));
  }
}

/// Adds the adapters of one matmul after it, or after its bias.
class AdapterWriter {
 public:
  AdapterWriter(Program& program, const std::vector<Adapter>& adapters) : program_(&program) {
    for (const Adapter& adapter : adapters) adapters_[adapter.weight].push_back(&adapter);
    renamed_.resize(program.tensors.size());
    for (std::size_t i = 0; i < renamed_.size(); ++i) renamed_[i] = static_cast<TensorId>(i);
  }

  void run() {
    std::vector<Op> ops = std::move(program_->ops);
    program_->ops.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (TensorId& id : ops[i].inputs)
        if (id != program::kNone) id = renamed_[static_cast<std::size_t>(id)];
      const Op op = ops[i];
      program_->ops.push_back(op);
      const bool has_bias = i + 1 < ops.size() && ops[i + 1].is(ops::kBiasAdd) && !op.outputs.empty() &&
                            ops[i + 1].inputs[0] == op.outputs[0];
      const std::vector<const Adapter*>* adapters = adapters_of(op);
      if (adapters == nullptr) continue;
      TensorId y = op.outputs[0];
      if (has_bias) {
        program_->ops.push_back(ops[++i]);
        y = ops[i].outputs[0];
      }
      TensorId sum = y;
      for (const Adapter* adapter : *adapters) sum = add(op, *adapter, sum);
      renamed_.resize(program_->tensors.size(), program::kNone);
      renamed_[static_cast<std::size_t>(y)] = sum;
    }
  }

 private:
  [[nodiscard]] const std::vector<const Adapter*>* adapters_of(const Op& op) const {
    if (!op.is(ops::kMatmul)) return nullptr;
    const auto found = adapters_.find(program_->tensor(op.inputs[1]).name);
    return found == adapters_.end() ? nullptr : &found->second;
  }

  TensorId weight(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const auto [entry, is_new] = weights_.try_emplace(name, program::kNone);
    if (is_new) {
      entry->second = program_->add_tensor(
          {.name = name, .shape = {rows, columns}, .role = Role::weight, .full_precision = true});
    }
    return entry->second;
  }

  TensorId append(const Op& like, const program::OpDef& def, std::vector<TensorId> inputs, Attributes attrs,
                  const char* name, const core::Shape& shape) {
    Op op;
    op.def = &def;
    op.inputs = std::move(inputs);
    op.attrs = std::move(attrs);
    op.phase = like.phase;
    op.scope = like.scope + "/" + name;
    return program_->append(std::move(op), program_->tensor(like.outputs[0]).name + "." + name, {shape})
        .at(0);
  }

  /// y + factor (x A^T) B^T in the adapter's columns.
  TensorId add(const Op& like, const Adapter& adapter, TensorId y) {
    const std::int64_t rows = like.attrs.integer("m");
    const auto product = [&](std::int64_t n, std::int64_t k) {
      return Attributes{
          {"batch", std::int64_t{1}}, {"m", rows},           {"n", n},         {"k", k}, {"trans_a", false},
          {"trans_b", true},          {"accumulate", false}, {"looped", false}};
    };
    const TensorId a = weight(adapter.a(), adapter.rank, adapter.in);
    const TensorId b = weight(adapter.b(), adapter.out, adapter.rank);
    const TensorId low = append(like, ops::kMatmul, {like.inputs[0], a}, product(adapter.rank, adapter.in),
                                "lora_a", {rows, adapter.rank});
    const TensorId high = append(like, ops::kMatmul, {low, b}, product(adapter.out, adapter.rank), "lora_b",
                                 {rows, adapter.out});
    const Attributes place{{"at", adapter.first}, {"n", adapter.out}, {"factor", adapter.factor}};
    return append(like, ops::kAddColumns, {y, high}, place, "lora_add", program_->shape(y));
  }

  Program* program_;
  std::map<std::string, std::vector<const Adapter*>> adapters_;
  std::map<std::string, TensorId> weights_;
  std::vector<TensorId> renamed_;  ///< by tensor: what later ops read instead
};

}  // namespace

LoraOptions parse_lora(std::string_view text) {
  LoraOptions options;
  const std::vector<std::string> words = split(text);
  options.rank = positive<std::int64_t>(words.front(), text, "the rank");
  options.alpha = 2 * static_cast<double>(options.rank);
  bool is_target = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equal = words[i].find('=');
    const std::string key = words[i].substr(0, equal);
    if (equal == std::string::npos && is_target) {
      options.targets.push_back(words[i]);
      continue;
    }
    is_target = key == "targets";
    if (equal == std::string::npos || (key != "alpha" && !is_target))
      throw UsageError(fmt::format("--lora {}: expected RANK[,alpha=A][,targets=q,v|all-linear], got '{}'",
                                   text, words[i]));
    const std::string value = words[i].substr(equal + 1);
    if (is_target) {
      options.targets.push_back(value);
    } else {
      options.alpha = positive<double>(value, text, "alpha");
    }
  }
  return options;
}

std::vector<Adapter> find_adapters(const model::ModelConfig& config, std::string_view lora) {
  std::vector<Adapter> adapters;
  if (lora.empty()) return adapters;
  const LoraOptions options = parse_lora(lora);
  const std::vector<model::Parameter> parameters = model::parameters(config);
  const std::vector<model::FileTensor> tensors = model::file_tensors(parameters, config);
  std::vector<Module> modules = modules_of(tensors, parameters);
  choose(modules, options, lora, config);
  for (const Module& module : modules) {
    const std::int64_t out = module.tensor->rows;
    const std::int64_t in = module.tensor->width;
    if (options.rank > std::min(out, in)) {
      throw UsageError(fmt::format("--lora {}: the rank is above the {} of {}, which is {} x {}", lora,
                                   out < in ? "rows" : "columns", module.path, out, in));
    }
    const std::optional<std::int64_t> first = first_row(*module.tensor);
    if (!first) {
      throw core::Unavailable(
          fmt::format("--lora {}: files of {} have the rows of {} in another order; name other targets", lora,
                      config.name, module.path));
    }
    adapters.push_back({.module = module.path,
                        .weight = module.parameter->name,
                        .first = *first,
                        .out = out,
                        .in = in,
                        .rank = options.rank,
                        .factor = options.alpha / static_cast<double>(options.rank),
                        .transposed = module.tensor->transposed});
  }
  return adapters;
}

void add_adapters(Program& forward, const std::vector<Adapter>& adapters) {
  AdapterWriter(forward, adapters).run();
}

bool is_adapter(std::string_view weight) { return weight.find(".lora_") != std::string_view::npos; }

void freeze(Program& step, program::GradientMap& gradients) {
  std::vector<bool> is_needed(step.tensors.size(), false);
  for (TensorId id = 0; id < static_cast<TensorId>(step.tensors.size()); ++id) {
    const program::Tensor& tensor = step.tensor(id);
    const TensorId gradient = tensor.role == Role::weight ? gradients.of(id) : program::kNone;
    if (gradient == program::kNone) continue;
    if (is_adapter(tensor.name)) {
      is_needed[static_cast<std::size_t>(gradient)] = true;
    } else {  // norms still write theirs, for it comes with the gradient of what they read
      step.tensor(gradient).role = Role::activation_gradient;
      gradients.set(id, program::kNone);
    }
  }
  const auto needs = [&](TensorId id) {
    return id != program::kNone &&
           (is_needed[static_cast<std::size_t>(id)] || program::is_persistent(step.tensor(id).role));
  };
  std::vector<bool> is_kept(step.ops.size(), true);
  for (std::size_t i = step.ops.size(); i-- > 0;) {
    const Op& op = step.ops[i];
    is_kept[i] = op.phase != program::Phase::backward || std::ranges::any_of(op.outputs, needs);
    if (!is_kept[i]) continue;
    for (const TensorId id : op.inputs)
      if (id != program::kNone) is_needed[static_cast<std::size_t>(id)] = true;
  }
  std::size_t at = 0;
  std::erase_if(step.ops, [&](const Op& /*op*/) { return !is_kept[at++]; });
}

}  // namespace rooflm::passes
