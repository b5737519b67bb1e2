// adapter_config.json of Hugging Face's PEFT. What its keys mean: peft/tuners/lora/config.py, and
// check_target_module_exists and get_pattern_key in peft/tuners/tuners_utils.py and peft/utils/other.py.
#include "train/peft_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/printable.h"
#include "text/bpe_pattern.h"

namespace rooflm::train {
namespace {

namespace fs = std::filesystem;
using core::InputError;
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
using passes::Adapter;

bool is_empty(const Json& value) {
  return value.is_null() || value == Json(false) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

/// The keys of one file, each with what it must be.
class Keys {
 public:
  explicit Keys(const fs::path& file) : file_(file.string()) {
    const core::MappedFile mapped(file);
    values_ = core::parse_python_json_object(mapped.text(), file_, "the adapter's configuration");
  }

  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    const auto found = values_.find(key);
    throw InputError(fmt::format("{}: {} is {}, expected {}", file_, key,
                                 found == values_.end() ? "missing" : core::shown(*found), expected));
  }
  /// null where it is missing.
  [[nodiscard]] const Json& at(const char* key) const {
    static const Json kNull;
    const auto found = values_.find(key);
    return found == values_.end() ? kNull : *found;
  }
  [[nodiscard]] bool flag(const char* key) const {
    const Json& value = at(key);
    if (value.is_null()) return false;
    if (!value.is_boolean()) fail(key, "true or false");
    return value.get<bool>();
  }
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> found;
    const Json& value = at(key);
    if (value.is_null()) return found;
    if (value.is_string()) return {value.get<std::string>()};
    if (!value.is_array()) fail(key, "a list of names");
    for (const Json& each : value) {
      if (!each.is_string()) fail(key, "a list of names");
      found.push_back(each.get<std::string>());
    }
    return found;
  }
  [[nodiscard]] ModuleNames modules(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) return {.names = texts(key)};
    std::string text = value.get<std::string>();
    std::string lower = text;
    std::ranges::transform(lower, lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (lower == "all-linear") return {.is_all_linear = true};
    return {.pattern = std::move(text)};
  }
  /// Positive numbers by regular expressions; whole ones if `is_whole`.
  [[nodiscard]] std::vector<std::pair<std::string, double>> numbers(const char* key, bool is_whole) const {
    std::vector<std::pair<std::string, double>> found;
    const Json& value = at(key);
    if (value.is_null()) return found;
    const char* expected = is_whole ? "an object of whole numbers above 0" : "an object of numbers above 0";
    if (!value.is_object()) fail(key, expected);
    for (const auto& [pattern, number] : value.items()) {
      if (!number.is_number() || (is_whole && !number.is_number_integer()) || !(number.get<double>() > 0))
        fail(key, expected);
      found.emplace_back(pattern, number.get<double>());
    }
    return found;
  }
  [[nodiscard]] std::vector<std::int64_t> layers(const char* key) const {
    const Json& value = at(key);
    if (value.is_null()) return {};
    if (value.is_number_integer()) return {value.get<std::int64_t>()};
    if (!value.is_array() ||
        !std::ranges::all_of(value, [](const Json& each) { return each.is_number_integer(); }))
      fail(key, "a whole number or a list of them");
    return value.get<std::vector<std::int64_t>>();
  }

