// How rooflm's parameters map to the tensors of Hugging Face files. Rows of data/families.json say how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "model/config.h"
#include "model/parameters.h"

namespace rooflm::model {

/// The rows [row, row + count) of a parameter: the rows file_row, file_row + file_step, .. of a file tensor.
struct Run {
  std::int64_t file_row = 0, row = 0, count = 0, file_step = 1;
};

/// What a file tensor holds of one parameter.
struct Piece {
  std::size_t parameter = 0;  ///< its number
  std::vector<Run> runs{};
};

/// A tensor of a file. Its rows run along the parameters' last dimension; a vector has rows of one element.
struct FileTensor {
  std::string name;
  core::Shape shape{};
  std::int64_t rows = 0, width = 1;
  std::int64_t matrices = 1;  ///< that follow each other, of rows / matrices rows
  bool transposed = false;    ///< the file stores each as [in, out], the parameter is [out, in]
  float less = 0;             ///< the file's values are the parameter's less this
  std::vector<Piece> pieces{};
};

/// How files pack experts: as the family's row says, or as one tensor [E, out, in] or [E, in, out] each for
/// gate and up and for down, as newer files do where a row names a tensor for each expert.
enum class ExpertPacking : std::uint8_t { as_family, packed, packed_transposed };

/// The tensors of the model's files, in the order of its parameters. Rows of a parameter that no piece covers
/// are padding: zero.
std::vector<FileTensor> file_tensors(const std::vector<Parameter>& parameters, const ModelConfig& config,
                                     ExpertPacking packing = ExpertPacking::as_family);

/// Values of a file tensor from a parameter's, and back, for one of its pieces. `file` has numel elements.
void to_file(const FileTensor& tensor, const Piece& piece, std::span<const float> parameter,
             std::span<float> file);
void from_file(const FileTensor& tensor, const Piece& piece, std::span<const float> file,
               std::span<float> parameter);
/// Where a piece is a file tensor's elements in their order, values unchanged: the first row of the
/// parameter; -1: it is not.
std::int64_t plain_row(const FileTensor& tensor, const Piece& piece);

/// The full name of a file tensor, with the prefix that bare models omit and without those of models of
/// several media; "" for tensors that are not weights (attention masks, rotary tables, the copy of a tied
/// head).
std::string weight_name(std::string_view stored_name, const ModelConfig& config);

/// Whether a tensor of that full name may be left over: it belongs to other parts of the file's model.
bool is_of_other_parts(const std::string& name, const ModelConfig& config);

}  // namespace rooflm::model
