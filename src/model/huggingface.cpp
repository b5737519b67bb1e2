// Reading and writing the weights of Hugging Face directories.
#include "model/huggingface.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "model/huggingface_layout.h"
#include "model/parameters.h"
#include "model/quantized_files.h"

namespace rooflm::model {
namespace {

using core::InputError;

/// The parameters of a model and the tensors of its files.
struct Plan {
  std::vector<Parameter> parameters;
  std::vector<FileTensor> tensors;

  explicit Plan(const ModelConfig& config, ExpertPacking packing = ExpertPacking::as_family)
      : parameters(model::parameters(config)), tensors(file_tensors(parameters, config, packing)) {}
};

/// The tensors of a directory by full name; each must be one of the plan's.
class Weights {
 public:
  Weights(const std::filesystem::path& directory, const ModelConfig& config)
      : directory_(directory),
        format_(read_weight_format(directory)),
        files_(open_safetensors_directory(directory)) {
    for (const SafetensorsFile& file : files_) {
      for (const StoredTensor& tensor : file.tensors()) {
        const std::string name = weight_name(tensor.name, config);
        if (!name.empty() && !tensors_.emplace(name, &tensor).second) fail(tensor, "is there twice");
      }
    }
    plan_ = Plan(config, packing_of(config));
    for (const FileTensor& tensor : plan_->tensors) {
      if (is_packed(tensor)) {
        for (const QuantizedPart& part : parts_of(tensor)) known_.insert(stored(part.name).name);
      } else {
        check(tensor);
        known_.insert(at(tensor).name);
      }
    }
    if (known_.size() != tensors_.size()) refuse_left_over(config);
  }

  [[nodiscard]] core::WeightFormat format() const { return format_; }
  /// Whether files have the matrix as codes and scales.
  [[nodiscard]] bool is_packed(const FileTensor& tensor) const {
    return format_ != core::WeightFormat::plain &&
           is_quantized(tensor, plan_->parameters[tensor.pieces.front().parameter]);
  }
  /// A packed matrix in memory form.
  [[nodiscard]] std::vector<std::byte> packed(const FileTensor& tensor) const {
    return read_quantized(parts_of(tensor), format_, tensor.rows, tensor.width,
                          [&](const std::string& name) -> const StoredTensor& { return stored(name); });
  }

  [[nodiscard]] const Plan& plan() const { return *plan_; }
  [[nodiscard]] const StoredTensor& at(const FileTensor& tensor) const { return *tensors_.at(tensor.name); }
  [[nodiscard]] std::vector<QuantizedPart> parts_of(const FileTensor& tensor) const {
    return quantized_parts(tensor.name, format_, tensor.rows, tensor.width);
  }

 private:
  [[noreturn]] static void fail(const StoredTensor& tensor, const std::string& what) {
    throw InputError(
        fmt::format("{}: tensor {} {}", tensor.file.string(), core::printable(tensor.name), what));
  }

  [[nodiscard]] const StoredTensor& stored(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return *found->second;
    throw InputError(
        fmt::format("{}: there is no tensor {}, which config.json's quantization_config asks for",
                    directory_.string(), name));
  }

  /// The first packing whose tensors are all there and fit; the family's own if there is none.
  [[nodiscard]] ExpertPacking packing_of(const ModelConfig& config) const {
    using enum ExpertPacking;
    if (config.experts.count == 0) return as_family;
    for (const ExpertPacking packing : {as_family, packed, packed_transposed}) {
      const Plan plan(config, packing);
      const auto fits = [&](const FileTensor& tensor) {
        const auto found = tensors_.find(tensor.name);
        return found != tensors_.end() && found->second->shape == tensor.shape;
      };
      if (std::ranges::all_of(plan.tensors, fits)) return packing;
    }
    return as_family;
  }

  void check(const FileTensor& expected) const {
    const auto found = tensors_.find(expected.name);
    if (found == tensors_.end()) {
      throw InputError(fmt::format("{}: there is no tensor {}, expected with shape {}", directory_.string(),
                                   expected.name, expected.shape.str()));
    }
    const StoredTensor& tensor = *found->second;
    if (tensor.shape != expected.shape) {
      fail(tensor, fmt::format("has the shape {}, config.json asks for {}", tensor.shape.str(),
                               expected.shape.str()));
    }
    if (!is_float(tensor)) {
      fail(tensor, fmt::format("has the dtype {}, expected F32, BF16, F16 or F64", tensor.dtype));
    }
  }

