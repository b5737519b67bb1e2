// Packed weights in the files of other tools: docs/quantization.md names the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/packed_weights.h"
#include "model/huggingface.h"
#include "model/huggingface_layout.h"
#include "model/safetensors.h"

namespace rooflm::model {

/// Forms of packed weights that are not read: refused where weights are wanted, no matter where only the
/// shape is.
enum class Unread : std::uint8_t { is_refused, is_plain };
/// What "quantization_config" of a config.json says, of its text model where that says it; `plain` without
/// it. Throws core::InputError for what is no object, core::Unavailable that names `path` and the method for
/// forms that are not read.
core::WeightFormat parse_weight_format(std::string_view config, const std::string& path,
                                       Unread unread = Unread::is_refused);
/// The same of DIRECTORY/config.json; `plain` without one.
core::WeightFormat read_weight_format(const std::filesystem::path& directory,
                                      Unread unread = Unread::is_refused);
/// The method of weights in a form that is not read ("fp8", "awq"); empty for others.
std::string unread_weights(const nlohmann::json& root);
/// A config.json of a plain model, with what other tools need to read weights in `format`.
std::string with_weight_format(const std::string& config, core::WeightFormat format);

/// Whether files have a tensor of that parameter packed.
bool is_quantized(const FileTensor& tensor, const Parameter& parameter);

/// Throws core::UsageError for the first matrix that the format cannot hold.
void check_format(const ModelConfig& config, core::WeightFormat format);

/// The tensors that hold a packed matrix [out, in] called `name`, which ends in ".weight".
struct QuantizedPart {
  std::string name;
  std::string dtype;  ///< as files name it
  core::Shape shape;
};
/// Extents of the state of nf4, a text that ends in spaces; readers take any number.
inline constexpr std::int64_t kQuantStateBytes = 192;
std::vector<QuantizedPart> quantized_parts(const std::string& name, core::WeightFormat format,
                                           std::int64_t out, std::int64_t in);

/// A matrix [out, in] from its parts, as core::PackedMatrix has it. `find`: a stored tensor by its name.
/// Throws core::InputError for parts that disagree.
std::vector<std::byte> read_quantized(const std::vector<QuantizedPart>& parts, core::WeightFormat format,
                                      std::int64_t out, std::int64_t in,
                                      const std::function<const StoredTensor&(const std::string&)>& find);
/// The inverse: the bytes of each part.
std::vector<std::vector<std::byte>> write_quantized(const core::PackedMatrix& matrix);

/// Copies the rows of a file's matrix to those of a parameter's, or back; both are in memory form. Throws
/// core::Unavailable where rows of nf4 do not lie in whole groups.
void copy_packed_rows(const core::PackedMatrix& from, const Piece& piece, bool to_parameter,
                      std::int64_t rows, std::vector<std::byte>& to);

/// Parameters in memory form, by name.
using PackedWeights = std::map<std::string, std::vector<std::byte>>;
/// Writes the directory of a quantised model: what `packed` has as it is, other matrices of layers rounded to
/// nearest, all else as `rest`. Otherwise as model::save_model. Throws as check_format.
void save_quantized(const std::filesystem::path& directory, const ModelConfig& config,
                    core::WeightFormat format, const WeightSource& source, const PackedWeights& packed,
                    core::DType rest = core::DType::f32, const TextEnds& ends = {});

}  // namespace rooflm::model
