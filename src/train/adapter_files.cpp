// Adapters in the files of Hugging Face's PEFT.
#include "train/adapter_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/printable.h"
#include "model/parameters.h"
#include "model/safetensors.h"

namespace rooflm::train {
namespace {

namespace fs = std::filesystem;
using core::InputError;
using nlohmann::json;
using nlohmann::ordered_json;
using passes::Adapter;

/// Before the module's path in the file.
constexpr std::string_view kModulesOf = "base_model.model.";

/// One of an adapter's two weights.
struct Factor {
  std::string name;
  core::Shape shape;
};

std::vector<Factor> factors_of(const std::vector<Adapter>& adapters) {
  std::vector<Factor> factors;
  for (const Adapter& adapter : adapters) {
    factors.push_back({adapter.a(), {adapter.rank, adapter.in}});
    factors.push_back({adapter.b(), {adapter.out, adapter.rank}});
  }
  return factors;
}

/// Each tensor of the file with its factor, all checked.
std::vector<std::pair<Factor, const model::StoredTensor*>> tensors_of(const model::SafetensorsFile& file,
                                                                      const std::vector<Adapter>& adapters) {
  std::vector<std::pair<Factor, const model::StoredTensor*>> tensors;
  for (Factor& factor : factors_of(adapters)) {
    const std::string stored = std::string(kModulesOf) + factor.name;
    const model::StoredTensor* tensor = file.find(stored);
    if (tensor == nullptr) {
      throw InputError(
          fmt::format("{}: there is no tensor {}, expected with shape {}: is it an adapter of "
                      "another model?",
                      file.path().string(), stored, factor.shape.str()));
    }
    if (tensor->shape != factor.shape || !model::is_float(*tensor)) {
      throw InputError(
          fmt::format("{}: tensor {} is {} {}, expected floats {}: is it an adapter of another "
                      "model?",
                      file.path().string(), stored, tensor->dtype, tensor->shape.str(), factor.shape.str()));
    }
    tensors.emplace_back(std::move(factor), tensor);
  }
  if (tensors.size() != file.tensors().size()) {
    throw InputError(fmt::format("{}: holds {} tensors, expected {} of {}", file.path().string(),
                                 file.tensors().size(), tensors.size(), kAdapterConfig));
  }
  return tensors;
}

/// What says that it is another kind of adapter, or "".
std::string other_kind(const json& config) {
  for (const char* flag : {"use_dora", "use_rslora"})
    if (config.value(flag, json()) == json(true)) return flag;
  for (const char* list : {"rank_pattern", "alpha_pattern", "modules_to_save"})
    if (config.contains(list) && !config[list].empty()) return list;
  return config.value("bias", json("none")) == json("none") ? "" : "bias";
}

/// W += factor B A in the adapter's rows.
void add_product(const Adapter& adapter, const std::vector<float>& a, const std::vector<float>& b,
                 std::span<float> weight) {
  for (std::int64_t o = 0; o < adapter.out; ++o) {
    float* row = &weight[static_cast<std::size_t>((adapter.first + o) * adapter.in)];
    for (std::int64_t r = 0; r < adapter.rank; ++r) {
      const auto factor =
          static_cast<float>(adapter.factor) * b[static_cast<std::size_t>(o * adapter.rank + r)];
      const float* from = &a[static_cast<std::size_t>(r * adapter.in)];
      for (std::int64_t i = 0; i < adapter.in; ++i) row[i] += factor * from[i];
    }
  }
}

/// Adapters of a directory, found in the model; what the model does not have is the file's fault.
std::vector<Adapter> adapters_of(const fs::path& directory, const AdapterConfig& found,
                                 const model::ModelConfig& config) {
  try {
    return passes::find_adapters(config, found.lora);
  } catch (const core::UsageError& error) {
    throw InputError(fmt::format("{}: {}", (directory / kAdapterConfig).string(), error.what()));
  }
}

}  // namespace

bool has_adapter(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kAdapterConfig, ignored);
}

AdapterConfig read_adapter_config(const fs::path& directory) {
  const fs::path path = directory / kAdapterConfig;
  const core::MappedFile file(path);
  const json config = core::parse_json_object(file.text(), path.string(), "the adapter's configuration");
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}", path.string(), what));
  };
  if (config.value("peft_type", json()) != json("LORA")) fail("peft_type: expected \"LORA\"");
  if (const std::string kind = other_kind(config); !kind.empty())
    fail(fmt::format("{}: only plain LoRA is read", kind));
  const auto rank = config.find("r");
  if (rank == config.end() || !rank->is_number_integer() || rank->get<std::int64_t>() < 1)
    fail("r: expected a whole number above 0");
  const auto alpha = config.find("lora_alpha");
  if (alpha == config.end() || !alpha->is_number() || !(alpha->get<double>() > 0))
    fail("lora_alpha: expected a number above 0");
  const auto targets = config.find("target_modules");
  const auto is_text = [](const json& target) { return target.is_string(); };
  if (targets == config.end() || !targets->is_array() || targets->empty() ||
      !std::ranges::all_of(*targets, is_text))
    fail("target_modules: expected a list of names");
  const auto base = config.find("base_model_name_or_path");
  if (base == config.end() || !base->is_string()) fail("base_model_name_or_path: expected a directory");
  return {.lora = fmt::format("{},alpha={},targets={}", rank->get<std::int64_t>(), alpha->get<double>(),
                              fmt::join(targets->get<std::vector<std::string>>(), ",")),
          .base = fs::path(base->get<std::string>())};
}