  void refuse_left_over(const ModelConfig& config) const {
    std::map<std::string, const StoredTensor*> rest(tensors_.begin(), tensors_.end());
    std::erase_if(rest, [&](const auto& each) { return known_.contains(each.second->name); });
    std::erase_if(rest, [&](const auto& each) { return is_of_other_parts(each.first, config); });
    if (rest.empty()) return;
    const StoredTensor& first = *rest.begin()->second;
    fail(first, fmt::format("{} does not belong to a {} model of {} layers{}", first.shape.str(),
                            name_of(config.arch), config.layers, config.tied_head ? " and a tied head" : ""));
  }

  std::filesystem::path directory_;
  core::WeightFormat format_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, const StoredTensor*> tensors_;
  std::optional<Plan> plan_;
  std::set<std::string> known_;  ///< stored names of the model's tensors
};

/// A packed matrix of files as numbers.
void unpack_piece(const Weights& weights, const FileTensor& tensor, const Piece& piece,
                  std::span<float> values) {
  const std::vector<std::byte> codes = weights.packed(tensor);
  const core::PackedMatrix matrix{core::dtype_of(weights.format()), tensor.rows, tensor.width, codes.data()};
  FileTensor plain = tensor;
  plain.transposed = false;
  std::vector<float> rows(static_cast<std::size_t>(matrix.count()));
  matrix.unpack(0, 0, matrix.count(), rows.data());
  from_file(plain, piece, rows, values);
}

void require_finite(const StoredTensor& tensor, std::span<const float> values) {
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  throw InputError(fmt::format("{}: tensor {} {} holds {} at element {}, expected finite numbers",
                               tensor.file.string(), core::printable(tensor.name), tensor.shape.str(), *bad,
                               bad - values.begin()));
}

/// The elements of a parameter that a tensor holds as they are.
template <class T>
std::span<T> rows_of(std::span<T> values, const FileTensor& tensor, std::int64_t first_row) {
  return values.subspan(static_cast<std::size_t>(first_row * tensor.width),
                        static_cast<std::size_t>(tensor.shape.numel()));
}

void read_piece(const StoredTensor& stored, const FileTensor& tensor, const Piece& piece,
                std::span<float> values, std::vector<float>& scratch) {
  const std::int64_t row = plain_row(tensor, piece);
  if (row < 0) scratch.resize(static_cast<std::size_t>(tensor.shape.numel()));
  const std::span<float> to = row < 0 ? std::span(scratch) : rows_of(values, tensor, row);
  read_floats(stored, to);
  require_finite(stored, to);
  if (row < 0) from_file(tensor, piece, scratch, values);
}

/// The parameters of a directory's model, by number.
class Contents {
 public:
  Contents(const std::filesystem::path& directory, const ModelConfig& config)
      : weights_(directory, config), pieces_(plan().parameters.size()) {
    for (const FileTensor& tensor : plan().tensors)
      for (const Piece& piece : tensor.pieces) pieces_[piece.parameter].emplace_back(&tensor, &piece);
  }
  [[nodiscard]] const Plan& plan() const { return weights_.plan(); }

  void read(std::size_t number, std::span<float> values, std::vector<float>& scratch) const {
    std::ranges::fill(values, 0.0F);
    for (const auto& [tensor, piece] : pieces_[number]) {
      if (weights_.is_packed(*tensor)) {
        unpack_piece(weights_, *tensor, *piece, values);
      } else {
        read_piece(weights_.at(*tensor), *tensor, *piece, values, scratch);
      }
    }
  }
  [[nodiscard]] bool is_packed(std::size_t number) const {
    return !pieces_[number].empty() &&
           std::ranges::all_of(pieces_[number], [&](const auto& p) { return weights_.is_packed(*p.first); });
  }
  /// Of one that is packed.
  [[nodiscard]] std::vector<std::byte> codes(std::size_t number) const {
    const core::DType dtype = core::dtype_of(weights_.format());
    const core::Shape& shape = plan().parameters[number].shape;
    std::vector<std::byte> codes(
        static_cast<std::size_t>(core::packed_bytes(dtype, shape.numel(), shape[-1])));
    for (const auto& [tensor, piece] : pieces_[number]) {
      const std::vector<std::byte> own = weights_.packed(*tensor);
      copy_packed_rows({dtype, tensor->rows, tensor->width, own.data()}, *piece, true, shape[0], codes);
    }
    return codes;
  }

