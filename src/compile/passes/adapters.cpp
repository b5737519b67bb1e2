// Adapters of low rank beside frozen weights (Hu et al., "LoRA", 2021).
#include "compile/passes/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

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

/// Weights of layers that one matmul reads; experts and their router are not among them.
bool is_matrix(const model::Parameter& parameter) {
  return parameter.shape.rank() == 2 && parameter.name.starts_with("h.") &&
         parameter.name.ends_with(kEnding) && parameter.name.find("norm") == std::string::npos &&
         parameter.name.find("router") == std::string::npos;
}

std::string name_of_module(const Adapter& module) {
  return module.module.substr(module.module.rfind('.') + 1);
}

bool is_named(const Adapter& module, std::string_view target) {
  const std::string name = name_of_module(module);
  return name == target || name == std::string(target) + "_proj";
}

bool has_module(const std::vector<Adapter>& modules, std::string_view target) {
  return std::ranges::any_of(modules, [&](const Adapter& module) { return is_named(module, target); });
}

/// Keeps the targets of `options`.
void choose(std::vector<Adapter>& modules, const LoraOptions& options, std::string_view text,
            const model::ModelConfig& config) {
  std::vector<std::string> targets = options.targets;
  if (targets == std::vector{std::string(kAllLinear)}) return;
  if (targets.empty() && has_module(modules, "q") && has_module(modules, "v")) targets = {"q", "v"};
  std::set<std::string> names;
  for (const Adapter& module : modules) names.insert(name_of_module(module));
  for (const std::string& target : targets) {
    if (has_module(modules, target)) continue;
    std::vector<std::string> known(names.begin(), names.end());
    known.emplace_back(kAllLinear);
    throw UsageError(
        fmt::format("--lora {}: {}: {}", text, config.name, core::unknown_name("target", target, known)));
  }
  std::erase_if(modules, [&](const Adapter& module) {
    if (targets.empty()) return module.weight.find("attention.qkv.") == std::string::npos;
    return std::ranges::none_of(targets, [&](const std::string& target) { return is_named(module, target); });
  });
  if (modules.empty()) {
    throw UsageError(fmt::format("--lora {}: {} has no q and v; name targets of {}", text, config.name,
                                 fmt::join(names, ", ")));
  }
}

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
    if (words[i] == "rslora" || words[i] == "dora") {
      (words[i] == "dora" ? options.is_dora : options.is_rank_stabilised) = true;
      is_target = false;
      continue;
    }
    if (equal == std::string::npos && is_target) {
      options.targets.push_back(words[i]);
      continue;
    }
    is_target = key == "targets";
    if (equal == std::string::npos || (key != "alpha" && !is_target))
      throw UsageError(
          fmt::format("--lora {}: expected RANK[,alpha=A][,rslora][,dora][,targets=q,v|all-linear], got '{}'",
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

double Adapter::factor() const {
  const auto r = static_cast<double>(rank);
  return alpha / (is_rank_stabilised ? std::sqrt(r) : r);
}

std::vector<Adapter> adaptable_modules(const model::ModelConfig& config) {
  const std::vector<model::Parameter> parameters = model::parameters(config);
  std::vector<Adapter> modules;
  for (const model::FileTensor& tensor : model::file_tensors(parameters, config)) {
    if (tensor.pieces.size() != 1 || !tensor.name.ends_with(kEnding) || tensor.matrices != 1) continue;
    const model::Parameter& parameter = parameters[tensor.pieces.front().parameter];
    if (!is_matrix(parameter)) continue;
    modules.push_back({.module = tensor.name.substr(0, tensor.name.size() - kEnding.size()),
                       .weight = parameter.name,
                       .first = first_row(tensor).value_or(-1),
                       .out = tensor.rows,
                       .in = tensor.width,
                       .transposed = tensor.transposed});
  }
  return modules;
}

std::vector<Adapter> find_adapters(const model::ModelConfig& config, std::string_view lora) {
  if (lora.empty()) return {};
  const LoraOptions options = parse_lora(lora);
  std::vector<Adapter> adapters = adaptable_modules(config);
  choose(adapters, options, lora, config);
  for (Adapter& adapter : adapters) {
    if (options.rank > std::min(adapter.out, adapter.in)) {
      throw UsageError(fmt::format("--lora {}: the rank is above the {} of {}, which is {} x {}", lora,
                                   adapter.out < adapter.in ? "rows" : "columns", adapter.module, adapter.out,
                                   adapter.in));
    }
    if (adapter.first < 0) {
      throw core::Unavailable(
          fmt::format("--lora {}: files of {} have the rows of {} in another order; name other targets", lora,
                      config.name, adapter.module));
    }
    adapter.rank = options.rank;
    adapter.alpha = options.alpha;
    adapter.is_rank_stabilised = options.is_rank_stabilised;
    adapter.is_dora = options.is_dora;
  }
  return adapters;
}

bool is_adapter(std::string_view weight) { return weight.find(".lora_") != std::string_view::npos; }

}  // namespace rooflm::passes