 private:
  std::string file_;
  Json values_;
};

/// What is trained beside adapters of matrices, or makes other weights of them. With each what to do, or why.
struct Unread {
  const char* key;
  const char* expected;
};
constexpr std::array kUnread = {
    Unread{"lora_bias", "false: biases of lora_B are not read"},
    Unread{"modules_to_save",
           "null: whole modules beside adapters are not read; merge them with PEFT's "
           "merge_and_unload()"},
    Unread{"layer_replication", "null: layers that are used twice are not read"},
    Unread{"trainable_token_indices", "null: rows of embeddings are not read"},
    Unread{"target_parameters", "null: adapters of tensors that are not modules' weights are not read"},
    Unread{"use_qalora", "false: QALoRA is not read"},
    Unread{"use_bdlora", "null: block-diagonal factors are not read"},
    Unread{"alora_invocation_tokens", "null: adapters that begin at a token cannot be merged"},
    Unread{"arrow_config", "null: adapters that a router chooses cannot be merged"},
    Unread{"kasa_config", "null: KaSA is not read"},
    Unread{"monteclora_config", "null: Monte Carlo adapters are not read"},
};

void refuse_what_is_unread(const Keys& keys) {
  if (keys.at("peft_type") != Json("LORA")) keys.fail("peft_type", "\"LORA\"");
  for (const Unread& each : kUnread)
    if (!is_empty(keys.at(each.key))) keys.fail(each.key, each.expected);
  const Json& bias = keys.at("bias");
  if (!bias.is_null() && bias != Json("none")) keys.fail("bias", "\"none\": trained biases are not read");
  // These begin with the base's weights less the adapter's.
  const Json& init = keys.at("init_lora_weights");
  for (const std::string_view kind : {"pissa", "olora", "corda", "loftq", "lora_ga"}) {
    if (init.is_string() && init.get<std::string>().starts_with(kind))
      keys.fail(
          "init_lora_weights",
          "true: that kind changes the base's weights; convert the adapter to LoRA where it was trained "
          "(PEFT: path_initial_model_for_weight_conversion)");
  }
}

fs::path base_of(const Keys& keys, const fs::path& directory) {
  std::error_code ignored;
  if (fs::is_directory(directory / kBaseLink, ignored)) return fs::canonical(directory / kBaseLink);
  const Json& value = keys.at("base_model_name_or_path");
  fs::path base = value.is_string() ? fs::path(value.get<std::string>()) : fs::path();
  if (!base.empty() && fs::is_directory(base, ignored)) return base;
  if (!base.empty() && fs::is_directory(directory / base, ignored)) return directory / base;
  keys.fail("base_model_name_or_path",
            fmt::format("the directory of the base model; where it is another, link it: ln -s DIR {}",
                        core::printable((directory / kBaseLink).string(), core::kUnlimited)));
}

/// Refuses a base that never leads to a model.
void check_chain(const Keys& keys, fs::path base) {
  constexpr int kMostAdapters = 16;
  std::error_code ignored;
  for (int upon = 0; fs::exists(base / kAdapterConfig, ignored); ++upon) {
    if (upon == kMostAdapters)
      keys.fail("base_model_name_or_path",
                fmt::format("a model: {} adapters follow, each upon the next", kMostAdapters));
    base = base_of(Keys(base / kAdapterConfig), base);
  }
}

/// A regular expression of whole texts.
class WholePattern {
 public:
  WholePattern(const std::string& pattern, const fs::path& file, const char* key)
      : pattern_(fmt::format(R"(\A(?:{})\z)", pattern), fmt::format("{}: {}", file.string(), key),
                 "the pattern") {}
  [[nodiscard]] bool matches(const std::string& text) { return matcher_.find(pattern_, text, 0).has_value(); }

 private:
  text::CompiledPattern pattern_;
  text::PatternMatcher matcher_;
};

/// Whether `names` name the module.
class ModuleMatcher {
 public:
  ModuleMatcher(const ModuleNames& names, const fs::path& file, const char* key) : names_(&names) {
    if (names.pattern) pattern_.emplace(*names.pattern, file, key);
  }
  [[nodiscard]] bool matches(const std::string& path) {
    if (names_->is_all_linear) return true;
    if (pattern_) return pattern_->matches(path);
    return std::ranges::any_of(
        names_->names, [&](const std::string& name) { return path == name || path.ends_with("." + name); });
  }

 private:
  const ModuleNames* names_;
  std::optional<WholePattern> pattern_;
};

/// Whether PEFT's layers_to_transform keep the module, which is in a layer.
class LayerMatcher {
 public:
  explicit LayerMatcher(const PeftConfig& config) : layers_(&config.layers) {
    if (config.layers.empty()) return;
    std::vector<std::string> lists = config.layers_pattern;
    if (lists.empty()) lists.emplace_back(R"([^.]*)");
    for (const std::int64_t layer : config.layers) {
      for (const std::string& list : lists)
        patterns_.push_back(std::make_unique<WholePattern>(fmt::format(R"(.*?\.{}\.{}\..*)", list, layer),
                                                           config.file, "layers_pattern"));
    }
  }
  [[nodiscard]] bool matches(const std::string& path) {
    return layers_->empty() ||
           std::ranges::any_of(patterns_, [&](const auto& pattern) { return pattern->matches(path); });
  }

 private:
  const std::vector<std::int64_t>* layers_;
  std::vector<std::unique_ptr<WholePattern>> patterns_;
};

/// The number that a module has instead of `usual`.
class PatternNumbers {
 public:
  PatternNumbers(const std::vector<std::pair<std::string, double>>& numbers, const fs::path& file,
                 const char* key)
      : numbers_(&numbers), file_(&file), key_(key) {
    for (const auto& [pattern, number] : numbers)
      patterns_.push_back(
          std::make_unique<WholePattern>(fmt::format(R"((?:.*\.)?(?:{}))", pattern), file, key));
  }
  [[nodiscard]] double of(const std::string& path, double usual) {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!patterns_[i]->matches(path)) continue;
      const auto& [pattern, number] = (*numbers_)[i];
      if (found && (*numbers_)[*found].second != number) {
        throw InputError(fmt::format("{}: {}: both '{}' and '{}' match {}, with different numbers",
                                     file_->string(), key_, core::printable((*numbers_)[*found].first),
                                     core::printable(pattern), path));
      }
      found = i;
    }
    return found ? (*numbers_)[*found].second : usual;
  }

 private:
  const std::vector<std::pair<std::string, double>>* numbers_;
  const fs::path* file_;
  const char* key_;
  std::vector<std::unique_ptr<WholePattern>> patterns_;
};