 private:
  Weights weights_;
  std::vector<std::vector<std::pair<const FileTensor*, const Piece*>>> pieces_;  ///< of each parameter
};

/// Asks for each parameter once, in their order, and keeps it while tensors need it.
class Fetcher {
 public:
  Fetcher(const WeightSource& source, const Plan& plan)
      : source_(source), plan_(plan), uses_(plan.parameters.size()) {
    for (const FileTensor& tensor : plan.tensors)
      for (const Piece& piece : tensor.pieces) ++uses_[piece.parameter];
  }

  void write(const FileTensor& tensor, core::DType dtype, const core::ByteSink& sink) {
    const std::int64_t row = tensor.pieces.size() == 1 ? plain_row(tensor, tensor.pieces.front()) : -1;
    if (row >= 0) {
      const std::span<const float> values = values_of(tensor.pieces.front().parameter);
      write_floats(sink, rows_of(values, tensor, row), dtype);
    } else {
      scratch_.resize(static_cast<std::size_t>(tensor.shape.numel()));
      for (const Piece& piece : tensor.pieces) to_file(tensor, piece, values_of(piece.parameter), scratch_);
      write_floats(sink, scratch_, dtype);
    }
    release(tensor);
  }

  /// The matrix as rows of `width`, however files have it.
  std::span<const float> rows(const FileTensor& tensor) {
    scratch_.resize(static_cast<std::size_t>(tensor.shape.numel()));
    FileTensor plain = tensor;
    plain.transposed = false;
    to_file(plain, tensor.pieces.front(), values_of(tensor.pieces.front().parameter), scratch_);
    release(tensor);
    return scratch_;
  }
  /// Instead of either: nobody needs the values.
  void skip(const FileTensor& tensor) {
    static_cast<void>(values_of(tensor.pieces.front().parameter));
    release(tensor);
  }

 private:
  void release(const FileTensor& tensor) {
    for (const Piece& piece : tensor.pieces)
      if (--uses_[piece.parameter] == 0) values_.erase(piece.parameter);
  }

  const std::vector<float>& values_of(std::size_t number) {
    for (; next_ <= number; ++next_) {
      const Parameter& parameter = plan_.parameters[next_];
      auto& values = values_[next_];
      values.resize(static_cast<std::size_t>(parameter.shape.numel()));
      source_(parameter.name, values);
    }
    return values_.at(number);
  }

  const WeightSource& source_;
  const Plan& plan_;
  std::vector<int> uses_;  ///< by parameter: tensors that are still to be written
  std::size_t next_ = 0;
  std::map<std::size_t, std::vector<float>> values_;
  std::vector<float> scratch_;
};

}  // namespace

void check_weights(const std::filesystem::path& directory, const ModelConfig& config) {
  const Weights weights(directory, config);
}

void load_weights(const std::filesystem::path& directory, const ModelConfig& config, const WeightSink& sink,
                  const PackedSink& packed_sink) {
  const Contents contents(directory, config);
  const std::vector<Parameter>& parameters = contents.plan().parameters;
  std::vector<float> values, scratch;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (packed_sink && contents.is_packed(i)) {
      packed_sink(parameters[i].name, contents.codes(i));
      continue;
    }
    values.resize(static_cast<std::size_t>(parameters[i].shape.numel()));
    contents.read(i, values, scratch);
    sink(parameters[i].name, values);
  }
}

