// Adapters in the files of Hugging Face's PEFT.
#include "train/adapter_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "model/parameters.h"
#include "model/safetensors.h"

namespace rooflm::train {
namespace {

namespace fs = std::filesystem;
using core::InputError;
using passes::Adapter;

/// Before the module's path in the file.
constexpr std::string_view kModulesOf = "base_model.model.";
/// As PEFT wrote weights before it took safetensors.
constexpr const char* kPickledWeights = "adapter_model.bin";

/// One of an adapter's weights.
struct Factor {
  std::string name;
  core::Shape shape;
};

std::vector<Factor> factors_of(const std::vector<Adapter>& adapters) {
  std::vector<Factor> factors;
  for (const Adapter& adapter : adapters) {
    factors.push_back({adapter.a(), {adapter.rank, adapter.in}});
    factors.push_back({adapter.b(), {adapter.out, adapter.rank}});
    if (adapter.is_dora) factors.push_back({adapter.magnitude(), {adapter.out}});
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
  if (tensors.size() == file.tensors().size()) return tensors;
  const auto is_known = [&](const model::StoredTensor& stored) {
    return std::ranges::any_of(tensors, [&](const auto& known) { return known.second->name == stored.name; });
  };
  const auto other = std::ranges::find_if_not(file.tensors(), is_known);
  throw InputError(fmt::format(
      "{}: tensor {} is not of an adapter that {} names, or not of a matrix of a layer of this model",
      file.path().string(), core::printable(other->name, core::kUnlimited), kAdapterConfig));
}

model::SafetensorsFile open_weights(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory / kAdapterWeights, ignored) && fs::exists(directory / kPickledWeights, ignored)) {
    throw InputError(
        fmt::format("{}: pickled weights are not read, expected {} beside it: load the adapter with "
                    "PEFT and call save_pretrained(..., safe_serialization=True)",
                    (directory / kPickledWeights).string(), kAdapterWeights));
  }
  return model::SafetensorsFile(directory / kAdapterWeights);
}

using Values = std::map<std::string, std::vector<float>>;

/// In the adapter's rows: W += factor B A, and of DoRA as long as its magnitudes say. A row of zeros has no
/// direction and stays as it is.
void merge(const Adapter& adapter, const Values& values, std::span<float> weight) {
  const std::vector<float>& a = values.at(adapter.a());
  const std::vector<float>& b = values.at(adapter.b());
  const auto in = static_cast<std::size_t>(adapter.in);
  for (std::int64_t o = 0; o < adapter.out; ++o) {
    float* row = &weight[static_cast<std::size_t>(adapter.first + o) * in];
    for (std::int64_t r = 0; r < adapter.rank; ++r) {
      const auto factor =
          static_cast<float>(adapter.factor()) * b[static_cast<std::size_t>(o * adapter.rank + r)];
      const float* from = &a[static_cast<std::size_t>(r * adapter.in)];
      for (std::int64_t i = 0; i < adapter.in; ++i) row[i] += factor * from[i];
    }
    if (!adapter.is_dora) continue;
    double square = 0;
    for (std::size_t i = 0; i < in; ++i) square += static_cast<double>(row[i]) * row[i];
    const double magnitude = values.at(adapter.magnitude())[static_cast<std::size_t>(o)];
    const double scale = square > 0 ? magnitude / std::sqrt(square) : 0;
    for (std::size_t i = 0; i < in; ++i) row[i] = static_cast<float>(scale * row[i]);
  }
}

}  // namespace

bool has_adapter(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kAdapterConfig, ignored);
}

fs::path directory_with(const char* file, const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(directory / file, ignored) || !has_adapter(directory)) return directory;
  return directory_with(file, read_peft_config(directory).base);
}

void load_adapters(const fs::path& directory, const std::vector<Adapter>& adapters,
                   const model::WeightSink& sink) {
  const model::SafetensorsFile file = open_weights(directory);
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
  core::write_file_atomically(directory / kAdapterConfig, peft_config_text(adapters, base));
}

void initialise_adapters(const std::vector<Adapter>& adapters, const model::ModelConfig& config,
                         std::uint64_t seed, const model::WeightSource& source,
                         const model::WeightSink& sink) {
  using Init = model::Parameter::Init;
  for (const Adapter& adapter : adapters) {
    const double std = 1 / std::sqrt(3 * static_cast<double>(adapter.in));
    sink(adapter.a(),
         model::initial_values({adapter.a(), {adapter.rank, adapter.in}, Init::normal, std}, config, seed));
    sink(adapter.b(),
         model::initial_values({adapter.b(), {adapter.out, adapter.rank}, Init::zeros}, config, seed));
    if (!adapter.is_dora) continue;
    std::vector<float> lengths(static_cast<std::size_t>(adapter.out));
    source(adapter.row_squares(), lengths);
    std::ranges::transform(lengths, lengths.begin(), [](float square) { return std::sqrt(square); });
    sink(adapter.magnitude(), lengths);
  }
}

void load_merged(const fs::path& directory, const model::ModelConfig& config, const model::WeightSink& sink,
                 const model::PackedSink& packed) {
  if (!has_adapter(directory)) return model::load_weights(directory, config, sink, packed);
  const PeftConfig found = read_peft_config(directory);
  const std::vector<Adapter> adapters = adapters_of(found, config);
  Values factors;
  load_adapters(directory, adapters, [&](const std::string& name, std::span<const float> values) {
    factors[name] = {values.begin(), values.end()};
  });
  std::vector<float> merged;
  load_merged(found.base, config, [&](const std::string& name, std::span<const float> values) {
    merged.assign(values.begin(), values.end());
    for (const Adapter& adapter : adapters) {
      if (adapter.weight == name) merge(adapter, factors, merged);
    }
    sink(name, merged);
  });
}

void check_merged(const fs::path& directory, const model::ModelConfig& config) {
  if (!has_adapter(directory)) return model::check_weights(directory, config);
  const PeftConfig found = read_peft_config(directory);
  static_cast<void>(tensors_of(open_weights(directory), adapters_of(found, config)));
  check_merged(found.base, config);
}

}  // namespace rooflm::train