std::string shown_targets(const ModuleNames& targets) {
  return core::printable(targets.pattern ? *targets.pattern
                                         : fmt::format("{}", fmt::join(targets.names, ", ")));
}

}  // namespace

PeftConfig read_peft_config(const fs::path& directory) {
  PeftConfig config{.file = directory / kAdapterConfig};
  const Keys keys(config.file);
  refuse_what_is_unread(keys);
  const Json& rank = keys.at("r");
  if (!rank.is_number_integer() || rank.get<std::int64_t>() < 1) keys.fail("r", "a whole number above 0");
  config.rank = rank.get<std::int64_t>();
  const Json& alpha = keys.at("lora_alpha");
  if (!alpha.is_number() || !(alpha.get<double>() > 0)) keys.fail("lora_alpha", "a number above 0");
  config.alpha = alpha.get<double>();
  config.is_rank_stabilised = keys.flag("use_rslora");
  config.is_dora = keys.flag("use_dora");
  static_cast<void>(keys.flag("fan_in_fan_out"));  // the model's files say how they store W
  config.targets = keys.modules("target_modules");
  if (!config.targets.is_all_linear && !config.targets.pattern && config.targets.names.empty())
    keys.fail("target_modules", "a list of names, a regular expression or \"all-linear\"");
  config.excluded = keys.modules("exclude_modules");
  config.rank_pattern = keys.numbers("rank_pattern", true);
  config.alpha_pattern = keys.numbers("alpha_pattern", false);
  config.layers = keys.layers("layers_to_transform");
  config.layers_pattern = keys.texts("layers_pattern");
  config.base = base_of(keys, directory);
  check_chain(keys, config.base);
  return config;
}

std::vector<Adapter> adapters_of(const PeftConfig& config, const model::ModelConfig& model) {
  ModuleMatcher targets(config.targets, config.file, "target_modules");
  ModuleMatcher excluded(config.excluded, config.file, "exclude_modules");
  LayerMatcher layers(config);
  PatternNumbers ranks(config.rank_pattern, config.file, "rank_pattern");
  PatternNumbers alphas(config.alpha_pattern, config.file, "alpha_pattern");
  const bool has_list = !config.targets.pattern && !config.targets.is_all_linear;
  std::vector<Adapter> adapters;
  for (Adapter& module : passes::adaptable_modules(model)) {
    const std::string& path = module.module;
    const bool is_whole_path = std::ranges::find(config.targets.names, path) != config.targets.names.end();
    if (excluded.matches(path) || !targets.matches(path)) continue;
    if (has_list && !is_whole_path && !layers.matches(path)) continue;
    if (module.first < 0) {
      throw InputError(
          fmt::format("{}: target_modules: files of {} have the rows of {} in another order, so its "
                      "adapter is not read",
                      config.file.string(), model.name, path));
    }
    module.rank = static_cast<std::int64_t>(ranks.of(path, static_cast<double>(config.rank)));
    module.alpha = alphas.of(path, config.alpha);
    module.is_rank_stabilised = config.is_rank_stabilised;
    module.is_dora = config.is_dora;
    adapters.push_back(std::move(module));
  }
  if (adapters.empty()) {
    std::set<std::string> names;
    for (const Adapter& module : passes::adaptable_modules(model))
      names.insert(module.module.substr(module.module.rfind('.') + 1));
    throw InputError(fmt::format("{}: target_modules is '{}', expected some of the matrices of {}: {}",
                                 config.file.string(), shown_targets(config.targets), model.name,
                                 fmt::join(names, ", ")));
  }
  return adapters;
}

std::string peft_config_text(const std::vector<Adapter>& adapters, const fs::path& base) {
  const Adapter& first = adapters.front();
  std::set<std::string> targets;
  for (const Adapter& adapter : adapters)
    targets.insert(adapter.module.substr(adapter.module.rfind('.') + 1));
  const OrderedJson config{{"peft_type", "LORA"},
                           {"task_type", "CAUSAL_LM"},
                           {"base_model_name_or_path", base.string()},
                           {"r", first.rank},
                           {"lora_alpha", first.alpha},
                           {"lora_dropout", 0.0},
                           {"target_modules", targets},
                           {"bias", "none"},
                           {"fan_in_fan_out", first.transposed},
                           {"use_rslora", first.is_rank_stabilised},
                           {"use_dora", first.is_dora},
                           {"init_lora_weights", true},
                           {"inference_mode", true}};
  return config.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace rooflm::train