WeightSource open_weights(const std::filesystem::path& directory, const ModelConfig& config) {
  auto contents = std::make_shared<const Contents>(directory, config);
  std::map<std::string, std::size_t> numbers;
  for (const Parameter& parameter : contents->plan().parameters)
    numbers.emplace(parameter.name, numbers.size());
  return [contents, numbers](const std::string& name, std::span<float> values) {
    std::vector<float> scratch;
    contents->read(numbers.at(name), values, scratch);
  };
}

core::DType stored_dtype(const std::filesystem::path& directory) {
  core::DType widest = core::DType::f16;
  for (const SafetensorsFile& file : open_safetensors_directory(directory)) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto dtype = core::find_dtype(&core::DTypeFacts::stored_name, tensor.dtype);
      if (dtype && is_float(tensor)) widest = std::min(widest, *dtype);
    }
  }
  return std::max(widest, core::DType::f32);
}

void save_config(const std::filesystem::path& directory, const ModelConfig& config, core::DType dtype,
                 const TextEnds& ends) {
  core::write_file_atomically(directory / "config.json", config_json(config, dtype, ends));
}

void save_model(const std::filesystem::path& directory, const ModelConfig& config, const WeightSource& source,
                core::DType dtype, std::uint64_t max_shard_bytes, const core::OnProgress& on_progress,
                const TextEnds& ends) {
  const std::string text = config_json(config, dtype, ends);
  const Plan plan(config);
  Fetcher fetcher(source, plan);
  std::vector<TensorSource> tensors;
  for (const FileTensor& tensor : plan.tensors) {
    tensors.push_back({tensor.name, dtype, tensor.shape,
                       [&fetcher, &tensor, dtype](const auto& to) { fetcher.write(tensor, dtype, to); }});
  }
  write_safetensors_directory(directory, tensors, max_shard_bytes, on_progress);
  core::write_file_atomically(directory / "config.json", text);
}

void save_quantized(const std::filesystem::path& directory, const ModelConfig& config,
                    core::WeightFormat format, const WeightSource& source, const PackedWeights& packed,
                    core::DType rest, const TextEnds& ends) {
  check_format(config, format);
  const std::string text = with_weight_format(config_json(config, rest, ends), format);
  const core::DType dtype = core::dtype_of(format);
  const Plan plan(config);
  Fetcher fetcher(source, plan);
  std::vector<TensorSource> tensors;
  std::vector<std::vector<std::byte>> parts;  // of the matrix that is being written
  for (const FileTensor& tensor : plan.tensors) {
    const Parameter& parameter = plan.parameters[tensor.pieces.front().parameter];
    if (!is_quantized(tensor, parameter)) {
      tensors.push_back({tensor.name, rest, tensor.shape,
                         [&fetcher, &tensor, rest](const auto& to) { fetcher.write(tensor, rest, to); }});
      continue;
    }
    const auto pack = [&, dtype] {
      std::vector<std::byte> codes(
          static_cast<std::size_t>(core::packed_bytes(dtype, tensor.rows * tensor.width, tensor.width)));
      const core::PackedMatrix matrix{dtype, tensor.rows, tensor.width, codes.data()};
      if (const auto own = packed.find(parameter.name); own != packed.end()) {
        const core::PackedMatrix whole{dtype, parameter.shape[0], parameter.shape[1], own->second.data()};
        copy_packed_rows(whole, tensor.pieces.front(), false, tensor.rows, codes);
        fetcher.skip(tensor);
      } else {
        core::pack(dtype, tensor.rows, tensor.width, fetcher.rows(tensor), codes.data());
      }
      parts = write_quantized(matrix);
    };
    const std::vector<QuantizedPart> names = quantized_parts(tensor.name, format, tensor.rows, tensor.width);
    for (std::size_t i = 0; i < names.size(); ++i) {
      core::Shape shape = names[i].shape;
      if (shape.rank() == 0) shape = {kQuantStateBytes};
      tensors.push_back({names[i].name, core::DType::f32, shape,
                         [&parts, pack, i](const core::ByteSink& to) {
                           if (i == 0) pack();
                           to(parts[i]);
                         },
                         names[i].dtype});
    }
  }
  write_safetensors_directory(directory, tensors, kMaxShardBytes, {});
  core::write_file_atomically(directory / "config.json", text);
}

}  // namespace rooflm::model
