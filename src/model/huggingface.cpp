// Reading and writing the weights of Hugging Face directories.
#include "model/huggingface.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "model/huggingface_layout.h"
#include "model/parameters.h"

namespace rooflm::model {
namespace {

using core::InputError;

/// out [columns, rows] = transpose of in [rows, columns], in tiles that stay in cache.
void transpose(std::span<const float> in, std::int64_t rows, std::int64_t columns, std::span<float> out) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (std::int64_t c = c0; c < std::min(c0 + kTile, columns); ++c) {
        for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
          out[static_cast<std::size_t>(c * rows + r)] = in[static_cast<std::size_t>(r * columns + c)];
        }
      }
    }
  }
}

/// The elements of a parameter that a part provides.
template <class T>
std::span<T> rows_of(std::span<T> values, const Part& part, const Parameter& parameter) {
  const std::int64_t width = parameter.shape.rank() == 1 ? 1 : parameter.shape[-1];
  return values.subspan(static_cast<std::size_t>(part.first_row * width),
                        static_cast<std::size_t>(part.shape.numel()));
}

/// A parameter and the tensors that provide it.
struct Plan {
  Parameter parameter;
  std::vector<Part> parts;
};

std::vector<Plan> plans_of(const ModelConfig& config) {
  std::vector<Plan> plans;
  for (Parameter& parameter : parameters(config)) {
    auto parts = parts_of(parameter, config);
    plans.push_back({std::move(parameter), std::move(parts)});
  }
  return plans;
}

/// The tensors of a directory by full name; each must be used by exactly one part.
class Weights {
 public:
  Weights(const std::filesystem::path& directory, const ModelConfig& config, const std::vector<Plan>& plans)
      : directory_(directory), files_(open_safetensors_directory(directory)) {
    for (const SafetensorsFile& file : files_) {
      for (const StoredTensor& tensor : file.tensors()) {
        const std::string name = weight_name(tensor.name, config);
        if (!name.empty() && !tensors_.emplace(name, &tensor).second) fail(tensor, "is there twice");
      }
    }
    std::size_t used = 0;
    for (const Plan& plan : plans) {
      for (const Part& part : plan.parts) check(part);
      used += plan.parts.size();
    }
    if (used != tensors_.size()) refuse_left_over(plans, config);
  }

  [[nodiscard]] const StoredTensor& at(const Part& part) const { return *tensors_.at(part.tensor); }

 private:
  [[noreturn]] static void fail(const StoredTensor& tensor, const std::string& what) {
    throw InputError(
        fmt::format("{}: tensor {} {}", tensor.file.string(), core::printable(tensor.name), what));
  }

  void check(const Part& part) const {
    const auto found = tensors_.find(part.tensor);
    if (found == tensors_.end()) {
      throw InputError(fmt::format("{}: there is no tensor {}, expected with shape {}", directory_.string(),
                                   part.tensor, part.shape.str()));
    }
    const StoredTensor& tensor = *found->second;
    if (tensor.shape != part.shape) {
      fail(tensor,
           fmt::format("has the shape {}, config.json asks for {}", tensor.shape.str(), part.shape.str()));
    }
    if (!is_float(tensor)) {
      fail(tensor, fmt::format("has the dtype {}, expected F32, BF16, F16 or F64", tensor.dtype));
    }
  }

  void refuse_left_over(const std::vector<Plan>& plans, const ModelConfig& config) const {
    auto rest = tensors_;
    for (const Plan& plan : plans) {
      for (const Part& part : plan.parts) rest.erase(part.tensor);
    }
    const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
    const StoredTensor& first = *std::ranges::min_element(rest, by_name)->second;
    fail(first, fmt::format("{} does not belong to a {} model of {} layers{}", first.shape.str(),
                            name_of(config.arch), config.layers, config.tied_head ? " and a tied head" : ""));
  }

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, const StoredTensor*> tensors_;
};

void require_finite(const StoredTensor& tensor, std::span<const float> values) {
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  throw InputError(fmt::format("{}: tensor {} {} holds {} at element {}, expected finite numbers",
                               tensor.file.string(), core::printable(tensor.name), tensor.shape.str(), *bad,
                               bad - values.begin()));
}

void read_part(const StoredTensor& tensor, const Part& part, std::span<float> out,
               std::vector<float>& scratch) {
  if (!part.transposed) {
    read_floats(tensor, out);
    return require_finite(tensor, out);
  }
  scratch.resize(out.size());
  read_floats(tensor, scratch);
  require_finite(tensor, scratch);
  transpose(scratch, part.shape[0], part.shape[1], out);
}

/// Computes each parameter once and returns its parts, which are requested in order.
class Fetcher {
 public:
  Fetcher(const WeightSource& source, std::vector<Plan> plans) : source_(source), plans_(std::move(plans)) {}

  [[nodiscard]] const std::vector<Plan>& plans() const { return plans_; }

  void write(std::size_t plan_number, std::size_t part_number, core::DType dtype,
             const core::ByteSink& sink) {
    const auto& [parameter, parts] = plans_[plan_number];
    if (part_number == 0) {
      values_.resize(static_cast<std::size_t>(parameter.shape.numel()));
      source_(parameter.name, values_);
    }
    const Part& part = parts[part_number];
    const auto rows = rows_of(std::span<const float>(values_), part, parameter);
    if (!part.transposed) return write_floats(sink, rows, dtype);
    scratch_.resize(rows.size());
    transpose(rows, part.shape[1], part.shape[0], scratch_);
    write_floats(sink, scratch_, dtype);
  }

 private:
  const WeightSource& source_;
  std::vector<Plan> plans_;
  std::vector<float> values_, scratch_;
};

}  // namespace

void check_weights(const std::filesystem::path& directory, const ModelConfig& config) {
  const Weights weights(directory, config, plans_of(config));
}

void load_weights(const std::filesystem::path& directory, const ModelConfig& config, const WeightSink& sink) {
  const auto plans = plans_of(config);
  const Weights weights(directory, config, plans);
  std::vector<float> values, scratch;
  for (const auto& [parameter, parts] : plans) {
    values.assign(static_cast<std::size_t>(parameter.shape.numel()), 0.0F);
    for (const Part& part : parts) {
      read_part(weights.at(part), part, rows_of(std::span(values), part, parameter), scratch);
    }
    sink(parameter.name, values);
  }
}

void save_config(const std::filesystem::path& directory, const ModelConfig& config, core::DType dtype,
                 const TextEnds& ends) {
  core::write_file_atomically(directory / "config.json", config_json(config, dtype, ends));
}

void save_model(const std::filesystem::path& directory, const ModelConfig& config, const WeightSource& source,
                core::DType dtype, std::uint64_t max_shard_bytes, const core::OnProgress& on_progress,
                const TextEnds& ends) {
  const std::string text = config_json(config, dtype, ends);
  Fetcher fetcher(source, plans_of(config));
  std::vector<TensorSource> tensors;
  for (std::size_t i = 0; i < fetcher.plans().size(); ++i) {
    const auto& parts = fetcher.plans()[i].parts;
    for (std::size_t j = 0; j < parts.size(); ++j) {
      tensors.push_back({parts[j].tensor, dtype, parts[j].shape,
                         [&fetcher, i, j, dtype](const auto& to) { fetcher.write(i, j, dtype, to); }});
    }
  }
  write_safetensors_directory(directory, tensors, max_shard_bytes, on_progress);
  core::write_file_atomically(directory / "config.json", text);
}

}  // namespace rooflm::model
