// How rooflm's parameters map to the tensors of Hugging Face files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "model/config.h"
#include "model/parameters.h"

namespace rooflm::model {

/// A file tensor that provides the rows [first_row, first_row + rows) of a parameter. Rows run along the
/// parameter's last dimension; a vector has rows of one element.
struct Part {
  std::string tensor;  ///< "transformer.h.0.attn.c_attn.weight"
  core::Shape shape;   ///< in the file
  std::int64_t first_row = 0;
  bool transposed = false;  ///< the file stores [in, out], the parameter is [out, in]
};

/// The parts of one parameter of `config`, in row order. Rows not covered by a part are padding: zero.
std::vector<Part> parts_of(const Parameter& parameter, const ModelConfig& config);

/// The full name of a file tensor, with the prefix that bare models omit; "" for tensors that are not weights
/// (attention masks, rotary tables, the copy of a tied head).
std::string weight_name(std::string_view stored_name, const ModelConfig& config);

}  // namespace rooflm::model