void load_adapters(const fs::path& directory, const std::vector<Adapter>& adapters,
                   const model::WeightSink& sink) {
  const model::SafetensorsFile file(directory / kAdapterWeights);
  std::vector<float> values;
  for (const auto& [factor, tensor] : tensors_of(file, adapters)) {
    values.resize(static_cast<std::size_t>(factor.shape.numel()));
    model::read_floats(*tensor, values);
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    if (bad != values.end()) {
      throw InputError(fmt::format("{}: tensor {} holds {} at element {}, expected finite numbers",
                                   file.path().string(), core::printable(tensor->name), *bad,
                                   bad - values.begin()));
    }
    sink(factor.name, values);
  }
}

void save_adapters(const fs::path& directory, const std::vector<Adapter>& adapters, const fs::path& base,
                   const model::WeightSource& source) {
  std::vector<model::TensorSource> tensors;
  for (const Factor& factor : factors_of(adapters)) {
    tensors.push_back({.name = std::string(kModulesOf) + factor.name,
                       .dtype = core::DType::f32,
                       .shape = factor.shape,
                       .write = [&source, factor](const core::ByteSink& to) {
                         std::vector<float> values(static_cast<std::size_t>(factor.shape.numel()));
                         source(factor.name, values);
                         to(std::as_bytes(std::span(values)));
                       }});
  }
  model::write_safetensors(directory / kAdapterWeights, tensors);
  const Adapter& first = adapters.front();
  std::set<std::string> targets;
  for (const Adapter& adapter : adapters)
    targets.insert(adapter.module.substr(adapter.module.rfind('.') + 1));
  const ordered_json config{{"peft_type", "LORA"},
                            {"task_type", "CAUSAL_LM"},
                            {"base_model_name_or_path", base.string()},
                            {"r", first.rank},
                            {"lora_alpha", first.factor * static_cast<double>(first.rank)},
                            {"lora_dropout", 0.0},
                            {"target_modules", targets},
                            {"bias", "none"},
                            {"fan_in_fan_out", first.transposed},
                            {"init_lora_weights", true},
                            {"inference_mode", true}};
  const std::string text = config.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  core::write_file_atomically(directory / kAdapterConfig, text);
}

void initialise_adapters(const std::vector<Adapter>& adapters, const model::ModelConfig& config,
                         std::uint64_t seed, const model::WeightSink& sink) {
  using Init = model::Parameter::Init;
  for (const Adapter& adapter : adapters) {
    const double std = 1 / std::sqrt(3 * static_cast<double>(adapter.in));
    sink(adapter.a(),
         model::initial_values({adapter.a(), {adapter.rank, adapter.in}, Init::normal, std}, config, seed));
    sink(adapter.b(),
         model::initial_values({adapter.b(), {adapter.out, adapter.rank}, Init::zeros}, config, seed));
  }
}

void load_merged(const fs::path& directory, const model::ModelConfig& config, const model::WeightSink& sink,
                 const model::PackedSink& packed) {
  if (!has_adapter(directory)) return model::load_weights(directory, config, sink, packed);
  const AdapterConfig found = read_adapter_config(directory);
  const std::vector<Adapter> adapters = adapters_of(directory, found, config);
  std::map<std::string, std::vector<float>> factors;
  load_adapters(directory, adapters, [&](const std::string& name, std::span<const float> values) {
    factors[name] = {values.begin(), values.end()};
  });
  std::vector<float> merged;
  load_merged(found.base, config, [&](const std::string& name, std::span<const float> values) {
    merged.assign(values.begin(), values.end());
    for (const Adapter& adapter : adapters) {
      if (adapter.weight == name)
        add_product(adapter, factors.at(adapter.a()), factors.at(adapter.b()), merged);
    }
    sink(name, merged);
  });
}

void check_merged(const fs::path& directory, const model::ModelConfig& config) {
  if (!has_adapter(directory)) return model::check_weights(directory, config);
  const AdapterConfig found = read_adapter_config(directory);
  const model::SafetensorsFile file(directory / kAdapterWeights);
  static_cast<void>(tensors_of(file, adapters_of(directory, found, config)));
  check_merged(found.base, config);
}

}  // namespace rooflm::train
